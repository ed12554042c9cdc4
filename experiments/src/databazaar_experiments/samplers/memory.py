"""A sampler without a rate to tune: it remembers how much better than the others each provider has been."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.errors import BazaarError
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers.protocol import Draws, Vector, Wants, among_affordable, refuse_non_finite
from databazaar_experiments.samplers.log_mean import log_mean

FADE = 0.9
"""What a round leaves of the log-weights before it adds to them: the past counts, and the recent past more."""
STEP, LONGEST = 0.25, 2.0
"""How far a log-weight follows an advantage in a round, and the farthest that it moves."""
RATE = 0.1
"""The least share that a new advantage has in the memory of one provider."""
WINDOW, OUTLIER = 0.1, 3.0
"""How fast the unit of gains follows them, and beyond how many units a gain counts no more."""
FARTHEST = 300.0
"""Where the exponent of a value is cut off: it is clipped to `OUTLIER` units in the end."""


@dataclass(frozen=True)
class Memory:
    """Asks those more often whose updates help more than the others of the same round; draws do not depend on the
    scale of the utility, and gains that shrink as the model gets better do not favour those who were drawn first.

    The mirror step of Algorithm 2 over shares of money q, with draws p_i ∝ q_i / c_i for prices c. A round with draws
    k and gains g_k has, with H = Σ p_i c_i (what a draw costs in the mean),

        λ_k = Σ_{l≠k} g_l / Σ_{l≠k} c_l              what the others of the round bring for a coin
        a_k = H (g_k / c_k − λ_k)                     the advantage, in units of a running root mean square of H g / c
        r_i ← r_i + max(0.1, 1/times seen)(a_k − r_i) the memory
        ẑ_i = r_i + Σ_k (a_k − r_i) / (K p_i + ½)     doubly robust, with implicit exploration
        log q ← 0.9 log q + ¼ ẑ

    and nobody's share of the money falls below (α/n) min(1, c_i / H): to go on exploring a dear provider costs no more
    than to go on exploring a cheap one. A round's draws are spread evenly over p (systematic sampling: the k-th is at
    (k + u)/K of the cumulated p, with one u): each provider is drawn ⌊Kp_i⌋ or ⌈Kp_i⌉ times, so pay follows p and
    not the luck of independent draws.

    It learns from gains `together`: what the round's model loses without the provider (market/round.py).

    Departures from the paper: Algorithm 1 draws independently, estimates gains without a baseline or a memory, steps
    at a rate η that must fit the utility's scale, and looks at no price. There is no regret bound for this sampler; it
    is measured (docs/results.md). With a single draw a round there are no others to compare with: the baseline is then
    the running mean of what a coin brought.

    >>> sampler, roster = Memory(), Roster.equal(3)
    >>> state, round_budget = sampler.init(roster, budget=100, per_round=3), RoundBudget(100, roster.prices)
    >>> for _ in range(5):
    ...     state = sampler.update(state, np.array([0, 1, 2]), np.array([3e-6, 1e-6, -1e-6]), round_budget)
    >>> sampler.probabilities(state, round_budget).round(2)
    array([0.79, 0.17, 0.04])
    """

    alpha: float = 0.01
    kind: ClassVar[str] = "memory"
    wants: ClassVar[Wants] = Wants(gains="together")

    def __post_init__(self) -> None:
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, int | float) or not 0 < self.alpha <= 1:
            raise BazaarError(
                f"sampler memory: alpha = {self.alpha!r} must lie above 0 and up to 1: 0.01 is a fair start"
            )

    def init(self, roster: Roster, budget: int, per_round: int) -> Vector:
        """log q, the memory r and the times seen of every provider; then log of the mean square of H g / c, and the
        mean of what a coin brought."""
        return np.zeros(3 * len(roster) + 2)

    def probabilities(self, state: Vector, round_budget: RoundBudget) -> Vector:
        return among_affordable(self._chances(state, round_budget), round_budget)

    def _chances(self, state: Vector, round_budget: RoundBudget) -> Vector:
        """p ∝ q / c, with the floors under q."""
        prices = round_budget.quotes.astype(np.float64)
        n = len(prices)
        q: Vector = np.exp(state[:n] - state[:n].max())
        q /= q.sum()
        mean_price = 1.0 / (q / prices).sum()
        q = np.maximum(q, self.alpha / n * np.minimum(1.0, prices / mean_price))
        p: Vector = q / prices
        p /= p.sum()
        return p

    def exploration(self, round_budget: RoundBudget) -> Vector:
        """The money that a draw spends in the mean only to keep each provider explored, at even shares of money."""
        prices = round_budget.quotes.astype(np.float64)
        return np.asarray(self.alpha / len(prices) * np.minimum(prices, len(prices) / (1 / prices).sum()))

    def draw(self, state: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        p = self.probabilities(state, round_budget)
        ladder = np.cumsum(p)
        rungs = (np.arange(size) + rng.random()) / size * ladder[-1]
        picks = np.minimum(np.searchsorted(ladder, rungs, side="right"), np.flatnonzero(p)[-1])
        draws: Draws = rng.permutation(picks).astype(
            np.int64
        )  # whom a small rest leaves out is not for places to decide
        return draws

    def update(self, state: Vector, draws: Draws, gains: Vector, round_budget: RoundBudget) -> Vector:
        refuse_non_finite(gains)
        prices = round_budget.quotes.astype(np.float64)
        n, size = len(prices), len(draws)
        log_q, memory, seen = state[:n].copy(), state[n : 2 * n].copy(), state[2 * n : 3 * n].copy()
        square, mean = state[3 * n :].tolist()
        p = self.probabilities(state, round_budget)
        cost, c = float(p @ prices), prices[draws]
        largest = float(np.abs(gains).max(initial=0.0))
        if largest == 0.0:
            return state.copy()  # nobody moved the utility, so nobody did better than the others
        first = not seen.any()
        per_coin = cost * (gains / largest) / c  # in units of the largest gain, so that no square over- or underflows
        now = math.log(float((per_coin**2).mean())) + 2 * math.log(largest)
        square = now if first else log_mean(square, min(now, square + 2 * math.log(OUTLIER)), WINDOW)
        values = per_coin * math.exp(min(math.log(largest) - square / 2, FARTHEST))
        if size > 1:
            others = (values @ c - values * c) / (c.sum() - c)  # Σ_{l≠k} g_l / Σ_{l≠k} c_l, in the same units
        else:
            before = 0.0 if first else mean
            others = np.full(1, before)
            mean = float(before + max(WINDOW, 1.0 / (1.0 + seen.sum())) * (values[0] - before))
        advantage = np.clip(values - others, -OUTLIER, OUTLIER)
        estimate = memory.copy()
        np.add.at(estimate, draws, (advantage - memory[draws]) / (size * p[draws] + 0.5))
        for k, i in enumerate(draws.tolist()):
            seen[i] += 1
            memory[i] += max(RATE, 1.0 / seen[i]) * (advantage[k] - memory[i])
        log_q = FADE * log_q + np.clip(STEP * estimate, -LONGEST, LONGEST)
        log_q -= log_q.max()
        return np.concatenate([log_q, memory, seen, [square, mean]])
