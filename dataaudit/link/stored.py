"""Where stored bytes lie: in a file of their own, or in a pack, a file that holds those of many parts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

_IN_PACK = "\0"
"""Separates, in an address, the path of a pack from the place in it; no path holds one."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Some stored bytes. As text, their address: the path of their file; in a pack, its path and the place in it."""

    path: str
    """The file that they lie in."""
    name: str
    """What their digests know them by: ``<kind>/<key>``, with a suffix for rows beside an entry."""
    offset: int = 0
    """Where they begin in the file."""
    size: int | None = None
    """How many they are; None for the whole file."""

    def __str__(self) -> str:
        return self.path if self.size is None else f"{self.path}{_IN_PACK}{self.offset}:{self.size}:{self.name}"

    @classmethod
    def at(cls, address: str | Path) -> Stored:
        """Return what an address names."""
        path, in_pack, place = str(address).partition(_IN_PACK)
        if not in_pack:
            own = Path(path)
            return cls(path=path, name=f"{own.parent.parent.name}/{own.name}")
        offset, size, name = place.split(":", 2)
        return cls(path=path, name=name, offset=int(offset), size=int(size))

    def num_bytes(self) -> int:
        """Return how many they are; 0 when their file is gone."""
        if self.size is not None:
            return self.size
        return os.stat(self.path).st_size if os.path.exists(self.path) else 0

    def open(self) -> pa.NativeFile:
        """Open the file where they begin.

        Raises:
            OSError: It cannot be opened.
        """
        source = pa.OSFile(os.fsencode(self.path), "rb")
        source.seek(self.offset)
        return source

    def read(self) -> pa.Buffer:
        """Return them, in aligned memory, as Arrow's kernels want it; fewer when the file is cut.

        Raises:
            OSError: They cannot be read.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)  # a pa.OSFile costs three times as much
        try:
            size = os.fstat(descriptor).st_size - self.offset if self.size is None else self.size
            found = pa.allocate_buffer(max(size, 0))
            view, read = memoryview(found), 0
            while read < size and (more := os.preadv(descriptor, [view[read:]], self.offset + read)):
                read += more
        finally:
            os.close(descriptor)
        return found if read == size else found.slice(0, read)
