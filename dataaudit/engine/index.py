"""The stat index: a file that has not changed since it was hashed is not read to know its sha256.

A row is trusted when size, mtime, ctime (both in ns), inode and device are the same and the file was at least
two seconds old when it was hashed, so that a change within the clock's granularity cannot hide. For a remote
file its size and its validator (an ETag, a checksum, a version) have to be the same; a time alone is trusted when
it was a minute old, and a file whose store gives nothing is not. A row begins with the digest of its path and its
content, since SQLite checks neither: the place where a part ends is in it. The index only saves time: one that is
damaged is made anew, one that is locked or on a full disk is done without.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import orjson

from dataaudit.corpus.storage.files import LOCAL, FileStat
from dataaudit.sealing import seal
from dataaudit.text import plural

_SETTLED_NS = 2_000_000_000
_SETTLED_REMOTE_NS = 60_000_000_000
_HELD_ROWS = 256
_HELD_SECONDS = 1.0
_SCHEMA = "create table if not exists files (path blob primary key, row blob) without rowid"
_FIND = "select row from files where path = ?"
_STORE = "insert or replace into files values (?, ?)"
_DIGEST_BYTES = 32
_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
"""What SQLite says when the database itself may be well."""


class StatIndex:
    """Maps unchanged files to what was found when they were hashed; written by the driver alone.

    Args:
        path: The database; created when absent, made anew when it is none.
        seconds: How long to wait for another build that writes to it.
    """

    def __init__(self, path: Path, *, seconds: float = 20.0) -> None:
        self.fault = ""
        """Why the index is done without; empty while it works."""
        self.renewed = ""
        """Why the database was made anew; empty when it was not."""
        self.damaged = 0
        """Rows that were not as they were written."""
        self._path, self._seconds = path, seconds
        self._database: sqlite3.Connection | None = None
        self._held: list[tuple[bytes, bytes]] = []
        self._stored = time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except (sqlite3.Error, OSError) as error:
            self._recover(error)

    def _open(self) -> None:
        self._database = sqlite3.connect(self._path, timeout=self._seconds)
        self._database.execute(_SCHEMA)
        self._database.execute("select count(*) from files").fetchone()

    def find(self, path: str, stat: FileStat) -> dict[str, Any] | None:
        """Return what was stored for a file, if it is unchanged."""
        if self._database is None:
            return None
        try:
            row = self._database.execute(_FIND, (os.fsencode(path),)).fetchone()
        except sqlite3.Error as error:
            self._recover(error)
            return None
        if row is None or not stat.validator:
            return None
        content = row[0][_DIGEST_BYTES:] if isinstance(row[0], bytes) else b""
        if row[0] != _row(os.fsencode(path), content):
            self.damaged += 1
            return None
        value: dict[str, Any] = orjson.loads(content)
        if value["stat"] != _as_text(stat):
            return None
        margin = _SETTLED_NS if stat.validator == LOCAL else _SETTLED_REMOTE_NS
        settled = max(stat.mtime_ns, stat.ctime_ns) + margin <= value["hashed_ns"]
        return value["probe"] if settled else None

    def notes(self) -> Iterator[str]:
        """Yield in words what was damaged, so that its files were hashed again, and why the index is done without."""
        if self.renewed:
            yield f"{self._path.name}: the index of hashed files was damaged and is made anew ({self.renewed})"
        if self.damaged:
            yield f"{self._path.name}: {plural(self.damaged, 'damaged row')}, so as many files are hashed again"
        if self.fault:
            yield f"the index of hashed files was done without: {self.fault}"

    def store(self, rows: Iterable[tuple[str, FileStat, int, dict[str, Any]]]) -> None:
        """Store (path, stat, time of hashing in ns, JSON value); they reach the disk within moments."""
        for path, stat, hashed_ns, probe in rows:
            name = os.fsencode(path)
            content = orjson.dumps({"stat": _as_text(stat), "hashed_ns": hashed_ns, "probe": probe})
            self._held.append((name, _row(name, content)))
        if len(self._held) >= _HELD_ROWS or time.monotonic() - self._stored >= _HELD_SECONDS:
            self._flush()

    def _flush(self) -> None:
        held, self._held = self._held, []
        self._stored = time.monotonic()
        if self._database is None or not held:
            return
        try:
            self._write(held)
        except sqlite3.Error as error:
            self._recover(error)
            with contextlib.suppress(sqlite3.Error):
                self._write(held)

    def _write(self, rows: list[tuple[bytes, bytes]]) -> None:
        if self._database is not None:
            with self._database:
                self._database.executemany(_STORE, rows)

    def _recover(self, error: Exception) -> None:
        """Make a damaged database anew, once: that costs one pass of hashing, never a wrong number."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if isinstance(error, OSError) or code in _PASSING or self.renewed:
            self._give_up(error)
            return
        self.renewed = str(error)
        self._drop()
        try:
            for suffix in ("", "-journal"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._open()
        except (sqlite3.Error, OSError) as again:
            self._give_up(again)

    def _give_up(self, error: Exception) -> None:
        self.fault = self.fault or str(error)
        self._drop()

    def _drop(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(sqlite3.Error):
                database.close()

    def close(self) -> None:
        """Write what is held and close the database."""
        self._flush()
        self._drop()


def _row(path: bytes, content: bytes) -> bytes:
    """Return what is stored: content after the seal of it and its path."""
    state = seal(len(path).to_bytes(8, "little") + path)
    state.update(content)
    return state.digest() + content


def _as_text(stat: FileStat) -> str:
    """Return a stat as text: inodes and devices may be larger than the database's integers."""
    return " ".join(map(str, astuple(stat)))
