"""Markets whose truth is known: the utility is a sum, so an update brings what its provider was made to bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from databazaar import Arbiter, Consumer, Provider, Report
from databazaar.samplers import Sampler
from own_samplers import Valued


class Seller(NamedTuple):
    """What an access brings in the mean, with a spread of `noise`; `fails` is how often it does not answer."""

    brings: float
    price: int = 2
    noise: float = 0.5
    fails: float = 0.0
    most_accesses: int | None = None
    price_changes: tuple[tuple[int, int], ...] = ()


SIX = {
    "good": Seller(3.0),
    "fair": Seller(1.0),
    "<b>bad</b>": Seller(-30.0),
    "silent": Seller(1.0, fails=1.0),
    "dear": Seller(3.0, 30),
    "once": Seller(1.0, most_accesses=1),
}
"""One of each sort; with at most 20 for an access, one of them is never asked."""


def arbiter(
    sellers: Mapping[str, Seller],
    sampler: Sampler | None = None,
    *,
    budget: int = 1000,
    per_round: int = 6,
    seed: int = 0,
    **consumer: Any,
) -> Arbiter:
    providers = [
        Provider(
            name,
            oracle=_oracle(seller, np.random.default_rng([seed, place])),
            price=seller.price,
            most_accesses=seller.most_accesses,
            price_changes=seller.price_changes,
        )
        for place, (name, seller) in enumerate(sellers.items())
    ]
    buyer = Consumer(
        np.zeros(1), budget=budget, per_round=per_round, utility=lambda w: float(w[0]), step=0.01, **consumer
    )
    return Arbiter(buyer, providers, sampler or Valued(), engine="loop", seed=seed)


def played(sellers: Mapping[str, Seller], sampler: Sampler | None = None, **more: Any) -> Report:
    return arbiter(sellers, sampler, **more).run()


def reasons(report: Report) -> dict[str, str]:
    return {one.provider: one.why.kind for one in report.brought}


def _oracle(seller: Seller, rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    def oracle(w: np.ndarray) -> np.ndarray:
        if rng.random() < seller.fails:
            raise ValueError("nothing to say")
        return np.array([rng.normal(seller.brings, seller.noise)])

    return oracle
