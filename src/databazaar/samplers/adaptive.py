"""The default sampler: it learns what each provider is worth, compares prices among equals, and asks nobody twice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from databazaar.roster import Roster, RoundBudget
from databazaar.samplers.protocol import Draws, Vector, Wants, refuse_unheard
from databazaar.settings import check_settings, setting

RATE = 0.1
"""The least share that a new advantage has in the memory of one provider."""
WINDOW, OUTLIER = 0.1, 3.0
"""How fast the unit of advantages follows them, and beyond how many units an advantage counts no more."""
SPREAD = 0.3
"""How much providers are taken to differ before anything is known, in the same units; it counts as much as a round."""
LARGEST, FARTHEST = 1e300, 500.0
"""Where a gain, and the power of two between it and the unit, are cut off: in the end an advantage is clipped."""
DECISION = 3.0
"""By how much a provider's log-weight rises when it is better than the mean by one spread, and that is certain."""
GOOD_ENOUGH = 1.0
"""Beyond how many spreads above the mean a provider is not asked more often for being still better."""
FRESH = 50.0
"""After how many accesses a provider's data count for an eighth, 2^−DECISION, of what they did when they were new."""
ELASTICITY = 1.25
"""By how many percent a provider is asked less often that asks one percent more than those who are as good. At 1 what
it earns does not depend on its price, and to get to know a dear one costs as much as to get to know a cheap one; above
1 it earns less if it asks more."""
WEAR_BY_PRICE = 3.0
"""Data wear off faster that cost more than those of peers: at twice the peers' price eight times as fast. Else who asks
more would be asked less often, stay fresh, and be asked again at its price. Cheaper ones wear off like all others."""
SHARPNESS = 2.0
"""How fast a worse provider stops counting as a peer: by e^(−2 d), where it is behind by d in log worth."""
FARTHEST_WORTH = 150.0
"""Where log worths are cut off: e^(2 · 150) still is a number, and a provider that far behind counts for nothing."""


