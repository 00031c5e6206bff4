"""What a probe did so far, item by item, so that one that was killed goes on where it was."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import orjson

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and of how much."""
_LOG = logging.getLogger("dataaudit")


class Store:
    """Items of a probe by name, appended to a file as they are done; without a file they are kept in memory alone.

    Args:
        path: Of the file; its folder is created.
        key: What the items depend on: those of a file with another key are dropped.
    """

    def __init__(self, path: Path | None = None, key: str = "") -> None:
        self.items: dict[str, Any] = {}
        """Done items, by name."""
        self._path, self._file = path, None
        if path is None:
            return
        try:
            lines = path.read_bytes().splitlines() if path.is_file() else []
            known = bool(lines) and _parsed(lines[0]) == {"key": key}
            for line in lines[1:] if known else ():
                item = _parsed(line)
                if isinstance(item, list) and len(item) == 2:  # a line that a kill cut is done again
                    self.items[str(item[0])] = item[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab" if known else "wb")
            self._write(b"" if known else orjson.dumps({"key": key}))
        except OSError as error:
            self._lost(error)

    def add(self, name: str, item: Any) -> None:
        """Keep an item, of plain JSON values."""
        self.items[name] = item
        self._write(orjson.dumps([name, item]))

    def grouped(
        self,
        items: Sequence[T],
        size: int,
        make: Callable[[int, Sequence[T]], Sequence[Any] | None],
        what: str,
        progress: Progress | None = None,
        prefix: str = "",
    ) -> list[Any] | None:
        """Return what is made of items, group by group; what was made before is not made again.

        ``make`` gets the number of a group's first item and the group, and returns plain JSON values; None: it cannot.
        """
        made: list[Any] = []
        for start in range(0, len(items), size):
            name = f"{prefix}{start}"
            if name not in self.items:
                part = make(start, items[start : start + size])
                if part is None:
                    return None
                self.add(name, part)
            made += self.items[name]
            if progress is not None:
                progress(what, min(start + size, len(items)), len(items))
        return made

    def close(self, *, done: bool) -> None:
        """Close the file, and remove it where the probe is done: its numbers are in the report then."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if done and self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def _write(self, line: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            self._lost(error)

    def _lost(self, error: OSError) -> None:
        _LOG.warning(f"{self._path}: progress cannot be kept ({os.strerror(error.errno or 0)}); the probe goes on")
        self._file = None


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
