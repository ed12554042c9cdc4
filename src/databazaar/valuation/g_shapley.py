"""Gradient Shapley between providers: one pass through the providers takes the place of training.

Along a permutation the model takes each provider's update in turn, w ← w + γ O_i(w), and the provider is credited with
the change in utility (Ghorbani & Zou 2019, Algorithm 2; Section 5.1 of the paper). The mean over permutations is the
value. Several permutations advance side by side, as rows of one stacked computation, and each position's models are
scored in one batch.

Departures from the paper: a player is a provider, and its "gradient step" is its oracle's whole update. Behind the
paper's figures the first provider of a permutation gets no credit in it; `credit_first=False` does that. Step sizes are
those of round 0. An update that fails, or after which the model has no finite utility, is not taken and earns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar.consumer import Consumer
from databazaar.engines import Ask, Engine
from databazaar.errors import BazaarError
from databazaar.provider import Provider
from databazaar.randomness import stream
from databazaar.valuation.market import Market
from databazaar.valuation.permutations import Orders, Shuffle, average_permutations, credit_in_order
from databazaar.valuation.result import ValuationResult
from databazaar.valuation.stopping import BackCheck, MaxPermutations, Rule

Vector = NDArray[np.float64]

STOP = BackCheck(10, 0.01) | MaxPermutations(500)
"""Appendix A.1 of the paper; the cap is the one behind its figures."""


def g_shapley(
    consumer: Consumer,
    providers: Sequence[Provider],
    *,
    stop: Rule = STOP,
    credit_first: bool = True,
    seed: int = 0,
    engine: str | Engine = "vectorized",
    device: str = "auto",
    batch: int = 25,
) -> ValuationResult:
    """Gradient Shapley values; `batch` permutations advance side by side."""
    with Market.open(consumer, providers, engine, device) as market:
        n = len(market.providers)

        def marginals(orders: Orders, first: int) -> Vector:
            worths = utilities_along(market, orders, [oracle_seed(seed, first + row) for row in range(len(orders))])
            if not credit_first:
                worths[:, 0] = worths[:, 1]
            return credit_in_order(orders, worths)

        running, stopped = average_permutations(
            marginals, Shuffle(n, seed, "g-shapley"), n, stop, market.tally, batch=batch
        )
        cost = market.tally.cost(permutations=running.count)
        return ValuationResult("g-shapley", market.ids, running.mean, running.standard_errors, stopped, cost)


def oracle_seed(seed: int, permutation: int) -> int:
    """The oracles' seed in one permutation: a provider meets its data in another order each time."""
    return int(stream(seed, permutation, "g-shapley oracles").integers(2**31))


def utilities_along(market: Market, orders: Orders, seeds: Sequence[int]) -> Vector:
    """The utility before the first provider's update, after it, after the second's, …: [P, n + 1]."""
    count, n = orders.shape
    start = market.start()
    params = start.expand(count, -1).clone()
    step = market.step(0)
    utilities = np.empty((count, n + 1))
    utilities[:, 0] = market.score(start[None])[0]
    if not np.isfinite(utilities[0, 0]):
        raise BazaarError(f"the model's own utility is {utilities[0, 0]}: begin with other parameters")
    for j, joining in enumerate(orders.T.tolist()):
        asks = [Ask(w, [provider], 0, seed) for w, provider, seed in zip(params, joining, seeds, strict=True)]
        moved = params + step * torch.cat([reply.updates for reply in market.ask(asks)])
        after = market.score(moved)
        fine = np.isfinite(after)
        utilities[:, j + 1] = np.where(fine, after, utilities[:, j])
        params = moved if fine.all() else torch.where(torch.from_numpy(fine).to(moved.device)[:, None], moved, params)
    return utilities
