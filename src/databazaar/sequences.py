"""Long sequences whose items are made when somebody looks at them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

Item = TypeVar("Item")


class OnDemand(Sequence[Item]):
    """A sequence that makes each item anew. Write `__len__` and `_item`, whose places are from 0 to before the end.

    A slice is a tuple, and so it equals a tuple or a list of the same items.
    """

    @abstractmethod
    def _item(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: int) -> Item: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Item, ...]: ...

    def __getitem__(self, place: int | slice) -> Item | tuple[Item, ...]:
        places = range(len(self))[place]
        return self._item(places) if isinstance(places, int) else tuple(map(self._item, places))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OnDemand | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(one == its for one, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]
