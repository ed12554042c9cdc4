"""The end of every run: the money is spent, or nobody is left who can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.codes import Code
from databazaar.roster import Purse
from databazaar.stops.protocol import History

SPENT = Code("budget-spent")
"""The reason of a run that ended as runs do."""


@dataclass(frozen=True)
class Budget:
    """Ends a run when nobody can be asked any more. Every run has it.

    With one price for all, no caps or limits, and a sampler that fills its rounds, that is Algorithm 1's T = ⌊B/K⌋: a
    rest that buys no whole round goes back. Otherwise the run goes on while anybody is available, and a round that does
    not fit is shortened to what does. A price that falls in a later round is not waited for: rounds are counted as they
    are played.

    >>> purse = Purse(100, np.array([2, 3, 9]), np.array([0, 0, 5]), most_per_access=5)
    >>> str(Budget().reason(History(7, (), 0, purse, per_round=2)))
    'nobody can be asked any more (2 of 3 providers used up, 1 above the most per access)'
    """

    kind: ClassVar[str] = "budget"

    def reason(self, history: History) -> Code | None:
        purse = history.purse
        cheapest, dearest = int(purse.quotes.min()), int(purse.quotes.max())
        whole = cheapest == dearest and purse.unlimited and not history.shortens
        needed = cheapest * history.per_round if whole else cheapest
        if purse.left < needed:
            return SPENT
        return None if purse.anybody else Code.of("nobody-can-be-asked", **_who_cannot(purse))


def _who_cannot(purse: Purse) -> dict[str, int]:
    """How many there are, and how many of them cannot be asked for which reason, each counted once."""
    rest = np.ones(len(purse.quotes), bool)
    reasons = {
        "used_up": ~rest if purse.accesses_left is None else purse.accesses_left <= 0,
        "above_access": ~rest if purse.most_per_access is None else purse.quotes > purse.most_per_access,
        "above_round": ~rest if purse.most_per_round is None else purse.quotes > purse.most_per_round,
        "above_left": purse.quotes > purse.left,
    }
    found = {"providers": len(rest)}
    for reason, holds in reasons.items():
        if (rest & holds).any():
            found[reason] = int((rest & holds).sum())
        rest &= ~holds
    return found
