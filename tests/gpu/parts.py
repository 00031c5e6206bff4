"""The parts, the processes that share them, how long each may take, and what a row may say. Nothing needs torch."""

from __future__ import annotations

from typing import NamedTuple

OK, FAILED, NOT_EVALUATED, NOT_APPLICABLE = "ok", "failed", "not_evaluated", "not_applicable"
NO_TIME = "no time left"
NO_GPU, IN_ERROR = 2, 3
"""Exit codes of a process: there is no GPU; it does no more for the process, and another one goes on."""


class Part(NamedTuple):
    """A part of the check."""

    module: str
    function: str
    seconds: float
    """That it may take on an H100, compiling included; it is ended then."""
    alone: bool
    """Whether it measures time: it does so while no other process uses the device."""


PARTS = {
    "kernel": Part("kernel", "rows", 120, alone=False),
    "backends": Part("backends", "rows", 90, alone=False),
    "bits": Part("bits", "rows", 180, alone=False),
    "waits": Part("waits", "rows", 120, alone=False),
    "faults": Part("faults", "rows", 60, alone=False),
    "overhead": Part("overhead", "of_vitals", 260, alone=True),
    "monitor": Part("monitored", "rows", 90, alone=True),
    "other_ways": Part("overhead", "of_others", 160, alone=True),
    "one_billion": Part("overhead", "of_a_billion", 240, alone=True),
}
PROCESSES = (
    ("kernel", "backends"),
    ("bits",),
    ("waits", "faults"),
    ("overhead", "monitor", "other_ways", "one_billion"),
)
"""Parts that run one after another in a process; processes run beside each other. The last compiles what it times while
the others check, and times it when they have ended."""
DRY_PROCESSES = (tuple(part for some in PROCESSES[:-1] for part in some), PROCESSES[-1])
"""Of a dry run, where importing torch takes longer than most parts."""
