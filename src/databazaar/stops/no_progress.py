"""A run whose model no longer gets better is only spending."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from databazaar.errors import BazaarError
from databazaar.stops.protocol import History


@dataclass(frozen=True)
class NoProgress:
    """Ends a run when the utility has risen by no more than `least` over the last `rounds` rounds.

    Single utilities are noisy, so means are compared: that of the last half of the window with that of the half before.
    The utility is measured on one hold-out, so what looks like progress may be chance; `least` is yours to set.

    >>> from databazaar.roster import Purse, Roster
    >>> purse = Purse(100, Roster.equal(3).prices)
    >>> NoProgress(rounds=4).reason(History(5, [0.1, 0.3, 0.4, 0.5, 0.4, 0.6], 0, purse, 2))
    >>> NoProgress(rounds=4).reason(History(5, [0.1, 0.6, 0.5, 0.6, 0.4, 0.6], 0, purse, 2))
    'the utility changed by -0.05 over the last 4 rounds, and more than +0 was wanted'
    """

    rounds: int = 20
    least: float = 0.0
    kind: ClassVar[str] = "no-progress"

    def __post_init__(self) -> None:
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 2:
            raise BazaarError(f"stop no-progress: rounds = {self.rounds!r} must be a whole number of at least 2")
        if isinstance(self.least, bool) or not isinstance(self.least, int | float) or not math.isfinite(self.least):
            raise BazaarError(f"stop no-progress: least = {self.least!r} must be a number")

    def reason(self, history: History) -> str | None:
        half = self.rounds // 2
        window = history.utilities[-2 * half :]
        if history.rounds < self.rounds or len(window) < 2 * half:
            return None
        risen = (math.fsum(window[half:]) - math.fsum(window[:half])) / half
        if risen > self.least:
            return None
        wanted = f"more than {self.least:+g} was wanted"
        return f"the utility changed by {risen:+.3g} over the last {self.rounds} rounds, and {wanted}"
