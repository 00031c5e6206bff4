"""Sequences that hold no items: each is made when it is asked for, and again the next time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class OnDemand(Sequence[T_co]):
    """A sequence whose items are made by :meth:`item`."""

    __slots__ = ()

    @abstractmethod
    def item(self, place: int) -> T_co:
        """Return the item at a place, 0 to the length without it."""

    @overload
    def __getitem__(self, place: int) -> T_co: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T_co]: ...
    def __getitem__(self, place: int | slice) -> T_co | Sequence[T_co]:
        places = range(len(self))[place]
        return self.item(places) if isinstance(places, int) else [self.item(number) for number in places]
