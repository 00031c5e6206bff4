"""Lazy sequences: an item is made when it is read, and again the next time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
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
