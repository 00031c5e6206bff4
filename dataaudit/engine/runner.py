"""What runs the units of a build: this process, or the workers of a Dask cluster. The rest of the engine knows no more.

Both turn whatever a unit does into an outcome: a unit that is a danger to its process (``isolated``) runs in a child
process, and one that has harmed its process before does so the next time. No number depends on which runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dataaudit.engine.units import Outcome, SecondPassUnit

_MIN_BYTES_PER_SECOND = 500_000


class Sized(Protocol):
    """A unit of work."""

    @property
    def name(self) -> str:
        """What names it from run to run, beside the kind of work."""
        ...

    @property
    def size(self) -> int:
        """Stored bytes."""
        ...

    @property
    def isolated(self) -> bool:
        """Whether it only ever runs in a child process."""
        ...


@runtime_checkable
class Together(Protocol):
    """Work that costs less for several units at once than for each alone, and gives the same."""

    def __call__(self, unit: Any, /) -> Outcome:
        """Do it for one unit."""
        ...

    def gains(self, unit: Any, /) -> bool:
        """Tell whether a unit costs less beside others."""
        ...

    def together(self, units: Sequence[Any], /) -> list[Outcome]:
        """Do it for several: all isolated, in a child process, or none of them."""
        ...


class Runner(Protocol):
    """Runs units, wherever."""

    notes: list[str]
    """What was met and survived."""

    @property
    def workers(self) -> int:
        """Worker processes; 0 when the work is done in this one."""
        ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where the work is done."""
        ...

    def run(
        self,
        name: str,
        function: Callable[[Any], Outcome],
        units: Sequence[Sized],
        on_outcome: Callable[[int, Outcome], bool],
    ) -> None:
        """Run every unit and report each outcome once, in any order.

        Args:
            name: Kind of the work.
            function: Picklable; applied to each unit. When it has a method ``finish``, that is called after some
                units with their outcomes, where they ran.
            units: What to do.
            on_outcome: Called with (index, outcome); returning False ends the run early.

        Raises:
            ClusterError: The work cannot be done here, through no shard's fault.
        """
        ...


def finish(function: Callable[[Any], Outcome], outcomes: Sequence[Outcome]) -> None:
    """Let a function put together what it left of some units, when it does that."""
    if (own := getattr(function, "finish", None)) is not None:
        own(outcomes)


def sizes_of(units: Sequence[Sized]) -> np.ndarray:
    """Return int64[n] stored bytes of each unit; a sequence that makes units when asked for them has these itself."""
    known: np.ndarray | None = getattr(units, "sizes", None)
    return np.fromiter((unit.size for unit in units), np.int64, len(units)) if known is None else known


def unit_limit(unit: Sized, unit_seconds: float) -> float:
    """Return the seconds that a unit may take."""
    more = unit.seconds if isinstance(unit, SecondPassUnit) else 0.0
    return unit_seconds + unit.size / _MIN_BYTES_PER_SECOND + more
