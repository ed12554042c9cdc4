"""The paper's sampler: online stochastic mirror descent (OSMD) on the clipped simplex."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from databazaar.errors import BazaarError
from databazaar.registry import MarketFacts
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers.protocol import Draws, Vector, Wants, among_affordable, draw_independently, refuse_non_finite
from databazaar.settings import check_settings, setting

FARTHEST = 1e300
"""Where the exponent of a step is cut off: a finite gain stays finite, and e^1e300 is beyond all others anyway."""


@dataclass(frozen=True)
class OSMD:
    """Asks those providers more often whose updates helped more, and lets no chance fall below α/n.

    Algorithm 1, lines 5, 8 and 9. The state is log p.
    `eta` is a rate per unit of utility: a utility that is ten times larger needs an eta ten times smaller. For a
    utility in [0, 1] `from_theory` chooses both.

    Departures from the paper: none in the step. A void reply counts as a gain of zero. Symmetry needs every
    tie to be broken alike, so draws invert the cumulated p instead of trusting a library's `choice`. Prices are
    looked at only when the rest of the budget does not pay for everybody any more: p is then p given that who
    is drawn is affordable, in the draws and in the estimate.

    >>> sampler, roster = OSMD(eta=1.0, alpha=0.1), Roster.equal(4)
    >>> state, round_budget = sampler.init(roster, budget=100, per_round=2), RoundBudget(100, roster.prices)
    >>> state = sampler.update(state, np.array([2, 2]), np.array([0.5, 0.5]), round_budget)
    >>> sampler.probabilities(state, round_budget).round(3)
    array([0.096, 0.096, 0.711, 0.096])
    """

    eta: float = setting(help="the learning rate per unit of utility", above=0, in_files=False)
    alpha: float = setting(help="the share of draws kept even over all", at_least=0, at_most=1, in_files=False)
    switches: int | None = setting(
        None, "from which theory gives eta and alpha: the changes of the best provider", at_least=1, in_files=False
    )
    kind: ClassVar[str] = "osmd"
    wants: ClassVar[Wants] = Wants()

    def __post_init__(self) -> None:
        check_settings(self, "sampler osmd")

    @classmethod
    def from_market(cls, given: Mapping[str, Any], market: MarketFacts) -> OSMD:
        """As market.toml has it: `eta` and `alpha` from theory."""
        return theory_for(market.budget, market.per_round, market.prices)

    @classmethod
    def from_theory(cls, providers: int, budget: int, per_round: int, switches: int = 1) -> OSMD:
        """α = √(n/B) and η = √(m log(nB)/(nT)), below Theorem 1; for utilities in [0, 1].

        `budget` counts accesses. `switches` is the theorem's m: against how many best providers, one after
        the other, the market is to hold its own. α is capped at 1, where fewer accesses than providers
        are bought.

        >>> OSMD.from_theory(providers=100, budget=5_000, per_round=10)
        OSMD(eta=0.0162..., alpha=0.1414..., switches=1)
        """
        rounds = budget // per_round if per_round else 0
        if rounds < 1 or providers < 1 or switches < 1:
            raise BazaarError(
                f"from_theory needs a budget of at least one round, a provider and a switch; got budget = "
                f"{budget}, per_round = {per_round}, providers = {providers}, switches = {switches}"
            )
        alpha = min(1.0, math.sqrt(providers / budget))
        eta = math.sqrt(switches * math.log(max(providers * budget, 2)) / (providers * rounds))
        return cls(eta=eta, alpha=alpha, switches=switches)

    def regret_bound(self, providers: int, budget: int, per_round: int) -> float | None:
        """Theorem 1: αB + ηnB/2 + mK log(n/α)/η. None where α = 0, for which it says nothing."""
        if self.alpha == 0:
            return None
        switches = self.switches or 1
        return (
            self.alpha * budget
            + self.eta * providers * budget / 2
            + switches * per_round * math.log(providers / self.alpha) / self.eta
        )

    def init(self, roster: Roster, budget: int, per_round: int) -> Vector:
        return np.full(len(roster), -math.log(len(roster)))

    def probabilities(self, state: Vector, round_budget: RoundBudget) -> Vector:
        p: Vector = np.exp(state)
        return among_affordable(np.maximum(p, self.alpha / len(p), out=p), round_budget)

    def exploration(self, round_budget: RoundBudget) -> Vector:
        """The money that a draw spends in the mean only to keep each provider explored."""
        return np.asarray(self.alpha / len(round_budget.quotes) * round_budget.quotes)

    def draw(self, state: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        return draw_independently(self.probabilities(state, round_budget), rng, size, round_budget)

    def update(self, state: Vector, draws: Draws, gains: Vector, round_budget: RoundBudget) -> Vector:
        """û_i = (times drawn)/(K p_i) · gain_i, then the mirror step. A sum over draws carries the multiplicity."""
        refuse_non_finite(gains)
        p_drawn = self.probabilities(state, round_budget)[draws]
        with np.errstate(over="ignore"):
            shifts = np.minimum(np.maximum(self.eta * gains / (len(draws) * p_drawn), -FARTHEST), FARTHEST)
        moved = state.copy()
        np.add.at(moved, draws, shifts)
        return project_clipped_simplex(moved, self.alpha)


def theory_for(budget: int, per_round: int, prices: Sequence[int], switches: int = 1) -> OSMD:
    """OSMD.from_theory, with the budget counted in accesses at the mean of the prices."""
    accesses = budget * len(prices) // max(1, sum(prices))
    return OSMD.from_theory(max(1, len(prices)), max(accesses, per_round), per_round, switches)


def project_clipped_simplex(log_weights: Vector, alpha: float) -> Vector:
    r"""Logarithm of the entropic projection of positive weights onto the clipped simplex.

    Solves, for weights y = exp(log_weights) (Algorithm 2; Lemma C.2 of the paper),

    .. math:: \min_{q} \sum_i q_i \log(q_i / y_i) \quad\text{s.t.}\quad \sum_i q_i = 1,\; q_i \ge \alpha/n.

    The solution puts the smallest weights at the floor α/n and scales the others by one common factor.
    With y sorted upwards, those from the first i with y_i (1 − (i−1)α/n) > (α/n) Σ_{j≥i} y_j on are scaled.
    Only where that threshold lies is needed, so the values are sorted and not the indices.

    Departures from the paper: weights are divided by the largest before `exp`, so that none overflows, and
    the result is returned as log q, so that with α = 0 a tiny probability is not lost as zero.

    >>> np.exp(project_clipped_simplex(np.log([0.7, 0.2, 0.1]), alpha=0.6)).round(3)
    array([0.6, 0.2, 0.2])
    """
    n = len(log_weights)
    relative: Vector = log_weights - np.maximum.reduce(log_weights)
    if alpha == 0:
        return np.asarray(relative - np.log(np.exp(relative).sum()))
    floor = alpha / n
    rising = relative.copy()
    rising.sort()
    np.exp(rising, out=rising)
    tails: Vector = rising[::-1].cumsum()[::-1]  # Σ_{j≥i} y_j, the large ones added first
    left_over: Vector = 1.0 - floor * np.arange(n, dtype=np.float64)  # 1 − (i−1)α/n for every i
    log_floor = np.log(floor)
    above = rising * left_over > floor * tails
    first = int(above.argmax())
    if not above[first]:  # only with α = 1: the clipped simplex is the uniform distribution alone
        return np.full(n, log_floor)
    relative += np.log(left_over[first]) - np.log(tails[first])
    np.maximum(relative, log_floor, out=relative)
    return relative