@dataclass(frozen=True)
class Adaptive:
    """Asks those more often whose updates help more than the others of the same round, and among equals the cheaper.
    There is nothing to tune: draws do not depend on the scale of the utility, nor on what all gains have in common.

    A round of draws k with gains g_k has, in units u, a running root mean square of the differences,

        a_k = (g_k − mean of the others' gains) / u             the advantage; −3 where the reply was void
        r_i ← r_i + max(0.1, 1/times seen) (a_k − r_i)           the memory of each provider
        N_i = v max(1/times seen, 0.1/1.9)                       its error; v is the running mean of (a_k − r_i)²
        S²  = (m max(var r − mean N, 0) + 0.09 K) / (m + K)         how much the m providers seen differ in truth
        x_i = S²/(S² + N_i) · r_i / S                            the worth: shrunk by its error, in units of S
        c*_i = the price of those who are as good or better      (`log_peer_prices`, with ℓ_i = 3 min(x_i, 1))
        ω_i = log(1 + seen_i max(1, c_i/c*_i)³ / 50)             the wear of its data; of who is worse than the others
                                                                 (x_i ≤ −1) no less than that of a typical access
        p_i ∝ e^(3 (min(x_i, 1) − ω_i)) (c*_i / c_i)^1.25        good enough is good enough

    and no chance falls below (α/n) min(1, H / c_i), H = Σ p_i c_i: to go on exploring a dear provider costs no more
    than to go on exploring a cheap one. The k-th draw is at (k + u)/K of the cumulated p, with one u (systematic
    sampling), and a provider that comes up twice is drawn once: a second access of a round is the same update again,
    and would be paid for nothing. So a round is shorter, the surer the sampler is, and the money lasts for more rounds.

    It learns from `shapley` gains: each provider's share of what the round brought (databazaar/training). Good
    enough is good enough, and data that were used often are worth less: a market that goes on buying from the few
    that look best learns their rows by heart. Neither shows in a gain, which is of one round.

    Departures from the paper: those of Algorithm 1's line 5 and of all of Algorithm 2. Log-weights are what the mirror
    step over discounted, standardised gains comes to (docs/explanation/allocation.md). There is no regret bound; it is
    measured (docs/results.md). With a single draw there are no others to compare with: then it is the running mean.

    >>> sampler, roster = Adaptive(), Roster.equal(3)
    >>> state, round_budget = sampler.init(roster, budget=100, per_round=3), RoundBudget(100, roster.prices)
    >>> for _ in range(5):
    ...     state = sampler.update(state, np.array([0, 1, 2]), np.array([3e-6, 1e-6, -1e-6]), round_budget)
    >>> sampler.probabilities(state, round_budget).round(2)
    array([0.95, 0.05, 0.  ])
    """

    alpha: float = setting(
        0.01, "the share of the money kept even over all providers", above=0, at_most=1, in_files=False
    )
    kind: ClassVar[str] = "adaptive"
    wants: ClassVar[Wants] = Wants(gains="shapley", failures=True, short_rounds=True)

    def __post_init__(self) -> None:
        check_settings(self, "sampler adaptive")

    def init(self, roster: Roster, budget: int, per_round: int) -> Vector:
        """The memory and the times seen of every provider, and the `_Common` state."""
        return np.concatenate([np.zeros(2 * len(roster)), _Common(per_round=per_round)])

    def probabilities(self, state: Vector, round_budget: RoundBudget) -> Vector:
        n, open_ = len(round_budget.quotes), slice(None) if round_budget.everybody else round_budget.available
        prices = round_budget.quotes[open_].astype(np.float64)
        known, seen = worth(state, n)[open_], state[n : 2 * n][open_]
        same = bool(prices.min() == prices.max())  # then prices have no say, to the last bit
        dear = np.zeros(len(prices))
        if not same:
            logs = np.log(prices)
            dear = logs - log_peer_prices(DECISION * np.minimum(known, GOOD_ENOUGH), logs)
        weights = log_weights(known, seen, dear)
        q = np.exp(weights - weights.max())
        q /= q.sum()
        q = np.maximum(q, self.alpha / n * (1.0 if same else np.minimum(1.0, (q @ prices) / prices)))
        p = np.zeros(n)
        p[open_] = q / q.sum()
        return p

    def exploration(self, round_budget: RoundBudget) -> Vector:
        """The money that a draw spends in the mean only to keep each provider explored, before anything is known."""
        prices = round_budget.quotes.astype(np.float64)
        if not round_budget.available.any():
            return np.zeros(len(prices))
        start = self.probabilities(np.concatenate([np.zeros(2 * len(prices)), _Common(1)]), round_budget)
        spent: Vector = np.where(
            round_budget.available, self.alpha / len(prices) * np.minimum(prices, start @ prices), 0.0
        )
        return spent

    def draw(self, state: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        p = self.probabilities(state, round_budget)
        ladder = p.cumsum()
        rungs = (np.arange(size) + rng.random()) / size * ladder[-1]
        picks = np.minimum(ladder.searchsorted(rungs, side="right"), p.nonzero()[0][-1])
        once = np.array(sorted(set(picks.tolist())), dtype=np.int64)
        draws: Draws = rng.permutation(once) if len(once) > 1 else once  # a small rest leaves out whom chance says
        return draws

    def update(self, state: Vector, draws: Draws, gains: Vector, round_budget: RoundBudget) -> Vector:
        refuse_unheard(gains)
        n = len(round_budget.quotes)
        memory, seen, common = state[:n].copy(), state[n : 2 * n].copy(), _Common(*state[2 * n :].tolist())
        advantages = np.full(len(draws), -OUTLIER)
        valid = gains > -np.inf
        if valid.any():
            advantages[valid], common = _advantages(gains[valid], common)
        again = seen[draws] > 0
        if again.any():
            off = (advantages - memory[draws])[again]
            surprise = float(np.add.reduce(off * off)) / len(off)
            common = common._replace(noise=common.noise + WINDOW * (surprise - common.noise))
        for i, advantage in zip(draws.tolist(), advantages.tolist(), strict=True):
            seen[i] += 1
            memory[i] += max(RATE, 1.0 / seen[i]) * (advantage - memory[i])
        return np.concatenate([memory, seen, common])

    def merge(self, state: Vector, kept: int, left: int) -> Vector:
        """Two arms become one: what was seen of both was seen of it, and its memory is their mean."""
        n = (len(state) - len(_Common(1))) // 2
        merged, seen = state.copy(), state[n + kept] + state[n + left]
        if seen > 0:
            merged[kept] = (state[n + kept] * state[kept] + state[n + left] * state[left]) / seen
        merged[n + kept], merged[left], merged[n + left] = seen, 0.0, 0.0
        return merged


class _Common(NamedTuple):
    """What is known of all providers together: draws of a round, how many rounds had a single draw, u² as
    `square` · 4^`exponent` (0 while it is unknown), the running mean of single draws' gains, and v."""

    per_round: float
    singles: float = 0.0
    square: float = 0.0
    exponent: float = 0.0
    mean: float = 0.0
    noise: float = 1.0


def worth(state: Vector, providers: int) -> Vector:
    """x: by how many spreads each provider is better than the mean, as far as that is sure."""
    memory, seen = state[:providers], state[providers : 2 * providers]
    common = _Common(*state[2 * providers :].tolist())
    known = seen > 0
    count = int(np.count_nonzero(known))
    if count < 2:
        return np.zeros(providers)
    errors = common.noise * np.maximum(1.0 / np.maximum(seen, 1.0), RATE / (2.0 - RATE))
    of_known = memory[known]
    from_mean = of_known - np.add.reduce(of_known) / count
    variance = float(np.add.reduce(from_mean * from_mean)) / (count - 1)
    apart = max(0.0, variance - float(np.add.reduce(errors[known])) / count)
    square = (count * apart + common.per_round * SPREAD**2) / (count + common.per_round)
    found: Vector = np.where(known, square / (square + errors) * memory / math.sqrt(square), 0.0)
    return found


def log_weights(known: Vector, seen: Vector, dear: Vector) -> Vector:
    """log p, but for a constant and the floors. `dear` is the log of a price beside the peers' price.

    To be fresh is no merit of who is worse than the others: between x = 0 and −1 its wear rises to that of a typical
    access, Σ seen ω / Σ seen. Else a long market, whose good providers have worn off, would go back to the bad ones.
    """
    wear = np.log1p(seen * np.exp(WEAR_BY_PRICE * np.maximum(0.0, dear)) / FRESH)
    typical = float(seen @ wear) / max(1.0, float(seen.sum()))
    wear = wear + np.minimum(np.maximum(-known, 0.0), 1.0) * np.maximum(0.0, typical - wear)
    weights: Vector = DECISION * (np.minimum(known, GOOD_ENOUGH) - wear) - ELASTICITY * dear
    return weights


def _advantages(gains: Vector, common: _Common) -> tuple[Vector, _Common]:
    """How much better than the others of the round each was, in running units; and the units with this round in them.

    The square of the unit is kept beside its power of four: any scale of the gains will do, and gains that are all
    multiplied by a power of two change no bit of an advantage.
    """
    gains, size = np.minimum(np.maximum(gains, -LARGEST), LARGEST), len(gains)
    if size > 1:
        apart = gains - gains[0]  # exactly nothing where all gain the same
        differences = (apart - np.add.reduce(apart) / size) * (size / (size - 1))
    else:
        before = common.mean if common.singles else float(gains[0])
        differences = gains - before
        window = max(WINDOW, 1.0 / (common.singles + 1.0))
        mean = (1.0 - window) * before + window * float(gains[0])
        common = common._replace(singles=common.singles + 1.0, mean=mean)
    largest = float(np.abs(differences).max())
    if largest == 0.0:
        return np.zeros(size), common
    exponent = math.frexp(largest)[1]
    differences = np.ldexp(differences, -exponent)
    square, base = (
        float(np.add.reduce(differences * differences)) / size,
        common.exponent if common.square else exponent,
    )
    if common.square:
        now = min(square * 4.0 ** min(exponent - base, FARTHEST), OUTLIER**2 * common.square)
        square = (1.0 - WINDOW) * common.square + WINDOW * now
    twos = math.frexp(square)[1] // 2
    square, base = math.ldexp(square, -2 * twos), base + twos
    advantages = differences * (2.0 ** min(exponent - base, FARTHEST) / math.sqrt(square))
    return np.minimum(np.maximum(advantages, -OUTLIER), OUTLIER), common._replace(square=square, exponent=base)


def log_peer_prices(log_worth: Vector, log_prices: Vector) -> Vector:
    r"""For every provider the mean log price of those who are as good or better; of worse ones the less, the worse.

    .. math:: \log c^*_i = \sum_j m_{ij} \log c_j \Big/ \sum_j m_{ij}, \qquad m_{ij} = \min(1, e^{2(\ell_j - \ell_i)}).

    It counts itself, so that a provider without an equal is compared with its own price and those of its betters.
    Sorted by worth, both sums are a cumulated sum from above and one from below: O(n log n), and nothing overflows.

    >>> prices = np.log([10.0, 20.0, 20.0, 1.0])
    >>> np.exp(log_peer_prices(np.array([0.0, 0.0, 0.0, -9.0]), prices)).round(1)  # three equals, and one far behind
    array([15.9, 15.9, 15.9,  8. ])
    """
    order = (-log_worth).argsort(kind="stable")
    worth = np.maximum(log_worth[order] - log_worth[order[0]], -FARTHEST_WORTH)
    prices = log_prices[order]
    weights = np.exp(SHARPNESS * worth)
    betters, better_prices = np.arange(1, len(order) + 1), prices.cumsum()
    worse = _sum_after(weights) / weights
    worse_prices = _sum_after(weights * prices) / weights
    peers = np.empty_like(prices)
    peers[order] = (better_prices + worse_prices) / (betters + worse)
    return peers


def _sum_after(values: Vector) -> Vector:
    """Σ_{j>i} of each place."""
    sums = np.zeros(len(values))
    sums[:-1] = values[:0:-1].cumsum()[::-1]
    return sums
