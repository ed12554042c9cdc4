"""Cooperative games: n players, and what every coalition of them is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.valuation.result import Tally

Coalitions = NDArray[np.bool_]
"""One coalition per row, one player per column."""

Vector = NDArray[np.float64]
Keys = NDArray[Any]
Worth = Callable[[Coalitions], Vector]

TABLE_PLAYERS = 16
"""Up to so many players, worths stand in a table of 2ⁿ places; beyond, in a dictionary."""


class Game:
    """Players and the worth of coalitions [m, n] → [m]. No coalition is ever worked out twice.

    `worth` is asked for at most `batch` coalitions at a time, each different from all before. `tally` counts them.

    >>> glove = Game(["left", "right", "right too"], lambda s: (s[:, 0] & s[:, 1:].any(1)).astype(float))
    >>> glove.value(np.array([[True, False, True], [False, True, True]]))
    array([1., 0.])
    >>> glove.tally.utility_evaluations
    2
    """

    def __init__(self, players: Sequence[str], worth: Worth, *, batch: int = 1024, tally: Tally | None = None) -> None:
        if not players:
            raise BazaarError("a game needs at least one player")
        self.players = tuple(players)
        self.tally = tally or Tally()
        self._worth = worth
        self._batch = batch
        self._known = KnownTable(len(players)) if len(players) <= TABLE_PLAYERS else KnownDictionary()

    def value(self, coalitions: Coalitions) -> Vector:
        keys = self._known.keys(coalitions)
        fresh = self._known.first_unknown(keys)
        if len(fresh):
            self._known.put(keys[fresh], self._work_out(coalitions[fresh]))
        return self._known.get(keys)

    def value_along(self, orders: NDArray[np.int64]) -> Vector:
        """The worths of nobody, of each order's first player, of its first two, …: [P, n + 1] for orders [P, n]."""
        count, n = orders.shape
        if isinstance(self._known, KnownTable):  # the coalitions themselves need not be written out
            keys = np.zeros((count, n + 1), dtype=np.int64)
            np.cumsum(1 << orders, axis=1, out=keys[:, 1:])
            unknown = np.isnan(self._known.get(keys))
            if unknown.any():
                fresh = np.unique(keys[unknown])
                self._known.put(fresh, self._work_out(all_coalitions(n)[fresh]))
            return self._known.get(keys)
        joined = np.argsort(orders, axis=1)[:, None, :] < np.arange(n + 1)[:, None]
        return self.value(joined.reshape(-1, n)).reshape(count, n + 1)

    def know(self, coalitions: Coalitions, worths: Vector) -> None:
        """Takes worths that were worked out, and counted, elsewhere. One that is not finite is not known."""
        fine = np.isfinite(worths)
        if not fine.all():
            coalitions, worths = coalitions[fine], worths[fine]
        self._known.put(self._known.keys(coalitions), worths)

    def _work_out(self, coalitions: Coalitions) -> Vector:
        parts = [coalitions[start : start + self._batch] for start in range(0, len(coalitions), self._batch)]
        worths = np.concatenate([np.asarray(self._worth(part), dtype=np.float64) for part in parts])
        return self._checked(coalitions, worths)

    def _checked(self, coalitions: Coalitions, worths: Vector) -> Vector:
        """Counts worths that were worked out, and refuses them where one is not a finite number."""
        if worths.shape != (len(coalitions),):
            raise BazaarError(f"the game's worth must be one number per coalition, not of shape {worths.shape}")
        if not np.isfinite(worths).all():
            members = [self.players[i] for i in np.flatnonzero(coalitions[~np.isfinite(worths)][0])]
            shown = ", ".join(members[:5]) + (" and others" if len(members) > 5 else "")
            raise BazaarError(
                f"the coalition of {shown or 'nobody'} has no finite utility: "
                "lower the steps, or look at these providers"
            )
        self.tally.utility_evaluations += len(coalitions)
        return worths

    def table(self) -> Vector:
        """The worths of all 2ⁿ coalitions; player i belongs to coalition number c where bit i of c is set."""
        coalitions = all_coalitions(len(self.players))
        return self.value(coalitions) if self._known else self._work_out(coalitions)

    @property
    def everybody(self) -> Coalitions:
        return np.ones((1, len(self.players)), dtype=bool)

    @property
    def nobody(self) -> Coalitions:
        return np.zeros((1, len(self.players)), dtype=bool)


def all_coalitions(players: int) -> Coalitions:
    """All 2ⁿ of them, number c with player i where bit i of c is set."""
    return _few_coalitions(players) if players <= TABLE_PLAYERS else _coalitions(players)


def is_everything(coalitions: Coalitions) -> bool:
    """Whether these are all coalitions of a few players, as `all_coalitions` gives them."""
    n = coalitions.shape[1]
    return n <= TABLE_PLAYERS and coalitions is _few_coalitions(n)


def _coalitions(players: int) -> Coalitions:
    bits = np.arange(2**players, dtype=np.uint32)[:, None] >> np.arange(players, dtype=np.uint32)
    return np.asarray(bits & 1 == 1)


_few_coalitions = lru_cache(maxsize=TABLE_PLAYERS)(_coalitions)


class KnownTable:
    """Worths by the number of the coalition, as in `all_coalitions`; NaN where it is not known."""

    def __init__(self, players: int) -> None:
        self._bits = 1 << np.arange(players)
        self._worths = np.full(2**players, np.nan)
        self._some = False

    def __bool__(self) -> bool:
        return self._some

    def keys(self, coalitions: Coalitions) -> Keys:
        if is_everything(coalitions):
            return np.arange(len(coalitions))
        return coalitions @ self._bits

    def first_unknown(self, keys: Keys) -> NDArray[np.int64]:
        """The rows of coalitions that are not known, each coalition once."""
        rows = np.flatnonzero(np.isnan(self._worths[keys]))
        if not len(rows):
            return rows
        return rows[np.sort(np.unique(keys[rows], return_index=True)[1])]

    def put(self, keys: Keys, worths: Vector) -> None:
        self._worths[keys] = worths
        self._some = True

    def get(self, keys: Keys) -> Vector:
        return self._worths[keys]


class KnownDictionary:
    """Worths by the coalition's bits, for many players."""

    def __init__(self) -> None:
        self._worths: dict[bytes, float] = {}

    def __bool__(self) -> bool:
        return bool(self._worths)

    def keys(self, coalitions: Coalitions) -> Keys:
        return np.array([row.tobytes() for row in np.packbits(coalitions, axis=1)], dtype=object)

    def first_unknown(self, keys: Keys) -> NDArray[np.int64]:
        rows: dict[bytes, int] = {}
        for row, key in enumerate(keys):
            if key not in self._worths:
                rows.setdefault(key, row)
        return np.array(list(rows.values()), dtype=np.int64)

    def put(self, keys: Keys, worths: Vector) -> None:
        self._worths.update(zip(keys, worths.tolist(), strict=True))

    def get(self, keys: Keys) -> Vector:
        return np.array([self._worths[key] for key in keys])
