"""A function that others look up by name, replaced while anybody looks at what it is given: during a step.

Two models may be looked at in one process, and whose step began first may end first: the function of its own comes back
when the last one has ended, not before. Who registers another function meanwhile keeps it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]
_SEE = "_dataaudit_see"


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
    own = getattr(functions, "_local_mapping", functions)
    found: MutableMapping[str, Function] = own if name in own else getattr(functions, "_global_mapping", own)
    return found


@contextmanager
def replaced(functions: MutableMapping[str, Function], name: str, see: Function) -> Iterator[None]:
    """Show ``see`` what a function is given, before it is called; once for all who ask for the same.

    Args:
        functions: Functions by name: a registry, or the namespace of a module.
        name: Which one.
        see: Called with the arguments of the function; it must not raise.

    Raises:
        KeyError: There is none of that name.
    """
    key = (id(functions), name, see)
    held = _REPLACED.get(key)
    if held is None or functions[name] is not held.new:  # or somebody has registered another one since
        own = functions[name]
        if getattr(own, _SEE, None) is see:  # of a step before, which somebody kept
            own = inspect.unwrap(own, stop=lambda one: getattr(one, _SEE, None) is not see)
        held = _REPLACED[key] = _Replaced(own, _seeing(own, see))
        functions[name] = held.new
    held.users += 1
    try:
        yield
    finally:
        held.users -= 1
        if not held.users:
            if _REPLACED.get(key) is held:
                del _REPLACED[key]
            if functions.get(name) is held.new:
                functions[name] = held.own


@functools.cache
def _seeing(own: Function, see: Function) -> Any:
    """Return the same function for the same one: a compiler guards on it."""

    @functools.wraps(own)
    def function(*args: Any, **named: Any) -> Any:
        see(*args, **named)
        return own(*args, **named)

    setattr(function, _SEE, see)
    return function
