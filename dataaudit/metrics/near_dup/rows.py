"""What the scan emits for the search for near-duplicates: classes, bands, probes, signatures."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.annotators.words import WORDS
from dataaudit.corpus.batch import DocBatch
from dataaudit.kernels.minhash import band_keys, distinct_sets, intersections, shingle_hashes, sketch
from dataaudit.kernels.variants import LEAST, MOST, make_variants
from dataaudit.kernels.words import WordBatch

DOCUMENTS = pa.schema([("key", pa.binary(16)), ("row", pa.int64()), ("source", pa.string())])
"""Every document that has words: the digest of their sequence (its class), and its source."""
BANDS = pa.schema([("key", pa.binary(8)), ("row", pa.int64()), ("same", pa.uint32())])
"""Every band of these documents: its key, and the first four bytes of the document's class."""
PROBES = pa.schema(
    [
        ("key", pa.binary(8)),
        ("row", pa.int64()),
        ("same", pa.uint32()),
        ("band", pa.int16()),
        ("intersection", pa.int64()),
        ("union", pa.int64()),
    ]
)
"""Every band of a probe: a variant of the document of this row and class, and their exact similarity."""
PROBE_WORDS = 12
"""Least words of a document that probes are made of."""


SIGNATURES = pa.schema([("key", pa.binary(16)), ("row", pa.int64()), ("signature", pa.large_binary())])
"""Every document's class and its signature, little-endian uint32 values."""


def emit_tables(
    batch: DocBatch, *, ngram: int, num_perm: int, bands: int, rows: int, probe_one_in: int, signatures: bool
) -> dict[str, pa.Table]:
    """Return the keyed tables of some documents; those without words are in none.

    Args:
        batch: With words.
        ngram: Words of a shingle.
        num_perm: Values of a signature.
        bands: Bands of a signature.
        rows: Values of a band.
        probe_one_in: About one class in so many has a probe; 0 for none.
        signatures: Whether to emit signatures.
    """
    words = batch.get(WORDS)
    has_words = words.num_words() > 0
    values, classes = sketch(words.hashes, words.offsets, ngram=ngram, num_perm=num_perm)
    same = classes.view("<u4")[:, 0]
    keys = band_keys(values, bands, rows)
    tables = {
        "documents": pa.table(
            [_binary(classes[has_words]), batch.rows[has_words], _sources(batch).filter(pa.array(has_words))],
            schema=DOCUMENTS,
        ),
        "bands": pa.table(
            [
                _binary(keys[has_words].reshape(-1, keys.shape[2])),
                np.repeat(batch.rows[has_words], bands),
                np.repeat(same[has_words], bands),
            ],
            schema=BANDS,
        ),
        "probes": PROBES.empty_table(),
        "signatures": SIGNATURES.empty_table(),
    }
    if probe_one_in:
        drawn = classes.view("<u8")[:, 1] % np.uint64(probe_one_in) == 0
        chosen = np.flatnonzero(drawn & (words.num_words() >= max(PROBE_WORDS, ngram)))
        tables["probes"] = _probes(words, chosen, classes, batch.rows, ngram, num_perm, bands, rows)
    if signatures:
        values = _binary(values[has_words].view(np.uint8)).cast(pa.large_binary())
        columns = [_binary(classes[has_words]), batch.rows[has_words], values]
        tables["signatures"] = pa.table(columns, schema=SIGNATURES)
    return tables


def _sources(batch: DocBatch) -> pa.Array:
    return batch.sources().cast(pa.string())


def _binary(values: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return uint8[n, width] as Arrow's fixed-size binary."""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(values.shape[1]), len(values), [None, buffer])


def _probes(
    words: WordBatch,
    chosen: np.ndarray,
    classes: np.ndarray,
    rows_of: np.ndarray,
    ngram: int,
    num_perm: int,
    bands: int,
    rows: int,
) -> pa.Table:
    """Make a variant of each chosen document; those whose exact similarity is out of range are left out."""
    if len(chosen) == 0:
        return PROBES.empty_table()
    pieces = [words.hashes[words.offsets[row] : words.offsets[row + 1]] for row in chosen.tolist()]
    hashes = np.concatenate(pieces)
    offsets = np.append(0, np.cumsum([len(piece) for piece in pieces])).astype(np.int64)
    seeds = np.ascontiguousarray(classes.view("<u8")[chosen, 0])
    made, made_offsets = make_variants(hashes, offsets, seeds, ngram=ngram)
    both = np.concatenate([hashes, made])
    both_offsets = np.concatenate([offsets, made_offsets[1:] + offsets[-1]])
    sets, bounds = distinct_sets(*shingle_hashes(both, both_offsets, ngram=ngram))
    originals, variants = np.arange(len(chosen)), np.arange(len(chosen), 2 * len(chosen))
    shared = intersections(sets, bounds, originals, variants)
    sizes = np.diff(bounds)
    union = sizes[originals] + sizes[variants] - shared
    kept = (shared >= LEAST * union) & (shared <= MOST * union)
    keys = band_keys(sketch(made, made_offsets, ngram=ngram, num_perm=num_perm)[0], bands, rows)[kept]
    same = classes.view("<u4")[chosen[kept], 0]
    columns = [
        _binary(keys.reshape(-1, keys.shape[2])),
        np.repeat(rows_of[chosen[kept]], bands),
        np.repeat(same, bands),
        np.tile(np.arange(bands, dtype=np.int16), int(kept.sum())),
        np.repeat(shared[kept], bands),
        np.repeat(union[kept], bands),
    ]
    return pa.table(columns, schema=PROBES)
