"""What the scan emits for the search for near-duplicates: classes, bands, sketches, signatures."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.annotators.words import WORDS
from dataaudit.corpus.batch import DocBatch
from dataaudit.kernels.crowds import sketches_of
from dataaudit.kernels.minhash import band_keys, sketch

DOCUMENTS = pa.schema([("key", pa.binary(16)), ("row", pa.int64()), ("source", pa.string())])
"""Every document that has words: the digest of their sequence (its class), and its source."""
BANDS = pa.schema([("key", pa.binary(8)), ("row", pa.int64()), ("same", pa.uint32())])
"""Every band of these documents: its key, and the first four bytes of the document's class."""
SKETCHES = pa.schema([("key", pa.binary(8)), ("row", pa.int64()), ("sketch", pa.binary())])
"""Every document's class, its first eight bytes, and its sketch: see :mod:`dataaudit.kernels.crowds`."""
SIGNATURES = pa.schema([("key", pa.binary(16)), ("row", pa.int64()), ("signature", pa.large_binary())])
"""Every document's class and its signature, little-endian uint32 values."""


def emit_tables(
    batch: DocBatch, *, ngram: int, num_perm: int, bands: int, rows: int, signatures: bool
) -> dict[str, pa.Table]:
    """Return the keyed tables of some documents; those without words are in none.

    Args:
        batch: With words.
        ngram: Words of a shingle.
        num_perm: Values of a signature.
        bands: Bands of a signature.
        rows: Values of a band.
        signatures: Whether to emit signatures.
    """
    words = batch.get(WORDS)
    has_words = words.num_words() > 0
    values, classes = sketch(words.hashes, words.offsets, ngram=ngram, num_perm=num_perm)
    keys = band_keys(values, bands, rows)[has_words]
    values, classes, numbers = values[has_words], classes[has_words], batch.rows[has_words]
    sources = batch.sources().cast(pa.string()).filter(pa.array(has_words))
    same = np.repeat(classes.view("<u4")[:, 0], bands)
    of_class, of_band = _binary(classes), _binary(keys.reshape(-1, keys.shape[2]))
    sketches = _binary(sketches_of(values)).cast(pa.binary())
    tables = {
        "documents": pa.table([of_class, numbers, sources], schema=DOCUMENTS),
        "bands": pa.table([of_band, np.repeat(numbers, bands), same], schema=BANDS),
        "sketches": pa.table([_binary(classes[:, :8]), numbers, sketches], schema=SKETCHES),
        "signatures": SIGNATURES.empty_table(),
    }
    if signatures:
        columns = [of_class, numbers, _binary(values.view(np.uint8)).cast(pa.large_binary())]
        tables["signatures"] = pa.table(columns, schema=SIGNATURES)
    return tables


def _binary(values: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return uint8[n, width] as Arrow's fixed-size binary."""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(values.shape[1]), len(values), [None, buffer])
