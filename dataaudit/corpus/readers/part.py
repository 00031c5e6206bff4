"""Part: a piece of a file that one task reads alone; PartStats: what reading it showed."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_LAYOUTS = 1_000


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A range of a file: bytes of a plain text file, row groups of a Parquet file, or all of it."""

    start: int
    """First byte or row group."""
    stop: int
    """Byte or row group after the last."""


@dataclass(slots=True)
class PartStats:
    """Counts that belong to the reading, not to any stage."""

    records: int = 0
    """Records met, bad ones included."""
    columns: set[str] = field(default_factory=set)
    """Names (Parquet: names and types) of the top-level columns; they are hashed, never stored."""
    layouts: set[tuple[str, ...]] = field(default_factory=set)
    """Column layouts seen so far, at most :data:`MAX_LAYOUTS`."""

    def see_layout(self, names: tuple[str, ...]) -> None:
        """Note the columns of a record; a corpus has few layouts, so this is one look-up a record."""
        if names not in self.layouts and len(self.layouts) < MAX_LAYOUTS:
            self.layouts.add(names)
            self.columns.update(names)
