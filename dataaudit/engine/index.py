"""The stat index: a file that has not changed since it was hashed is not read to know its sha256.

A row is trusted when size, mtime, ctime (both in ns), inode and device are the same and the file was at least
two seconds old when it was hashed, so that a change within the clock's granularity cannot hide. For a remote
file its size and its validator (an ETag, a checksum, a version) have to be the same; a time alone is trusted when
it was a minute old, and a file whose store gives nothing is not. The index only saves time: one that is damaged,
locked or on a full disk is done without.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import orjson

from dataaudit.corpus.storage.files import LOCAL, FileStat

_SETTLED_NS = 2_000_000_000
_SETTLED_REMOTE_NS = 60_000_000_000
_HELD_ROWS = 256
_HELD_SECONDS = 1.0
_SCHEMA = "create table if not exists probes (path blob primary key, stat text, probe blob) without rowid"
_FIND = "select stat, probe from probes where path = ?"
_STORE = "insert or replace into probes values (?, ?, ?)"


class StatIndex:
    """Maps unchanged files to what was found when they were hashed; written by the driver alone.

    Args:
        path: The database; created when absent, made anew when it is none.
        seconds: How long to wait for another build that writes to it.
    """

    def __init__(self, path: Path, *, seconds: float = 20.0) -> None:
        self.fault = ""
        """Why the index is done without; empty while it works."""
        self._database: sqlite3.Connection | None = None
        self._held: list[tuple[bytes, str, bytes]] = []
        self._stored = time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._open(path, seconds)
            except sqlite3.OperationalError:
                raise  # locked, read-only, no space: the database itself may be well
            except sqlite3.DatabaseError:  # a damaged index costs one pass of hashing, never a wrong number
                self.close()
                for suffix in ("", "-journal"):
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
                self._open(path, seconds)
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _open(self, path: Path, seconds: float) -> None:
        self._database = sqlite3.connect(path, timeout=seconds)
        self._database.execute(_SCHEMA)
        self._database.execute("select count(*) from probes").fetchone()

    def find(self, path: str, stat: FileStat) -> dict[str, Any] | None:
        """Return what was stored for a file, if it is unchanged."""
        if self._database is None:
            return None
        try:
            row = self._database.execute(_FIND, (os.fsencode(path),)).fetchone()
        except sqlite3.Error as error:
            self._give_up(error)
            return None
        if row is None or row[0] != _as_text(stat) or not stat.validator:
            return None
        value: dict[str, Any] = orjson.loads(row[1])
        margin = _SETTLED_NS if stat.validator == LOCAL else _SETTLED_REMOTE_NS
        settled = max(stat.mtime_ns, stat.ctime_ns) + margin <= value["hashed_ns"]
        return value["probe"] if settled else None

    def store(self, rows: Iterable[tuple[str, FileStat, int, dict[str, Any]]]) -> None:
        """Store (path, stat, time of hashing in ns, JSON value); they reach the disk within moments."""
        self._held += [
            (os.fsencode(path), _as_text(stat), orjson.dumps({"hashed_ns": hashed_ns, "probe": probe}))
            for path, stat, hashed_ns, probe in rows
        ]
        if len(self._held) >= _HELD_ROWS or time.monotonic() - self._stored >= _HELD_SECONDS:
            self._flush()

    def _flush(self) -> None:
        held, self._held = self._held, []
        self._stored = time.monotonic()
        if self._database is None or not held:
            return
        try:
            with self._database:
                self._database.executemany(_STORE, held)
        except sqlite3.Error as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.fault = self.fault or str(error)
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(sqlite3.Error):
                database.close()

    def close(self) -> None:
        """Write what is held and close the database."""
        self._flush()
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(sqlite3.Error):
                database.close()


def _as_text(stat: FileStat) -> str:
    """Return a stat as text: inodes and devices may be larger than the database's integers."""
    return " ".join(map(str, astuple(stat)))
