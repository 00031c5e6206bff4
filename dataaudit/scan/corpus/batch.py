"""DocBatch: some consecutive documents of one sub-shard, as Arrow and NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar, cast

import numpy as np
import pyarrow as pa

from dataaudit.scan.corpus.segments import bounds_of, text_buffers

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Annotation(Generic[Value]):
    """The name of an annotator's answer for every document, with its type."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DocBatch:
    """``n`` documents in reading order."""

    texts: pa.LargeStringArray
    """[n] the documents; no nulls, valid UTF-8, offset 0."""
    rows: np.ndarray
    """int64[n] record number within the sub-shard, bad records counted; ascending."""
    source_codes: np.ndarray
    """int32[n] index into ``source_names``."""
    source_names: tuple[str, ...]
    """Sources that occur in this batch, in order of first occurrence."""
    digests: np.ndarray | None = None
    """uint8[n, 16] of :func:`dataaudit.scan.corpus.texts.text_digests`, once the scan has computed them."""
    annotations: Mapping[str, object] = field(default_factory=dict)
    """Answers of annotators, by name; see :meth:`get`."""

    def __len__(self) -> int:
        return len(self.texts)

    def byte_offsets(self) -> np.ndarray:
        """int64[n + 1] offsets of the documents in :meth:`byte_values`."""
        return text_buffers(self.texts)[0]

    def byte_values(self) -> np.ndarray:
        """uint8[bytes] of all documents, concatenated; not a copy."""
        return text_buffers(self.texts)[1]

    def num_bytes(self) -> np.ndarray:
        """int64[n] UTF-8 bytes of each document."""
        return np.diff(self.byte_offsets())

    def get(self, annotation: Annotation[Value]) -> Value:
        """Return an annotator's answer for the documents."""
        if annotation.name not in self.annotations:
            raise LookupError(f"a reader of {annotation.name} has to declare it in `needs`")
        return cast("Value", self.annotations[annotation.name])

    def annotated(self, annotation: Annotation[Value], value: Value) -> DocBatch:
        """Return the batch with one more annotation."""
        return replace(self, annotations={**self.annotations, annotation.name: value})

    def identities(self) -> np.ndarray:
        """uint64[n]: equal for equal texts, in whatever batch."""
        assert self.digests is not None, "the scan computes the digests before it annotates"
        return np.ascontiguousarray(self.digests[:, :8]).view("<u8").reshape(-1)

    def take(self, chosen: np.ndarray) -> DocBatch:
        """Return some of the documents, in this order, without digests and annotations."""
        return DocBatch(
            texts=self.texts.take(pa.array(chosen, pa.int64())),
            rows=self.rows[chosen],
            source_codes=self.source_codes[chosen],
            source_names=self.source_names,
        )

    def without(self, rows: frozenset[int]) -> DocBatch:
        """Return the batch as if it had been read without some records: without digests and annotations."""
        if not rows or rows.isdisjoint(self.rows.tolist()):
            return self
        left = self.take(np.flatnonzero(~np.isin(self.rows, list(rows))))
        used, first, codes = np.unique(left.source_codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        names = tuple(self.source_names[code] for code in used[order].tolist())
        return replace(left, source_codes=np.argsort(order)[codes].astype(np.int32), source_names=names)

    def sources(self) -> pa.DictionaryArray:
        """[n] source of each document."""
        return pa.DictionaryArray.from_arrays(pa.array(self.source_codes), pa.array(self.source_names, pa.string()))


class BatchBuilder:
    """Collects documents until a batch is full; a single document may exceed ``max_bytes`` of text."""

    def __init__(self, max_bytes: int, max_documents: int = 65_536) -> None:
        self._max_bytes = max_bytes
        self._max_documents = max_documents
        self._clear()

    def _clear(self) -> None:
        self._texts: list[str] = []
        self._rows: list[int] = []
        self._codes: list[int] = []
        self._names: dict[str, int] = {}
        self._size = 0

    def add(self, text: str, row: int, source: str, size: int) -> bool:
        """Add a document of about ``size`` bytes; True when the batch is full."""
        self._texts.append(text)
        self._rows.append(row)
        self._codes.append(self._names.setdefault(source, len(self._names)))
        self._size += size
        return self._size >= self._max_bytes or len(self._texts) >= self._max_documents

    def take(self) -> DocBatch:
        """Return what was collected and start anew."""
        batch = DocBatch(
            texts=_as_array(self._texts),
            rows=np.array(self._rows, dtype=np.int64),
            source_codes=np.array(self._codes, dtype=np.int32),
            source_names=tuple(self._names),
        )
        self._clear()
        return batch

    def __len__(self) -> int:
        return len(self._texts)


def _as_array(texts: list[str]) -> pa.LargeStringArray:
    """Return texts as an Arrow array; a third of the time that ``pa.array`` takes."""
    encoded = [text.encode() for text in texts]
    offsets = bounds_of([len(text) for text in encoded])
    return pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))
