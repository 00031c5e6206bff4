"""Lazy sequences, whose items are made when they are read, and lazy names, which are imported when they are used."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class LazySequence(Sequence[T_co]):
    """A sequence whose items are made by :meth:`item`."""

    __slots__ = ()

    @abstractmethod
    def item(self, place: int) -> T_co:
        """Return the item of an index, 0 or more."""

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        chosen = range(len(self))[index]
        return self.item(chosen) if isinstance(chosen, int) else [self.item(number) for number in chosen]


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose names, by module, are imported when first used."""
    modules = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> object:
        if name not in modules:  # Python names the nearest of __dir__
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return get, lambda: sorted(modules)
