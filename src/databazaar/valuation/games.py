"""Cooperative games: n players, and what every coalition of them is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.valuation.tally import Tally

Coalitions = NDArray[np.bool_]
"""One coalition per row, one player per column."""

Worth = Callable[[Coalitions], NDArray[np.float64]]


class Game:
    """Players and the worth of coalitions [m, n] → [m]. No coalition is ever worked out twice.

    `worth` is asked for at most `batch` coalitions at a time, each different from all before. `tally` counts them.

    >>> glove = Game(["left", "right", "right too"], lambda s: (s[:, 0] & s[:, 1:].any(1)).astype(float))
    >>> glove.value(np.array([[True, False, True], [False, True, True]]))
    array([1., 0.])
    >>> glove.tally.evaluations
    2
    """

    def __init__(self, players: Sequence[str], worth: Worth, *, batch: int = 1024, tally: Tally | None = None) -> None:
        if not players:
            raise BazaarError("a game needs at least one player")
        self.players = tuple(players)
        self.tally = tally or Tally()
        self._worth = worth
        self._batch = batch
        self._known: dict[bytes, float] = {}

    def value(self, coalitions: Coalitions) -> NDArray[np.float64]:
        keys = [row.tobytes() for row in np.packbits(coalitions, axis=1)]
        rows = {key: row for row, key in enumerate(keys) if key not in self._known}
        if rows:
            worths = self.fresh(coalitions[list(rows.values())])
            self._known.update(zip(rows, worths.tolist(), strict=True))
        return np.array([self._known[key] for key in keys])

    def know(self, coalitions: Coalitions, worths: NDArray[np.float64]) -> None:
        """Takes worths that were worked out elsewhere, and counts them."""
        keys = (row.tobytes() for row in np.packbits(coalitions, axis=1))
        self._known.update(zip(keys, worths.tolist(), strict=True))
        self.tally.evaluations += len(coalitions)

    def fresh(self, coalitions: Coalitions) -> NDArray[np.float64]:
        """`value` without the cache, for whoever asks for each coalition once."""
        parts = [coalitions[start : start + self._batch] for start in range(0, len(coalitions), self._batch)]
        worths = np.concatenate([np.asarray(self._worth(part), dtype=np.float64) for part in parts])
        if worths.shape != (len(coalitions),):
            raise BazaarError(f"the game's worth must be one number per coalition, not of shape {worths.shape}")
        if not np.isfinite(worths).all():
            members = [self.players[i] for i in np.flatnonzero(coalitions[~np.isfinite(worths)][0])]
            shown = ", ".join(members[:5]) + (" and others" if len(members) > 5 else "")
            raise BazaarError(
                f"the coalition of {shown or 'nobody'} has no finite utility: "
                "lower the steps, or look at these providers"
            )
        self.tally.evaluations += len(coalitions)
        return worths

    def table(self) -> NDArray[np.float64]:
        """The worths of all 2ⁿ coalitions; player i belongs to coalition number c where bit i of c is set."""
        n = len(self.players)
        bits = np.arange(2**n, dtype=np.uint32)[:, None] >> np.arange(n, dtype=np.uint32)
        coalitions = np.asarray(bits & 1 == 1)
        return self.value(coalitions) if self._known else self.fresh(coalitions)

    @property
    def everybody(self) -> Coalitions:
        return np.ones((1, len(self.players)), dtype=bool)

    @property
    def nobody(self) -> Coalitions:
        return np.zeros((1, len(self.players)), dtype=bool)
