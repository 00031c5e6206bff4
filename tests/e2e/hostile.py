"""Units that do to a worker what a hostile shard would; importable by workers and by child processes."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from dataaudit.engine import cluster
from dataaudit.engine.plan import library_versions
from dataaudit.engine.runner import Outcome

HELD = []


@dataclass(frozen=True)
class HostileUnit:
    """A unit of work with a behaviour."""

    pieces = 1
    behaviour: str
    name: str
    size: int = 1000
    folder: str = ""
    isolated: bool = False


def _eat(_unit):
    held = []
    while True:
        held.append(bytearray(b"x" * 20_000_000))
        time.sleep(0.02)


def _raise(error):
    raise error


def _first_time(unit):
    """Return whether a unit is met for the first time, in whatever process."""
    flag = Path(unit.folder) / unit.name
    if flag.exists():
        return False
    flag.touch()
    return True


def _kill(_unit):
    os.kill(os.getpid(), signal.SIGKILL)


BEHAVIOURS = {
    "well": lambda _unit: None,
    "segfault": lambda _unit: ctypes.string_at(0),
    "kill": _kill,
    "hang": lambda _unit: time.sleep(3600),
    "eat": _eat,
    "memory error": lambda _unit: _raise(MemoryError()),
    "input error": lambda _unit: _raise(OSError(5, "Input/output error")),
    "passing input error": lambda unit: _raise(OSError(5, "Input/output error")) if _first_time(unit) else None,
    "killed once": lambda unit: _kill(unit) if _first_time(unit) else None,
    "pid": lambda _unit: str(os.getpid()),
    "long": lambda _unit: "x" * 5_000_000,
    "hold": lambda _unit: HELD.append(b"x" * 1_500_000_000),
    "nap": lambda _unit: time.sleep(0.3),
}
"""What a unit does, and what it answers; None for the usual answer."""


def behave(unit):
    """Do as the unit says; well-behaved ones say that they are done."""
    return Outcome(place=BEHAVIOURS[unit.behaviour](unit) or f"done {unit.name}")


def upgrade():
    """Let a library be another one in this process than it was, as far as dataaudit asks."""
    HELD.append(cluster.worker_versions)
    cluster.worker_versions = lambda: {**library_versions(), "numpy": "0.1"}
    cluster._met.clear()


def downgrade():
    """Let all be as before."""
    cluster.worker_versions = HELD.pop()
