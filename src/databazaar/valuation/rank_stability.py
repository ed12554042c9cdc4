"""Would the payouts stand with another seed? Means and intervals over seeds, and the ranks that are sure to hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.valuation.result import Vector

FEWEST_SEEDS = 3


@dataclass(frozen=True, eq=False)
class Stability:
    """Payouts over several seeds. `low`, at zero or above, and `high` hold the mean payout with the given confidence.

    `best_rank` and `worst_rank` (1 is the best paid) are where each provider may end up with one more seed.
    """

    providers: tuple[str, ...]
    seeds: int
    confidence: float
    mean: Vector
    low: Vector
    high: Vector
    best_rank: NDArray[np.int64]
    worst_rank: NDArray[np.int64]

    @property
    def survives(self) -> NDArray[np.bool_]:
        """Whose rank would survive another seed."""
        return np.asarray(self.best_rank == self.worst_rank)

    def to_dict(self) -> dict[str, Any]:
        arrays = {name: value.tolist() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        told = {"providers": list(self.providers), "seeds": self.seeds, "confidence": self.confidence}
        return {**told, **arrays, "survives": self.survives.tolist()}


def stability(
    providers: Sequence[str], payouts: Sequence[Sequence[int]] | NDArray[Any], confidence: float = 0.95
) -> Stability:
    """From payouts [seeds, providers], three seeds or more: two that happen to agree would promise everything.

    The interval of a mean is Student's, m ± t s/√S, without what lies below zero, as nobody is paid less. Provider i
    is sure to be paid more than j in another run if the prediction interval of the difference of their payouts,
    d ± t s_d √(1 + 1/S), lies above zero. A provider's best rank counts those sure to be above it, its worst rank those
    sure to be below. Each pair is judged by itself: with many providers, some pair will fall outside its interval.

    >>> stability(["a", "b", "c"], [[50, 26, 24], [51, 24, 25], [50, 25, 25]]).survives
    array([ True, False, False])
    """
    paid = np.asarray(payouts, dtype=np.float64)
    if paid.ndim != 2 or len(paid) < FEWEST_SEEDS or paid.shape[1] != len(providers):
        raise BazaarError(f"stability needs the payouts of at least three seeds, [seeds, {len(providers)}]")
    if not 0 < confidence < 1:
        raise BazaarError(f"confidence = {confidence} must lie between 0 and 1: 0.95 is usual")
    seeds = len(paid)
    t = student_quantile(confidence, seeds - 1)
    mean = paid.mean(0)
    margin = t * paid.std(0, ddof=1) / np.sqrt(seeds)
    gaps = mean[:, None] - mean
    centred = paid - mean
    products = centred.T @ centred / (seeds - 1)
    variances = np.diag(products)[:, None] + np.diag(products) - 2 * products
    above = gaps > t * np.sqrt(np.maximum(variances, 0.0) * (1 + 1 / seeds))
    best, worst = 1 + above.sum(0), len(providers) - above.sum(1)
    return Stability(
        tuple(providers), seeds, confidence, mean, np.maximum(mean - margin, 0.0), mean + margin, best, worst
    )


@lru_cache
def student_quantile(confidence: float, freedom: int) -> float:
    """t with P(|T| ≤ t) = confidence. With T = √ν tan θ the density is that of cos^{ν−1} θ, which is summed up.

    >>> round(student_quantile(0.95, 9), 3)
    2.262
    """
    angle = np.linspace(0.0, np.pi / 2, 200_001)
    density = np.cos(angle) ** (freedom - 1)
    mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return float(np.sqrt(freedom) * np.tan(np.interp(confidence, mass / mass[-1], angle)))
