"""Small markets that run in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from databazaar import Consumer, Provider

MakeMarket = Callable[..., tuple[Consumer, list[Provider]]]


def closeness(target: np.ndarray) -> Callable[[np.ndarray], float]:
    """A utility in (0, 1] on plain vectors: 1 at the target."""
    return lambda w: float(np.exp(-0.5 * np.sum((w - target) ** 2)))


def vector_market(
    offsets: Sequence[float] = (0.0, 0.5, 1.0, 2.0),
    *,
    budget: int = 24,
    per_round: int = 3,
    prices: Sequence[int] | None = None,
    owners: Sequence[str] | None = None,
    oracles: dict[int, Any] | None = None,
    step: float = 0.3,
    utility: Callable[[np.ndarray], float] | None = None,
) -> tuple[Consumer, list[Provider]]:
    """Provider i pulls a plain vector towards a point that lies `offsets[i]` away from the consumer's target."""
    target = np.array([1.0, -1.0, 0.5])

    def oracle(offset: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda w: target + offset - w

    n = len(offsets)
    providers = [
        Provider(
            f"p{i}",
            oracle=(oracles or {}).get(i, oracle(offset)),
            owner=owners[i] if owners else "",
            price=prices[i] if prices else 1,
        )
        for i, offset in zip(range(n), offsets, strict=True)
    ]
    consumer = Consumer(
        np.zeros(3), budget=budget, per_round=per_round, utility=utility or closeness(target), step=step
    )
    return consumer, providers


def blobs(rng: np.random.Generator, size: int, *, flip: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Two separated classes in four dimensions, a share of whose labels is wrong."""
    y = rng.integers(0, 2, size)
    x = rng.normal(size=(size, 4)) + 2.0 * (2 * y[:, None] - 1)
    wrong = rng.random(size) < flip
    return x.astype(np.float32), np.where(wrong, 1 - y, y)


def torch_market(
    *, flips: Sequence[float] = (0.0, 0.1, 0.5, 1.0), budget: int = 20, per_round: int = 4, seed: int = 0, **more: Any
) -> tuple[Consumer, list[Provider]]:
    """Logistic regression on separated classes; providers differ in how many labels are wrong."""
    rng = np.random.default_rng(seed)
    providers = [Provider(f"p{i}", data=blobs(rng, 20 + 7 * i, flip=flip)) for i, flip in enumerate(flips)]
    settings = {"model": "logistic", "holdout": blobs(rng, 50), "budget": budget, "per_round": per_round, **more}
    return Consumer(**settings), providers
