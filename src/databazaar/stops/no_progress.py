"""Ends a run whose model no longer gets better beyond chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from databazaar.codes import Code
from databazaar.settings import check_settings, setting
from databazaar.stops.protocol import History


@dataclass(frozen=True)
class NoProgress:
    """Ends a run when what the utility has risen by over the last `rounds` rounds cannot be told from chance.

    A line is laid through the utilities of the window (least squares). Its rise must exceed `least` by `errors` of its
    own standard errors, or the run ends. Utilities that follow each other are alike, which makes a line look surer
    than it is: with ρ the correlation of neighbouring residuals, n of them count as n(1 − ρ)/(1 + ρ).

    What it cannot know: all utilities come from one hold-out, so a rise that is sure there may be smaller elsewhere;
    and a run that is asked after every round whether it still rises will sometimes be stopped by bad luck. A longer
    window is slower to stop and less often wrong.

    >>> from databazaar.roster import RoundBudget, Roster
    >>> round_budget, flat = RoundBudget(100, Roster.equal(3).prices), [0.70, 0.71, 0.69, 0.70, 0.72, 0.70, 0.69, 0.71]
    >>> rising = [u + 0.02 * t for t, u in enumerate(flat)]
    >>> NoProgress(rounds=6).reason(History(7, rising, 0, round_budget, 2))
    >>> str(NoProgress(rounds=6).reason(History(7, flat, 0, round_budget, 2)))
    'over the last 6 rounds the utility changed by +0 ± 0.0138, which is not progress beyond chance'
    """

    rounds: int = setting(
        30, "the rounds through whose utilities a line is laid", at_least=4, at_most=10**9, in_files=False
    )
    least: float = setting(0.0, "the rise of that line that must be exceeded", in_files=False)
    errors: float = setting(
        1.0, "by how many of its own standard errors it must be exceeded", at_least=0, in_files=False
    )
    kind: ClassVar[str] = "no-progress"

    def __post_init__(self) -> None:
        check_settings(self, "stop no-progress")

    def reason(self, history: History) -> Code | None:
        window = history.utilities[-(self.rounds + 1) :]
        if history.rounds < self.rounds or len(window) < self.rounds + 1:
            return None
        risen, error = rise(window)
        if risen > self.least + self.errors * error:
            return None
        figures = {"risen": float(f"{risen:.3g}"), "error": float(f"{error:.3g}"), "least": self.least}
        return Code.of("no-progress", rounds=self.rounds, **figures)


def rise(utilities: Sequence[float]) -> tuple[float, float]:
    """How far the line through these utilities rises from the first to the last, and its standard error."""
    n = len(utilities)
    middle, mean = (n - 1) / 2, math.fsum(utilities) / n
    spread = math.fsum((t - middle) ** 2 for t in range(n))
    slope = math.fsum((t - middle) * (u - mean) for t, u in enumerate(utilities)) / spread
    residuals = [u - mean - slope * (t - middle) for t, u in enumerate(utilities)]
    square = math.fsum(r * r for r in residuals)
    if square == 0:
        return slope * (n - 1), 0.0
    neighbours = math.fsum(a * b for a, b in pairwise(residuals)) / square
    likeness = min(0.9, max(0.0, neighbours))
    counted = max(3.0, n * (1 - likeness) / (1 + likeness))
    return slope * (n - 1), math.sqrt(square / (counted - 2) / spread) * (n - 1)
