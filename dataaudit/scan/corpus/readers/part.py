"""Part: a piece of a file that a task reads alone; ReadRequest: how; PartStats: counts of the reading."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dataaudit.scan.corpus.fields import FieldRule
from dataaudit.scan.corpus.segments import bounds_of, runs
from dataaudit.scan.corpus.shards import Compression, Shard

MAX_COLUMNS = 4_096
MAX_LAYOUTS = 1_000
_LAYOUT_CHARACTERS = 1 << 22
END = 2**53 - 1
"""A part that stops here goes on to the end of the file, wherever that is."""
Restart = tuple[int, int]
"""(stored, decoded) offset of a member of a compressed file."""


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A range of a file: of bytes of lines (decoded ones, if it is compressed), or of batches of rows."""

    start: int
    """First byte, row group or record batch."""
    stop: int
    """The one after the last, or :data:`END`."""
    restart: Restart = (0, 0)
    """Where decoding begins that reaches the part; decides how long reading takes, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """A part of a file and how to read it."""

    path: str
    format: str
    """A name of :data:`dataaudit.manifest.formats.FORMATS`."""
    compression: Compression
    part: Part
    fields: FieldRule
    batch_bytes: int
    """Text bytes of a batch."""
    only: np.ndarray | None = field(default=None, compare=False)
    """int64[k] numbers within the part, ascending, of the wanted records; None for all. Others may be left out of
    documents, losses and stats, and the reading may end after the last."""
    without: frozenset[int] = frozenset()
    """Numbers within the part of quarantined records. Readers give them like all others: they count, and are in the
    digest of the rows, but no stage gets them."""

    @classmethod
    def of(cls, shard: Shard, part: Part, fields: FieldRule, batch_bytes: int, **more: Any) -> ReadRequest:
        """Return what reads a part of a shard."""
        path, form, compression = shard.path, shard.format, shard.compression
        more |= {"part": part, "fields": fields, "batch_bytes": batch_bytes}
        return cls(path=path, format=form, compression=compression, **more)


@dataclass(slots=True)
class PartStats:
    """Counts that belong to the reading, not to any stage."""

    records: int = 0
    """Records met, bad ones included."""
    text_bytes: int = 0
    """UTF-8 bytes of the texts of the good ones."""
    columns: set[str] = field(default_factory=set)
    """Digests (16 hex digits) of the top-level columns' names (Parquet: names and types); never names, which
    may hold text. The :data:`MAX_COLUMNS` smallest, so that those of a shard's parts can be joined in any order."""
    _layouts: set[tuple[str, ...]] = field(default_factory=set)
    """Layouts whose names are in ``columns`` already: at most :data:`MAX_LAYOUTS`, of bounded size."""
    _layout_characters: int = 0

    def see_layout(self, names: tuple[str, ...]) -> None:
        """Note the columns of a record; a corpus has few layouts, so this is mostly a look-up."""
        if names in self._layouts:
            return
        self.columns.update(column_digest(name) for name in names)
        if len(self.columns) > MAX_COLUMNS:
            self.columns = set(sorted(self.columns)[:MAX_COLUMNS])
        size = sum(map(len, names)) + len(names)
        if len(self._layouts) < MAX_LAYOUTS and self._layout_characters + size <= _LAYOUT_CHARACTERS:
            self._layouts.add(names)
            self._layout_characters += size


def column_digest(name: str) -> str:
    """Return the first 16 hex digits of the sha256 of a column's name."""
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:16]


def cut_by_size(sizes: Sequence[int], part_bytes: int) -> list[Part]:
    """Cut row groups or record batches of these sizes, so that a part has about ``part_bytes``, or is one of them."""
    return [Part(*run) for run in runs(bounds_of(sizes), part_bytes)] or [Part(0, 0)]
