"""What hotspots cover, in bytes and tokens: one more look at the documents that hold repeated spans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataaudit.annotators.words import WORDS
from dataaudit.corpus.batch import Annotation, DocBatch
from dataaudit.corpus.texts import text_buffers
from dataaudit.kernels.winnow import sequence_hashes
from dataaudit.link.second_pass import Encode
from dataaudit.metrics.repeats.runs import merged

ANY = -1
"""In place of a hotspot: whatever lies in repeated spans, in hotspots and in their variants."""
SPANS = pa.schema([("row", pa.int64()), ("hotspot", pa.int64()), ("start", pa.int64()), ("stop", pa.int64())])
"""Words [start, stop) of a document that are an occurrence of a hotspot, or, merged, in repeated spans."""
PLACES = pa.schema([("hotspot", pa.int64()), ("row", pa.int64()), ("start", pa.int64()), ("end", pa.int64())])
"""Occurrences of hotspots, in bytes."""
TOTALS = pa.schema(
    [
        ("hotspot", pa.int64()),
        ("source", pa.string()),
        ("documents", pa.int64()),
        ("occurrences", pa.int64()),
        ("tokens", pa.int64()),
    ]
)
"""By hotspot (or ANY) and source: documents, occurrences, and tokens of the words covered, each word once."""
HASHES = pa.schema([("hotspot", pa.int64()), ("hash", pa.uint64())])
"""Hash of the words of each hotspot."""


def spans_of(members: pa.Table, covered: pa.Table) -> pa.Table:
    """Return what is wanted: ``document``, ``hotspot``, ``start``, ``stop``.

    Args:
        members: Of the schema MEMBERS of :mod:`dataaudit.metrics.repeats.matching`.
        covered: Of the schema COVERAGE of :mod:`dataaudit.metrics.repeats.runs`.
    """
    tables = [members, covered.append_column("hotspot", pa.array(np.full(covered.num_rows, ANY)))]
    return pa.concat_tables([table.select(["document", "hotspot", "start", "stop"]) for table in tables])


@dataclass(frozen=True, slots=True)
class RepeatedSpans:
    """Counts the tokens that hotspots cover, and says where these are in bytes."""

    tokenizer: str
    """Digest of what decides tokens; it only keeps the results of different tokenizers apart."""

    name: ClassVar[str] = "repeated_spans"
    version: ClassVar[str] = "1"
    needs: ClassVar[tuple[Annotation[Any], ...]] = (WORDS,)
    emits: ClassVar[Mapping[str, pa.Schema]] = {}

    def run(self, batch: DocBatch, wanted: pa.Table, encode: Encode) -> dict[str, pa.Table]:
        """Return PLACES, TOTALS and HASHES of the documents of a batch.

        Args:
            batch: Documents with their words.
            wanted: Of :data:`SPANS`.
            encode: The tokenizer.
        """
        columns = [wanted[name].to_numpy() for name in SPANS.names]
        order = np.lexsort((columns[2], columns[1], columns[0]))
        row, hotspot, start, stop = (column[order] for column in columns)
        place = np.searchsorted(batch.rows, row)
        first, last = batch.get(WORDS).offsets[place] + start, batch.get(WORDS).offsets[place] + stop - 1
        places = (hotspot, row, batch.get(WORDS).starts[first], batch.get(WORDS).ends[last])
        real = hotspot != ANY
        table = pa.table({name: column[real] for name, column in zip(PLACES.names, places, strict=True)})
        return {
            "places": table.cast(PLACES),
            "totals": self._totals(batch, place, hotspot, start, stop, encode),
            "hashes": _hashes(batch.get(WORDS).hashes, hotspot, first, last + 1),
        }

    def _totals(
        self,
        batch: DocBatch,
        place: np.ndarray,
        hotspot: np.ndarray,
        start: np.ndarray,
        stop: np.ndarray,
        encode: Encode,
    ) -> pa.Table:
        """Merge what overlaps within a document, count its tokens, and add up by hotspot and source."""
        holders, holder = _distinct(place, hotspot)
        joined = merged(holder, start, stop)
        holder_of = joined["document"].to_numpy()
        (base, values), words = text_buffers(batch.texts), batch.get(WORDS)
        document = holders[holder_of, 0]
        first = words.offsets[document] + joined["start"].to_numpy()
        last = words.offsets[document] + joined["stop"].to_numpy() - 1
        begin, end = base[document] + words.starts[first], base[document] + words.ends[last]
        tokens = _tokens_between(values, begin, end, encode)
        table = pa.table(
            {
                "hotspot": holders[:, 1],
                "source": batch.sources().cast(pa.string()).take(pa.array(holders[:, 0])),
                "documents": np.ones(len(holders), dtype=np.int64),
                "occurrences": np.bincount(holder, minlength=len(holders)).astype(np.int64),
                "tokens": np.bincount(holder_of, tokens, minlength=len(holders)).astype(np.int64),
            }
        )
        return add_totals([table])


def add_totals(tables: list[pa.Table]) -> pa.Table:
    """Add up totals of equal hotspot and source."""
    table = pa.concat_tables([TOTALS.empty_table(), *(table.cast(TOTALS) for table in tables)])
    sums = [(name, "sum") for name in TOTALS.names[2:]]
    grouped = table.group_by(TOTALS.names[:2], use_threads=False).aggregate(sums)
    return (
        grouped.rename_columns(TOTALS.names).cast(TOTALS).sort_by([("hotspot", "ascending"), ("source", "ascending")])
    )


def _distinct(place: np.ndarray, hotspot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct (document, hotspot), int64[h, 2], and of each row which it is; rows are sorted by both."""
    new = np.ones(len(place), dtype=bool)
    new[1:] = (place[1:] != place[:-1]) | (hotspot[1:] != hotspot[:-1])
    return np.column_stack([place[new], hotspot[new]]), np.cumsum(new) - 1


def _tokens_between(values: np.ndarray, begin: np.ndarray, end: np.ndarray, encode: Encode) -> np.ndarray:
    """int64[n] tokens of each ``values[begin:end]``; equal ones are counted once."""
    spans, which = np.unique(np.column_stack([begin, end]), axis=0, return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0])]).astype(np.int64)
    data = b"".join(values[low:high].tobytes() for low, high in spans.tolist())
    texts = pa.LargeStringArray.from_buffers(len(spans), pa.py_buffer(offsets), pa.py_buffer(data))
    counted: np.ndarray = np.diff(encode(texts).offsets)[which.reshape(-1)]
    return counted


def _hashes(words: np.ndarray, hotspot: np.ndarray, first: np.ndarray, stop: np.ndarray) -> pa.Table:
    """Return the hash of each hotspot's words, from any one occurrence: they are the same."""
    numbers, at = np.unique(hotspot, return_index=True)
    at, numbers = at[numbers != ANY], numbers[numbers != ANY]
    return pa.table({"hotspot": numbers, "hash": sequence_hashes(words, first[at], stop[at])}).cast(HASHES)
