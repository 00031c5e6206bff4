"""What vitals leave in a loop: hooks that raise nothing, do nothing outside of a step, and stay out of copies.

All hooks of vitals are :class:`Hook` objects, on modules, parameters, optimizers and within wrapped functions. So there
is one guard. An error in one costs its number, is counted, and is named in the run log.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from dataaudit.guarded import Guarded


class Opened(Protocol):
    """Says whether a step is open."""

    open: bool


class Always:
    """Stands for a step where a hook sees to that itself."""

    open = True


def nothing(*_args: object, **_named: object) -> None:
    """Stand where a hook was, in a copy of a model."""


def _nothing() -> Callable[..., None]:
    return nothing


def _none() -> None:
    return None


class Hook:
    """A hook of vitals.

    A compiler guards on whether the step is open: a pass outside of a step is compiled as it would be without vitals.

    Args:
        call: What it does.
        failed: Called with the error's class, file and line where that raises.
        step: Says whether anything is to be done.
    """

    def __init__(self, call: Callable[..., None], failed: Callable[[str], None], step: Opened | None = None) -> None:
        self._call, self._failed, self._step = call, failed, step or Always()

    def __call__(self, *args: Any, **named: Any) -> None:
        """Do what the hook does, and raise nothing."""
        if not self._step.open:
            return
        caught = _Traced() if torch.compiler.is_compiling() else Guarded()
        with caught:
            self._call(*args, **named)
        if caught.error is not None:
            with _Traced() if torch.compiler.is_compiling() else Guarded():
                self._failed(caught.origin)

    def __deepcopy__(self, memo: object) -> Callable[..., None]:
        return nothing

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return _nothing, ()


class Mark:
    """What says that a model is looked at; None in a copy of it."""

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _none, ()


class _Traced:
    """``Guarded`` in words that a compiler understands: it has no frames to name a line by."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.origin = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error, self.origin = error, type(error).__name__
        return True
