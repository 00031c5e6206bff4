"""The stat index: a file that has not changed since it was hashed is not read to know its sha256.

A row is trusted when size, mtime (ns), inode and device are the same and the file was at least two seconds
old when it was hashed, so that a change within the clock's granularity cannot hide.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

_SETTLED_NS = 2_000_000_000
_SCHEMA = """
create table if not exists files (
  path text primary key, size integer, mtime_ns integer, inode integer, device integer,
  hashed_ns integer, probe blob
) without rowid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """What the file system says of a file."""

    size: int
    mtime_ns: int
    inode: int
    device: int


def stat_file(path: str) -> FileStat:
    """Return the stat of a file, links followed."""
    found = Path(path).stat()
    return FileStat(size=found.st_size, mtime_ns=found.st_mtime_ns, inode=found.st_ino, device=found.st_dev)


class StatIndex:
    """Maps unchanged files to what was found when they were hashed; written by the driver alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._open()
        except sqlite3.DatabaseError:  # a damaged index costs one pass of hashing, never a wrong number
            path.unlink(missing_ok=True)
            self._open()

    def _open(self) -> None:
        self._database = sqlite3.connect(self._path, timeout=60)
        self._database.execute(_SCHEMA)
        self._database.execute("select count(*) from files").fetchone()

    def find(self, path: str, stat: FileStat) -> dict[str, Any] | None:
        """Return what was stored for a file, if it is unchanged."""
        row = self._database.execute(
            "select size, mtime_ns, inode, device, hashed_ns, probe from files where path = ?", (path,)
        ).fetchone()
        if row is None or row[:4] != (stat.size, stat.mtime_ns, stat.inode, stat.device):
            return None
        if row[1] + _SETTLED_NS > row[4]:
            return None
        value: dict[str, Any] = orjson.loads(row[5])
        return value

    def store(self, rows: Iterable[tuple[str, FileStat, int, dict[str, Any]]]) -> None:
        """Store (path, stat, time of hashing in ns, JSON value)."""
        values = [
            (path, stat.size, stat.mtime_ns, stat.inode, stat.device, hashed_ns, orjson.dumps(probe))
            for path, stat, hashed_ns, probe in rows
        ]
        with self._database:
            self._database.executemany("insert or replace into files values (?, ?, ?, ?, ?, ?, ?)", values)

    def close(self) -> None:
        """Close the database."""
        self._database.close()
