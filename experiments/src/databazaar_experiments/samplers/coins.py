"""The paper's mirror step over shares of money instead of chances, at a rate that it finds by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from databazaar.errors import BazaarError
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers.osmd import project_clipped_simplex
from databazaar.samplers.protocol import Draws, Vector, Wants, among_affordable, draw_independently, refuse_non_finite

LONGEST = 1.0
"""The farthest that a log-weight moves in a round, where the rate is found and not given."""
WINDOW, OUTLIER = 0.1, 3.0
"""How fast the unit of gains follows them, and beyond how many units an advantage counts no more."""
FARTHEST = 1e300
"""Where numbers are cut off that would not stay finite, as in OSMD."""
TIE = 1e-12
"""How near, in proportion, a gain is to that of the others when it counts as the same."""
LARGEST_SCALE = 300.0
"""Where the exponent of a scale is cut off: an advantage is clipped to `OUTLIER` units in the end."""


class _Past(NamedTuple):
    """What is remembered of the rounds, besides the shares."""

    square: float = 0.0
    """Logarithm of the running mean of (H g / c)²."""
    mean: float = 0.0
    """Running mean of what a draw's money brought, H Σg / Σc, in the units of advantages."""
    spread: float = 0.0
    """v̄, the mean of the estimates' spread."""
    rounds: float = 0.0

    def with_spread(self, q: Vector, estimate: Vector) -> _Past:
        """v of one more round, the one that `rounds` already counts."""
        apart = estimate - q @ estimate
        spread = min(float((q * apart) @ apart), FARTHEST)
        return self._replace(spread=self.spread + (spread - self.spread) / self.rounds)


