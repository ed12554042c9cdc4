"""The end of every run: the money is spent, or nobody is left who can be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.codes import Code
from databazaar.roster import RoundBudget
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

    >>> round_budget = RoundBudget(100, np.array([2, 3, 9]), np.array([0, 0, 5]), most_per_access=5)
    >>> str(Budget().reason(History(7, (), 0, round_budget, per_round=2)))
    'nobody can be asked any more (2 of 3 providers used up, 1 above the most per access)'
    """

    kind: ClassVar[str] = "budget"

    def reason(self, history: History) -> Code | None:
        round_budget = history.round_budget
        cheapest, dearest = int(round_budget.quotes.min()), int(round_budget.quotes.max())
        whole = cheapest == dearest and round_budget.unlimited and not history.shortens
        needed = cheapest * history.per_round if whole else cheapest
        if round_budget.left < needed:
            return SPENT
        return None if round_budget.anybody else Code.of("nobody-can-be-asked", **_who_cannot(round_budget))


def _who_cannot(round_budget: RoundBudget) -> dict[str, int]:
    """How many there are, and how many of them cannot be asked for which reason, each counted once."""
    rest = np.ones(len(round_budget.quotes), bool)
    reasons = {
        "used_up": ~rest if round_budget.accesses_left is None else round_budget.accesses_left <= 0,
        "above_access": ~rest
        if round_budget.most_per_access is None
        else round_budget.quotes > round_budget.most_per_access,
        "above_round": ~rest
        if round_budget.most_per_round is None
        else round_budget.quotes > round_budget.most_per_round,
        "above_left": round_budget.quotes > round_budget.left,
    }
    found = {"providers": len(rest)}
    for reason, holds in reasons.items():
        if (rest & holds).any():
            found[reason] = int((rest & holds).sum())
        rest &= ~holds
    return found
