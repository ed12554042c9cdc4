"""What everybody has earned up to a round, for those who listen to a run: kept once, not copied every round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class PaySoFar(Mapping[str, int]):
    """A value like a dict that nobody changes. All that came from one share a dict, which stands at the latest; an
    earlier one knows what the next has changed.

    >>> first = PaySoFar({"north": 2})
    >>> later = first.after({"north": 5, "south": 1})
    >>> dict(first), dict(later)
    ({'north': 2}, {'north': 5, 'south': 1})
    """

    def __init__(self, pay: dict[str, int]) -> None:
        self._latest = pay
        self._next: tuple[PaySoFar, dict[str, int | None]] | None = None

    def after(self, changes: Mapping[str, int]) -> PaySoFar:
        """The same with these amounts instead. Only the latest can go on."""
        assert self._next is None
        later = PaySoFar(self._latest)
        self._next = later, {who: self._latest.get(who) for who in changes}
        self._latest.update(changes)
        return later

    def __getitem__(self, who: str) -> int:
        at = self
        while at._next is not None:
            at, before = at._next
            if who in before:
                found = before[who]
                if found is None:
                    raise KeyError(who)
                return found
        return self._latest[who]

    def _whole(self) -> dict[str, int]:
        changed, at = dict[str, int | None](), self
        while at._next is not None:
            at, before = at._next
            changed = {**before, **changed}
        now = {who: changed.get(who, amount) for who, amount in self._latest.items()}
        return {who: amount for who, amount in now.items() if amount is not None}

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._latest) if self._next is None else len(self._whole())

    def __repr__(self) -> str:
        return repr(self._whole())

    def __reduce__(self) -> tuple[type[PaySoFar], tuple[dict[str, int]]]:
        """A copy, or one that is sent elsewhere, knows nothing of later ones."""
        return PaySoFar, (self._whole(),)
