"""A disk that dies or fails at the k-th step of a publish."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from typing import Any, Self

import pytest

from dataaudit.manifest import replace

CALLS = (
    "mkdir", "rename", "replace", "unlink", "remove", "rmdir", "fsync", "chmod", "utime", "symlink", "sendfile",
    "copy_file_range", "truncate",
)  # fmt: skip


class Killed(BaseException):
    """The process is dead: nothing it does after this reaches the disk."""


class FaultyDisk:
    """Counts every call that changes the disk, and lets the k-th be the last one, or fail once.

    Args:
        monkeypatch: Puts the calls back after the test.
        exchange: Whether the system can swap two folders in one step.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, exchange: bool) -> None:
        self.steps = 0
        self._last = 0
        self._kill = True
        self._on = False
        for name in CALLS:
            if hasattr(os, name):
                call = getattr(os, name)
                monkeypatch.setattr(os, name, self._counted(_no_sync if name == "fsync" else call))
        opened = self._opening(builtins.open)
        monkeypatch.setattr(builtins, "open", opened)
        monkeypatch.setattr(io, "open", opened)
        swap = self._counted(replace.exchange)
        monkeypatch.setattr(replace, "exchange", swap if exchange else lambda left, right: False)

    def run(self, action: Callable[[], object], *, last: int, kill: bool) -> BaseException | None:
        """Run an action whose step number ``last`` does not happen; return what it raised."""
        self.steps, self._last, self._kill, self._on = 0, last, kill, True
        try:
            action()
        except (Killed, Exception) as error:  # noqa: BLE001 - the tests judge it
            return error
        finally:
            self._on = False
        return None

    def step(self) -> None:
        """Count a step; raise when it must not happen."""
        if not self._on:
            return
        self.steps += 1
        if self._kill and self.steps >= self._last:
            raise Killed
        if self.steps == self._last:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.step()
            return call(*args, **kwargs)

        return counted

    def _opening(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if "w" not in mode or not self._on:
                return call(file, mode, *args, **kwargs)
            self.step()
            return _Handle(call(file, mode, *args, **kwargs), self)

        return opened


def _no_sync(descriptor: int) -> None:
    """A kill does not lose what was not yet synced, so the tests need not wait for the disk."""


class _Handle:
    """A file whose writes are steps; one that does not happen leaves half of its bytes."""

    def __init__(self, file: Any, disk: FaultyDisk) -> None:
        self._file = file
        self._disk = disk

    def write(self, data: bytes) -> int:
        try:
            self._disk.step()
        except BaseException:
            self._file.write(data[: len(data) // 2])
            raise
        return int(self._file.write(data))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
