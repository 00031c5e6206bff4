"""Units that do to a worker what a hostile shard would; importable by workers and by child processes."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from dataaudit.engine.units import Outcome

HELD = []


@dataclass(frozen=True)
class HostileUnit:
    """A unit of work with a behaviour."""

    behaviour: str
    name: str
    size: int = 1000
    folder: str = ""
    isolated: bool = False


def behave(unit):  # noqa: PLR0912 - a branch a behaviour
    """Do as the unit says; well-behaved ones say that they are done."""
    if unit.behaviour == "segfault":
        ctypes.string_at(0)
    elif unit.behaviour == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif unit.behaviour == "hang":
        time.sleep(3600)
    elif unit.behaviour == "eat":
        held = []
        while True:
            held.append(bytearray(b"x" * 20_000_000))
            time.sleep(0.02)
    elif unit.behaviour == "memory error":
        raise MemoryError
    elif unit.behaviour == "input error":
        raise OSError(5, "Input/output error")
    elif unit.behaviour == "passing input error":
        flag = Path(unit.folder) / unit.name
        if not flag.exists():
            flag.touch()
            raise OSError(5, "Input/output error")
    elif unit.behaviour == "killed once":
        flag = Path(unit.folder) / unit.name
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    elif unit.behaviour == "pid":
        return Outcome(place=str(os.getpid()))
    elif unit.behaviour == "long":
        return Outcome(place="x" * 5_000_000)
    elif unit.behaviour == "hold":
        HELD.append(b"x" * 1_500_000_000)
    elif unit.behaviour == "nap":
        time.sleep(0.3)
    return Outcome(place=f"done {unit.name}")
