"""What every part of a corpus is searched for, as a file that all tasks of a round read."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from dataaudit.atomic import DamagedFileError
from dataaudit.metrics.repeats.paths import Round


@dataclass(frozen=True, slots=True)
class Search:
    """What every part is searched for."""

    round: Round
    """Paths and seeds."""
    firsts: pa.Table
    """Columns ``document``, ``start``, ``windows`` of the runs of windows that stand there first."""
    times: pa.Table
    """Column ``times``: how often each file is listed, by its number."""

    def packed(self) -> bytes:
        """Return it as Arrow streams, one after the other."""
        sink = pa.BufferOutputStream()
        for table in (self.round.paths, self.round.seeds, self.firsts, self.times):
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.combine_chunks())
        return bytes(sink.getvalue().to_pybytes())


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """Where a search lies."""

    path: bytes
    """As the file system's bytes."""
    sha256: str
    """Of the file."""

    def load(self) -> Search:
        """Read it, once a process.

        Raises:
            DamagedFileError: It is absent or damaged.
        """
        return _load(self.path, self.sha256)


@lru_cache(maxsize=1)
def _load(path: bytes, sha256: str) -> Search:
    try:
        with open(path, "rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
    except FileNotFoundError:
        digest = ""
    if digest != sha256:
        raise DamagedFileError(os.fsdecode(path))
    with pa.OSFile(path, "rb") as source:  # each message into memory of its own, aligned as Arrow wants it
        paths, seeds, firsts, times = (pa.ipc.open_stream(source).read_all() for _ in range(4))
    return Search(Round(paths, seeds), firsts, times)
