"""Strata: the groups of documents that a judge's sample is drawn from, and the keyed rows that name their members."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataaudit.annotators.languages import LANGUAGES
from dataaudit.annotators.tokens import num_tokens
from dataaudit.corpus.batch import DocBatch
from dataaudit.stages.partial import TableShape, group

MEMBERS = "members"
"""Name of the keyed table."""
KEY_BYTES = 8
MEMBER_ROWS = pa.schema(
    [
        ("key", pa.binary(KEY_BYTES)),
        ("row", pa.int64()),
        ("source", pa.string()),
        ("language", pa.string()),
        ("level", pa.int64()),
    ]
)
"""Keyed rows, one a document: the head of its text's digest, and the stratum it belongs to."""
STRATA = TableShape(
    keys={"source": pa.string(), "language": pa.string(), "level": pa.int64()}, sums=("documents", "bytes", "tokens")
)
"""Documents by stratum: source, language, and a level that a screen gave."""


def count_strata(batch: DocBatch, levels: np.ndarray) -> pa.Table:
    """Return how many documents, bytes and tokens there are of each stratum.

    Args:
        batch: With tokens and languages.
        levels: int64[n] what the screen made of each document.
    """
    ones = np.ones(len(batch), dtype=np.int64)
    columns = {**_names(batch), "level": levels, "documents": ones, "bytes": batch.num_bytes()}
    return group(STRATA, pa.table({**columns, "tokens": num_tokens(batch)}).cast(STRATA.schema()))


def member_rows(batch: DocBatch, levels: np.ndarray) -> pa.Table:
    """Return the keyed rows of the documents of a batch, of schema :data:`MEMBER_ROWS`."""
    assert batch.digests is not None
    columns = {"key": digest_keys(batch.digests), "row": batch.rows, **_names(batch), "level": levels}
    return pa.table(columns).cast(MEMBER_ROWS)


def digest_keys(digests: np.ndarray) -> pa.FixedSizeBinaryArray:
    """Return the first bytes of uint8[n, 16] digests as keys."""
    data = np.ascontiguousarray(digests[:, :KEY_BYTES])
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_BYTES), len(digests), [None, pa.py_buffer(data)])


def _names(batch: DocBatch) -> dict[str, pa.Array]:
    return {"source": batch.sources().cast(pa.string()), "language": batch.get(LANGUAGES).languages().cast(pa.string())}