@dataclass(frozen=True)
class Coins:
    """Moves money to those whose updates bring more for a coin than the others of their rounds, by the paper's step.

    Algorithm 2 over shares of money q, with draws p_i ∝ q_i / c_i for prices c. A round of K draws k with gains g_k
    has, with H = Σ p_i c_i (what a draw costs in the mean),

        λ_k = Σ_{l≠k} g_l / Σ_{l≠k} c_l             what the others of the round bring for a coin
        a_k = H (g_k / c_k − λ_k)                    the advantage, in units of a running root mean square of H g / c
        ẑ_i = Σ a_k / (K p_i)                        over the draws of i
        v   = Σ q_i (ẑ_i − ⟨q, ẑ⟩)²                  how much the estimates differ; v̄ is its mean over past rounds
        η   = √( log(n/α) / (T v̄) )                  T: the rounds that the money left still buys
        log q ← log q + ηẑ, at most 1 up or down, then projected onto q_i ≥ (α/n) min(1, c_i / H)

    so that to go on exploring a dear provider costs no more than to go on exploring a cheap one. With a single draw a
    round there are no others: λ is then the running mean of what a coin brought. Until a past round
    has told anybody apart, v̄ is the mean up to the present one.

    A given `eta` is that rate, per unit of utility: there are no units then and nothing is clipped. λ_k does not depend
    on draw k, so it is the same in the mean for everybody: the differences of E[ẑ] are those of H g / c, with and
    without `baseline`. (In units and clipped they are so only nearly: the unit knows the round's own gains.) `floor`
    = "access" keeps chances above α/n instead, whatever they cost. With equal prices `Coins(α, η, baseline=False,
    floor="access")` is `OSMD(η, α)`, to the last bit. It learns from the paper's gains, each update alone.

    Departures from the paper: prices, the baseline, the units and the rate. Theorem 1 does not speak of them.

    >>> sampler, roster = Coins(), Roster.of([("a", "a", 1), ("b", "b", 1), ("dear", "dear", 5)])
    >>> state, round_budget = sampler.init(roster, budget=500, per_round=3), RoundBudget(500, roster.prices)
    >>> rng, gains = np.random.default_rng(0), np.array([3e-6, 1e-6, 4e-6])
    >>> for _ in range(10):
    ...     draws = sampler.draw(state, rng, 3, round_budget)
    ...     state = sampler.update(state, draws, gains[draws], round_budget)
    >>> sampler.probabilities(state, round_budget).round(2)
    array([0.96, 0.03, 0.01])
    """

    alpha: float = 0.01
    eta: float | None = None
    baseline: bool = True
    floor: Literal["money", "access"] = "money"
    kind: ClassVar[str] = "coins"
    wants: ClassVar[Wants] = Wants()

    def __post_init__(self) -> None:
        if not _is_number(self.alpha) or not 0 <= self.alpha <= 1:
            raise BazaarError(f"sampler coins: alpha = {self.alpha!r} must lie in [0, 1]: 0.01 is a fair start")
        if self.eta is None and self.alpha == 0:
            raise BazaarError("sampler coins: alpha = 0 needs an eta: give one, or an alpha above 0, such as 0.01")
        if self.eta is not None and not (_is_number(self.eta) and math.isfinite(self.eta) and self.eta > 0):
            raise BazaarError(f"sampler coins: eta = {self.eta!r} must be a positive number, or left out")
        if not isinstance(self.baseline, bool):
            raise BazaarError(f"sampler coins: baseline = {self.baseline!r} must be true or false")
        if self.floor not in ("money", "access"):
            raise BazaarError(f"sampler coins: floor = {self.floor!r} must be 'money' or 'access'")

    def init(self, roster: Roster, budget: int, per_round: int) -> Vector:
        """log q, and what it remembers of the rounds, where it needs to."""
        even = np.full(len(roster), -math.log(len(roster)))
        return even if self._plain else np.concatenate([even, _Past()])

    @property
    def _plain(self) -> bool:
        """Whether the shares are all that it knows, as in the paper."""
        return self.eta is not None and not self.baseline

    def probabilities(self, state: Vector, round_budget: RoundBudget) -> Vector:
        return among_affordable(self._chances(state, round_budget), round_budget)

    def _chances(self, state: Vector, round_budget: RoundBudget) -> Vector:
        """p ∝ q / c over all providers, with the floors at the prices of now. With one price p is q itself."""
        prices = round_budget.quotes.astype(np.float64)
        p: Vector = np.exp(state[: len(prices)])
        floor = self.alpha / len(p)
        if _one_price(prices):
            return np.maximum(p, floor, out=p)
        p /= prices
        p /= p.sum()
        least = floor * np.minimum(1.0, (p @ prices) / prices) if self.floor == "money" else floor
        np.maximum(p, least, out=p)
        p /= p.sum()
        return p

    def _floors(self, prices: Vector, mean_price: float) -> Vector | None:
        """The least shares of money, in units of α/n. None where they are all 1."""
        if _one_price(prices):
            return None
        if self.floor == "money":
            return np.minimum(1.0, prices / mean_price)
        all_at_the_floor = self.alpha / len(prices) * prices.sum()  # what a draw costs then, up to rounding the least
        return np.asarray(prices / max(mean_price, all_at_the_floor))

    def exploration(self, round_budget: RoundBudget) -> Vector:
        """The money that a draw spends in the mean only to keep each provider explored, at even shares of money."""
        prices = round_budget.quotes.astype(np.float64)
        most = np.minimum(prices, len(prices) / (1 / prices).sum()) if self.floor == "money" else prices
        return np.asarray(self.alpha / len(prices) * most)

    def draw(self, state: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        return draw_independently(self.probabilities(state, round_budget), rng, size, round_budget)

    def update(self, state: Vector, draws: Draws, gains: Vector, round_budget: RoundBudget) -> Vector:
        refuse_non_finite(gains)
        prices = round_budget.quotes.astype(np.float64)
        log_q, past = state[: len(prices)].copy(), _Past(*state[len(prices) :].tolist())
        alone = len(draws) == 1 and past.rounds > 0  # compared with the past: to gain nothing says something
        if not (self._plain or alone or gains.any()):
            return state.copy()  # nobody moved the utility, so nobody did better than the others
        chances = self._chances(state, round_budget)
        p = among_affordable(chances, round_budget)
        cost, weights = _mean_price(p, prices), len(draws) * p[draws]
        with np.errstate(over="ignore"):
            if self._plain:
                advantages = gains * (cost / prices[draws])
            else:
                advantages, past = self._advantages(gains, prices[draws], cost, past)
            if self.eta is not None:
                shifts = self.eta * advantages / weights
                np.add.at(log_q, draws, np.minimum(np.maximum(shifts, -FARTHEST), FARTHEST))
            else:
                estimate = np.zeros(len(p))
                np.add.at(estimate, draws, advantages / weights)
                before, past = past.spread, past.with_spread(p * prices / cost, estimate)
                rounds = max(1.0, round_budget.left / min(len(draws) * cost, round_budget.money))
                rate = self._rate(len(p), rounds, before or past.spread)
                log_q += np.clip(rate * estimate, -LONGEST, LONGEST)
        floors = self._floors(prices, _mean_price(chances, prices))
        moved = (
            project_clipped_simplex(log_q, self.alpha)
            if floors is None or self.alpha == 0
            else project_above(log_q, self.alpha / len(p) * floors)
        )
        return moved if self._plain else np.concatenate([moved, past])

    def _rate(self, providers: int, rounds: float, spread: float) -> float:
        """η; nothing moves where no estimate has ever differed from the others."""
        return math.sqrt(math.log(providers / self.alpha) / rounds / spread) if spread > 0 else 0.0

    def _advantages(self, gains: Vector, prices: Vector, cost: float, past: _Past) -> tuple[Vector, _Past]:
        """a_k of every draw, and what is remembered after it. `cost` is H."""
        largest = float(np.abs(gains).max())
        shares = gains / (largest or 1.0)  # so that no square over- or underflows
        values = shares * (cost / prices)
        past, rounds = past._replace(rounds=past.rounds + 1), past.rounds + 1
        scale, limit = largest, FARTHEST if self.eta is not None else OUTLIER
        if self.eta is None and largest > 0:
            now = math.log(float((values**2).mean())) + 2 * math.log(largest)
            if rounds > 1:
                now = log_mean(past.square, min(now, past.square + 2 * math.log(OUTLIER)), WINDOW)
            past = past._replace(square=now)
            scale = math.exp(min(math.log(largest) - now / 2, LARGEST_SCALE))
        surprise = _clipped(scale * (cost * shares.sum() / prices.sum()) - past.mean, limit)
        if not self.baseline:
            advantages = scale * values
        elif len(gains) > 1:
            advantages = scale * _apart(values, cost * _of_the_others(shares) / _of_the_others(prices))
        else:
            advantages = np.full(1, surprise)
        past = past._replace(mean=past.mean + max(WINDOW, 1 / rounds) * surprise)
        return np.clip(advantages, -limit, limit), past


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _clipped(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)


def _one_price(prices: Vector) -> bool:
    return bool((prices == prices[0]).all())


def _mean_price(p: Vector, prices: Vector) -> float:
    """H = Σ p_i c_i; the one price itself, to the last bit, where there is one."""
    return float(prices[0]) if _one_price(prices) else float(p @ prices)


def _apart(values: Vector, others: Vector) -> Vector:
    """values − others; 0 where they are equal but for rounding, which a rate of its own would blow up."""
    apart: Vector = values - others
    apart[np.abs(apart) <= TIE * np.maximum(np.abs(values), np.abs(others))] = 0.0
    return apart


def _of_the_others(values: Vector) -> Vector:
    """Of every draw, the sum over all others; added up without it, for what it would leave may be lost beside it.

    >>> _of_the_others(np.array([1.0, 1e30, 2.0])).tolist()
    [1e+30, 3.0, 1e+30]
    """
    before, after = np.zeros(len(values)), np.zeros(len(values))
    np.cumsum(values[:-1], out=before[1:])
    after[:-1] = np.cumsum(values[:0:-1])[::-1]
    return np.asarray(before + after)


def project_above(log_weights: Vector, floors: Vector) -> Vector:
    """As `project_clipped_simplex`, for floors f that differ and sum to 1 or less: with y/f sorted upwards, those from
    the first i with y_i (1 − Σ_{j<i} f_j) > f_i Σ_{j≥i} y_j on are scaled."""
    relative: Vector = log_weights - log_weights.max()
    log_floors = np.log(floors)
    order = np.argsort(relative - log_floors, kind="stable")
    rising, rising_floors = np.exp(relative[order]), floors[order]
    tails = np.cumsum(rising[::-1])[::-1]
    left_over = 1.0 - np.concatenate([[0.0], np.cumsum(rising_floors[:-1])])
    above = rising * left_over > rising_floors * tails
    first = int(above.argmax())
    if not above[first]:  # the floors sum to 1
        return log_floors
    scaled: Vector = relative + (np.log(left_over[first]) - np.log(tails[first]))
    return np.maximum(scaled, log_floors, out=scaled)


def log_mean(old: float, new: float, window: float) -> float:
    """log((1 − w) e^old + w e^new): a running mean of numbers of any size, kept as its logarithm.

    >>> round(math.exp(log_mean(math.log(2.0), math.log(4.0), 0.5)), 12)
    3.0
    """
    return float(np.logaddexp(math.log(1 - window) + old, math.log(window) + new))
