"""What a provider remembers between two questions, for each run or schema that asks: never more than there is room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

MOST = 32
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The values that were used last: so many of them and so many bytes, but always the very last.

    >>> kept = Recent[str, int](most=2)
    >>> kept.put("a", 1), kept.put("b", 2), kept.get("a"), kept.put("c", 3)
    (None, None, 1, None)
    >>> kept.get("a"), kept.get("b"), kept.get("c")
    (1, None, 3)
    """

    def __init__(self, most: int = MOST, most_bytes: int = 2**30) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put(self, key: Key, value: Value, size: int = 0) -> None:
        """Keeps a value of so many bytes, and lets go of those that were not used for longest."""
        self._kept[key] = value, size
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and self._too_much():
            self._kept.popitem(last=False)

    def _too_much(self) -> bool:
        return len(self._kept) > self._most or sum(size for _, size in self._kept.values()) > self._most_bytes
