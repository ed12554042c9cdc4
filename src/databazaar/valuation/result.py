"""What every valuation method returns: values, how sure they are, why it stopped, and what it cost."""

from __future__ import annotations

import operator
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from databazaar.valuation.apportionment import Mode, payouts

Vector = NDArray[np.float64]


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

    def plus(self, other: Cost, share: float, permutations: int) -> Cost:
        """Together with a share of what was spent later, in so many permutations."""
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return replace(Cost(*(one + more * share for one, more in both)), permutations=permutations)


class Tally:
    """A clock and counters, which only grow, for one run."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.oracle_calls = 0
        self.utility_evaluations = 0
        self.trainings = 0

    def now(self, permutations: int = 0) -> Cost:
        """All that was spent so far; permutations are counted by whoever samples them."""
        seconds = time.perf_counter() - self._began
        return Cost(self.oracle_calls, self.utility_evaluations, self.trainings, permutations, seconds)


@dataclass(frozen=True, eq=False)
class Trained:
    """The model that a method trained on its way: its parameters on the CPU, and its utility."""

    parameters: Tensor
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
