"""Whether a stop keeps its promises: one call, clear complaints."""

from __future__ import annotations

import numpy as np

from databazaar.codes import Code
from databazaar.conformance import require, require_rebuilt
from databazaar.roster import Roster, RoundBudget
from databazaar.stops.protocol import STOPS, History, Stop


def check_stop(stop: Stop, *, rounds: int = 60) -> None:
    """Shows the stop random histories and raises AssertionError at the first broken promise.

    >>> from databazaar import TargetUtility
    >>> check_stop(TargetUtility(0.9))
    """
    require_rebuilt(STOPS, stop)
    rng = np.random.default_rng(0)
    prices = Roster.equal(4, price=3).prices
    for rate in (0.0, 0.01, 0.2):
        utilities: list[float] = []
        for played in range(rounds):
            round_budget = RoundBudget(6 * (rounds - played), prices)
            history = History(played, tuple(utilities), int(rng.integers(0, played + 1)), round_budget, per_round=2)
            reason = stop.reason(history)
            require(reason is None or isinstance(reason, Code), f"a reason is a Code, and not {reason!r}")
            require(reason == stop.reason(history), "reason must be a pure function of the history")
            last = utilities[-1] if utilities else float(rng.random())
            utilities += [] if utilities else [last]
            utilities.append(last + rate * (1 - last) + float(rng.normal(scale=0.01)))
