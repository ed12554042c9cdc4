"""The end of every run: the money is spent, or nobody is left who can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.roster import Purse
from databazaar.stops.protocol import History

SPENT = "the budget is spent"
"""The reason of a run that ended as runs do."""


@dataclass(frozen=True)
class Budget:
    """Ends a run when nobody can be asked any more. Every run has it.

    With one price for all, no caps or limits, and a sampler that fills its rounds, that is Algorithm 1's T = ⌊B/K⌋: a
    rest that buys no whole round goes back. Otherwise the run goes on while anybody is available, and a round that does
    not fit is shortened to what does. A price that falls in a later round is not waited for: rounds are counted as they
    are played.

    >>> purse = Purse(100, np.array([2, 3, 9]), np.array([0, 0, 5]), most_per_access=5)
    >>> Budget().reason(History(7, (), 0, purse, per_round=2))
    'nobody can be asked any more (2 of 3 providers used up, 1 above the most per access)'
    """

    kind: ClassVar[str] = "budget"

    def reason(self, history: History) -> str | None:
        purse = history.purse
        cheapest, dearest = int(purse.quotes.min()), int(purse.quotes.max())
        whole = cheapest == dearest and purse.unlimited and not history.shortens
        needed = cheapest * history.per_round if whole else cheapest
        if purse.left < needed:
            return SPENT
        return None if purse.anybody else f"nobody can be asked any more ({_who_cannot(purse)})"


def _who_cannot(purse: Purse) -> str:
    """How many cannot be asked for which reason, each counted once."""
    parts: list[str] = []
    rest = np.ones(len(purse.quotes), bool)
    reasons = {
        "used up": ~rest if purse.accesses_left is None else purse.accesses_left <= 0,
        "above the most per access": ~rest if purse.most_per_access is None else purse.quotes > purse.most_per_access,
        "above the most per round": ~rest if purse.most_per_round is None else purse.quotes > purse.most_per_round,
        "above what is left": purse.quotes > purse.left,
    }
    for reason, holds in reasons.items():
        if (rest & holds).any():
            whole = "" if parts else f" of {len(rest)} provider{'' if len(rest) == 1 else 's'}"
            parts.append(f"{(rest & holds).sum()}{whole} {reason}")
        rest &= ~holds
    return ", ".join(parts)
