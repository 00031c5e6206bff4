"""What a check is: a function that returns what it saw, or raises; and the row that becomes of it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from .parts import FAILED, NOT_APPLICABLE, NOT_EVALUATED, OK

ON_A_CPU = "a dry run on a CPU: the steps ran, what they show is a GPU's alone"
_TRACE_CHARACTERS = 2_000


class NotEvaluated(Exception):
    """Why a check cannot say anything."""


class NotApplicable(Exception):
    """Why there is nothing to check: a limit that the documentation names, or a back end that refuses."""


class DeviceInErrorState(Exception):
    """The device refuses all further work of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table."""

    part: str
    check: str
    status: str
    detail: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    trace: str = ""
    """Of a failure: the end of its traceback."""

    def line(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"


@dataclass(slots=True, kw_only=True)
class Machine:
    """Where the checks run.

    Args:
        dry: Whether this is a dry run: everything small, on the CPU.
        folder: For what checks write; all processes share it, and it is removed afterwards.
        deadline: When all has to be done, in seconds of ``time.monotonic``.
    """

    dry: bool
    folder: Path
    deadline: float
    shared: dict[str, Any] = field(default_factory=dict)
    """What a part leaves to a later one of its process."""

    @property
    def device(self) -> torch.device:
        """The device that is checked."""
        return torch.device("cpu" if self.dry else "cuda")

    @property
    def compiler(self) -> str:
        """What compiles models; in a dry run the half of inductor that needs no compiler of C++."""
        return "aot_eager" if self.dry else "inductor"

    def left(self) -> float:
        """Return how many seconds are left."""
        return self.deadline - time.monotonic()

    @contextlib.contextmanager
    def busy(self, *, alone: bool) -> Iterator[None]:
        """Use the device: beside the other processes, or when none of them does."""
        with (self.folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield

    def allocated(self) -> int:
        """Return the bytes of the GPU that tensors of this process hold; 0 without a GPU."""
        return 0 if self.dry else torch.cuda.memory_allocated()

    def attempt(self, part: str, check: str, function: Callable[..., Any], *given: Any, **named: Any) -> Row:
        """Run a check and return its row; ``function`` returns words, or words and numbers.

        Raises:
            DeviceInErrorState: The device does no more for this process; the row is its argument.
        """
        began, trace = time.monotonic(), ""
        numbers: dict[str, float] = {}
        try:
            found = function(*given, **named)
            detail, numbers = found if isinstance(found, tuple) else (found, {})
            status = OK
        except NotEvaluated as error:
            status, detail = NOT_EVALUATED, str(error)
        except NotApplicable as error:
            status, detail = NOT_APPLICABLE, str(error)
        except Exception as error:  # noqa: BLE001 - whatever fails is a row, and the next check runs
            status, detail = FAILED, first_line(error)
            trace = "".join(traceback.format_exception(error))[-_TRACE_CHARACTERS:]
        finally:
            if not self.dry:
                torch.cuda.set_sync_debug_mode("default")
        row = Row(
            part=part,
            check=check,
            status=status,
            detail=detail or "",
            numbers=numbers,
            seconds=round(time.monotonic() - began, 2),
            trace=trace,
        )
        if status == FAILED and not self.dry:
            try:
                torch.cuda.synchronize()
            except Exception as error:
                raise DeviceInErrorState(row) from error
        return row


def first_line(error: BaseException) -> str:
    """Return an error's class and what it says first, in a line that a table has room for."""
    text = next((one.strip() for one in str(error).splitlines() if one.strip()), "")
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__


@contextlib.contextmanager
def no_waits(machine: Machine) -> Iterator[None]:
    """Refuse whatever waits for the device; on a CPU nothing does, and nothing is refused."""
    if machine.dry:
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
