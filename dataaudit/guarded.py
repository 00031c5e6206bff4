"""Guarded: calls of libraries that are not ours, whose errors have no common root and may quote what was read."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self


class Guarded:
    """Context of a call that may fail in any way: an error ends the block and becomes a value.

    Which classes a library raises depends on its version and on the bytes that it was given, and an error's text may
    hold a document, a password or an address with its signature. So none is listed, none is shown, and what is known
    of one is its class and the line of code that raised it. Ctrl-C and other exceptions that are no errors pass.

    ::

        with Guarded(MemoryError) as call:
            model = library.load(path)
        if call.error is not None:
            raise DetectorError(f"the model cannot be loaded ({call.kind})")

    Args:
        passing: Errors that mean something to the caller and are raised as they are.
    """

    __slots__ = ("_passing", "error", "kind", "origin")

    def __init__(self, *passing: type[Exception]) -> None:
        self._passing = passing
        self.error: Exception | None = None
        """What was raised, without its traceback, whose frames would keep the document alive; None when all went well.
        Its text is not for messages."""
        self.kind = ""
        """Name of its class."""
        self.origin = ""
        """Name of its class, file and line."""

    def __enter__(self) -> Self:
        """Begin the call."""
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        """Keep an error; let pass what is none or was named."""
        if not isinstance(error, Exception) or isinstance(error, self._passing):
            return False
        self.kind, self.origin = type(error).__name__, _origin(error)
        self.error = error.with_traceback(None)
        return True


def _origin(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}"
