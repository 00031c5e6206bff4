"""A function that others look up by name, replaced while anybody looks at what it is given.

Two models may be looked at in one process, and who began first may end first, or be forgotten and collected at any
time: the function of its own comes back when the last one has ended, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


@dataclass(slots=True)
class _Replaced:
    own: Function
    new: Function
    users: int = 0


_REPLACED: dict[tuple[int, str, object], _Replaced] = {}


@contextmanager
def replaced(
    functions: MutableMapping[str, Function], name: str, by: object, make: Callable[[Function], Function]
) -> Iterator[None]:
    """Have ``make(own)`` in the place of a function, once for all who ask for the same.

    Args:
        functions: Functions by name: a registry, or the namespace of a module.
        name: Which one.
        by: What tells replacements from others: the same function is replaced once.
        make: Gets the function of its own and returns what takes its place.

    Raises:
        KeyError: There is none of that name.
    """
    key = (id(functions), name, by)
    held = _REPLACED.get(key)
    if held is None or functions[name] is not held.new:  # or somebody has registered another one since
        own = functions[name]
        held = _REPLACED[key] = _Replaced(own, make(own))
        functions[name] = held.new
    held.users += 1
    try:
        yield
    finally:
        held.users -= 1
        if not held.users:
            if _REPLACED.get(key) is held:
                del _REPLACED[key]
            if functions[name] is held.new:
                functions[name] = held.own
