"""What vitals leave in a loop: hooks that raise nothing and stay out of copies, and functions that are replaced.

All hooks of vitals are :class:`Hook` objects, on modules, parameters, optimizers and within wrapped functions. So there
is one guard. An error in a hook costs its number, is counted, and is named in the run log.

A function that others look up by name is replaced during a step. Two models may be measured in one process, and the
step that began first may end first: the function comes back when the last step has ended. Another function that is
registered meanwhile stays.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from dataaudit.base.errors import CatchErrors

Function = Callable[..., Any]
_SEE = "_dataaudit_see"
WATCHED = "_dataaudit_vitals"
"""Attribute of a model that is measured: its :class:`Mark`."""


@dataclass(slots=True)
class _Replaced:
    own: Function
    new: Function
    users: int = 0


_REPLACED: dict[tuple[int, str, object], _Replaced] = {}


def mapping_of(functions: Any, name: str) -> MutableMapping[str, Function]:
    """Return the mapping in which a name stands: registries of transformers have one of their own and a shared one.

    A replacement in another would hide what is registered later.
    """
    own: MutableMapping[str, Function] = getattr(functions, "_local_mapping", functions)
    return own if name in own else getattr(functions, "_global_mapping", own)


@contextmanager
def replaced(functions: MutableMapping[str, Function], name: str, see: Function) -> Iterator[None]:
    """Show ``see`` what a function is given, before it is called; once for all users of the same pair."""
    key = (id(functions), name, see)
    entry = _REPLACED.get(key)
    if entry is None or functions[name] is not entry.new:  # or another function was registered since
        own = functions[name]
        if getattr(own, _SEE, None) is see:  # of a step before, which somebody kept
            own = inspect.unwrap(own, stop=lambda item: getattr(item, _SEE, None) is not see)
        entry = _REPLACED[key] = _Replaced(own, _seeing(own, see))
        functions[name] = entry.new
    entry.users += 1
    try:
        yield
    finally:
        entry.users -= 1
        if not entry.users:
            if _REPLACED.get(key) is entry:
                del _REPLACED[key]
            if functions.get(name) is entry.new:
                functions[name] = entry.own


@functools.cache
def _seeing(own: Function, see: Function) -> Any:
    """Return always the same function for a pair: a compiler guards on it."""

    @functools.wraps(own)
    def function(*args: Any, **named: Any) -> Any:
        see(*args, **named)
        return own(*args, **named)

    setattr(function, _SEE, see)
    return function


class Opened(Protocol):
    """Says whether a step is open."""

    open: bool


def nothing(*_args: object, **_named: object) -> None:
    """Stand where a hook was, in a copy of a model."""


def _nothing() -> Callable[..., None]:
    return nothing


class Hook:
    """A hook of vitals.

    A compiler guards on whether the step is open: a pass outside of a step is compiled as it would be without vitals.
    """

    def __init__(self, call: Callable[..., None], failed: Callable[[str], None], step: Opened | None = None) -> None:
        self._call, self._failed, self._step = call, failed, step

    def __call__(self, *args: Any, **named: Any) -> None:
        """Do what the hook does, and raise nothing."""
        if self._step is not None and not self._step.open:
            return
        caught = _Traced() if torch.compiler.is_compiling() else CatchErrors()
        with caught:
            self._call(*args, **named)
        if caught.error is not None:
            with _Traced() if torch.compiler.is_compiling() else CatchErrors():
                self._failed(caught.origin)

    def __deepcopy__(self, memo: object) -> Callable[..., None]:
        return nothing

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return _nothing, ()


class Mark:
    """Says that a model is measured, and whether a step is open; None in a copy of it."""

    def __init__(self, step: Opened) -> None:
        self.step = step

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


@contextmanager
def unseen(model: torch.nn.Module) -> Iterator[None]:
    """Measure nothing of a model meanwhile: a probe's forward pass within a step is none of the step's."""
    marks = [vars(module).get(WATCHED) for module in model.modules()]
    steps = [mark.step for mark in marks if isinstance(mark, Mark) and mark.step.open]
    for step in steps:
        step.open = False
    try:
        yield
    finally:
        for step in steps:
            step.open = True


class _Traced:
    """``CatchErrors`` in words that a compiler understands: it has no frames to name a line by."""

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
