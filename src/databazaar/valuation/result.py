"""What every valuation method returns: values, how sure they are, why it stopped, what it cost; and values as money."""

from __future__ import annotations

import operator
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.training import Model

Vector = NDArray[np.float64]
Mode = Literal["positive", "shifted"]


@dataclass(frozen=True)
class Cost:
    """What a method spent. An update of one provider is one oracle call; scoring one model is one evaluation."""

    oracle_calls: int = 0
    utility_evaluations: int = 0
    trainings: int = 0
    permutations: int = 0
    seconds: float = 0.0

    def __sub__(self, other: Cost) -> Cost:
        """What was spent between two moments."""
        return Cost(*map(operator.sub, vars(self).values(), vars(other).values()))


class Tally:
    """A clock and counters, which only grow, for one run."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.oracle_calls = 0
        self.utility_evaluations = 0
        self.trainings = 0

    def now(self, permutations: int = 0) -> Cost:
        """All that was spent so far; permutations are counted by the method that samples them."""
        seconds = time.perf_counter() - self._began
        return Cost(self.oracle_calls, self.utility_evaluations, self.trainings, permutations, seconds)


@dataclass(frozen=True, eq=False)
class Trained:
    """The model that a method trained on its way, as its learner has it, and its utility."""

    model: Model
    utility: float


@dataclass(frozen=True, eq=False)
class ValuationResult:
    """One value per provider.

    Standard errors are those of sampling permutations: 0 where nothing was sampled, infinite after one permutation.
    `settings` are what the method worked out for itself, such as the sampler of a market.

    >>> result = ValuationResult("exact", ("a", "b"), np.array([1.0, 3.0]), np.zeros(2), "all coalitions", Cost())
    >>> result.ranking()
    ('b', 'a')
    >>> result.payouts(100)
    {'a': 25, 'b': 75}
    """

    method: str
    providers: tuple[str, ...]
    values: Vector
    standard_errors: Vector
    stopped: str
    cost: Cost
    trained: Trained | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for array in (self.values, self.standard_errors):
            assert array.dtype == np.float64 and array.shape == (len(self.providers),)

    def ranking(self) -> tuple[str, ...]:
        """Providers from the most to the least valuable; equal values stand in the providers' order."""
        return tuple(self.providers[i] for i in np.argsort(-self.values, kind="stable"))

    def payouts(self, budget: int, mode: Mode = "positive") -> dict[str, int]:
        """The budget in whole minor units by value: see `payouts`."""
        return dict(zip(self.providers, payouts(self.values, budget, mode), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; of a trained model only the utility."""
        return {
            "method": self.method,
            "providers": list(self.providers),
            "values": self.values.tolist(),
            "standard_errors": [e if np.isfinite(e) else None for e in self.standard_errors.tolist()],
            "stopped": self.stopped,
            "cost": asdict(self.cost),
            "final_utility": None if self.trained is None else self.trained.utility,
            "settings": dict(self.settings),
        }


def payouts(values: Sequence[float] | NDArray[np.float64], budget: int, mode: Mode = "positive") -> list[int]:
    """Splits `budget` minor units in proportion to max(v, 0), or to v − min v.

    "positive" is the paper's text (Section 5.1), "shifted" what its figures show. Where that leaves nobody a
    positive share (all values ≤ 0, or all equal when shifted), everybody gets an equal part. Fractions are
    exact, and minor units left over go to the largest remainders, on a tie to the first.

    >>> payouts([3.0, 1.0, -2.0], 10)
    [8, 2, 0]
    >>> payouts([3.0, 1.0, -2.0], 10, "shifted")
    [6, 4, 0]
    >>> payouts([-1.0, -2.0, -3.0], 10)
    [4, 3, 3]
    """
    if mode not in get_args(Mode):
        raise BazaarError(f"payout mode {mode!r} is unknown: use one of {', '.join(get_args(Mode))}")
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer) or budget < 0:
        raise BazaarError(f"budget = {budget!r} must be a whole number of minor units, zero or more")
    for value in values:
        if not np.isfinite(value):
            raise BazaarError(f"a value of {value} cannot be paid: find out which provider's utility is not a number")
    exact = [Fraction(float(value)) for value in values]
    if not exact:
        raise BazaarError("there is nobody to pay: give at least one value")
    floor = min(exact) if mode == "shifted" else Fraction(0)
    weights = [max(value - floor, Fraction(0)) for value in exact]
    budget, total = int(budget), sum(weights, Fraction(0))
    shares = [budget * w / total if total else Fraction(budget, len(weights)) for w in weights]
    parts = [int(share) for share in shares]
    neediest = sorted(range(len(parts)), key=lambda i: (parts[i] - shares[i], i))
    for i in neediest[: budget - sum(parts)]:
        parts[i] += 1
    assert sum(parts) == budget
    return parts
