"""Gradient Shapley between providers: one pass through the providers takes the place of training.

Along a permutation the model takes each provider's update in turn, w ← w + γ O_i(w), and the provider is credited with
the change in utility (Ghorbani & Zou 2019, Algorithm 2; Section 5.1 of the paper). The mean over permutations is the
value. Several permutations advance side by side, as rows of one stacked computation.

Departures from the paper: a player is a provider, and its "gradient step" is its oracle's whole update. Behind the
paper's figures the first provider of a permutation gets no credit in it; `credit_first=False` does that. Step sizes are
those of round 0. An update that fails, or after which the model has no finite utility, is not taken and earns nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from databazaar.engines import Ask, query_all
from databazaar.errors import BazaarError
from databazaar.randomness import stream
from databazaar.valuation.method import Context, Method
from databazaar.valuation.monte_carlo import Averaging, Shuffle, credit_in_order
from databazaar.valuation.result import ValuationResult, Vector
from databazaar.valuation.stopping import BackCheck, MaxPermutations, Rule

STOP = BackCheck(10, 0.01) | MaxPermutations(500)
"""Appendix A.1 of the paper; the cap is the one behind its figures."""

Progress = Callable[[float], None]


def ignore_share(share: float) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class GShapley(Method):
    """Gradient Shapley values; `batch` permutations advance side by side. `progress` is called after each batch with
    the share of the permutations that is done at least, by the rule's caps."""

    stop: Rule = STOP
    credit_first: bool = True
    batch: int = 25
    progress: Progress = ignore_share
    kind: ClassVar[str] = "g-shapley"
    limit_argument: ClassVar[str | None] = "stop"

    def value(self, context: Context) -> ValuationResult:
        n, start, step = len(context.providers), context.start(), context.step(0)
        nothing = float(context.score(start[None])[0])
        if not np.isfinite(nothing):
            raise BazaarError(f"the model's own utility is {nothing}: begin with other parameters")
        averaging = Averaging(Shuffle(n, self.seed, "g-shapley"), n, self.stop, context.tally, batch=self.batch)
        while averaging.stopped is None:
            orders, first = averaging.orders(), averaging.count
            seeds = [oracle_seed(self.seed, first + row) for row in range(len(orders))]
            after = walked(context, start, orders.tolist(), seeds, step, nothing)
            context.tally.oracle_calls += orders.size
            context.tally.utility_evaluations += orders.size
            before = after[:, :1] if not self.credit_first else np.full((len(orders), 1), nothing)
            averaging.add(credit_in_order(orders, np.concatenate([before, after], axis=1)))
            left = 0.0 if averaging.stopped is not None else averaging.rule.permutations_left(averaging.history)
            self.progress(averaging.count / (averaging.count + left))
        cost, errors = context.tally.now(averaging.count), averaging.standard_errors
        return ValuationResult(self.kind, context.ids, averaging.mean, errors, averaging.stopped, cost)


def oracle_seed(seed: int, permutation: int) -> int:
    """The oracles' seed in one permutation: a provider meets its data in another order each time."""
    return int(stream(seed, permutation, "g-shapley oracles").integers(2**31))


def walked(
    context: Context, start: Tensor, orders: Sequence[Sequence[int]], seeds: Sequence[int], step: float, nothing: float
) -> Vector:
    """The utilities along these permutations, which advance side by side: [P, n]. A step that leads to a model without
    a finite utility is not taken. The start is worth `nothing`."""
    engine, evaluator = context.engine, context.evaluator
    params = start.repeat(len(orders), 1)
    rate = torch.tensor(step).to(params)
    worth, along = np.full(len(orders), nothing), []
    for place in range(len(orders[0])):
        asks = [Ask(w, [order[place]], 0, seed) for w, order, seed in zip(params, orders, seeds, strict=True)]
        updates = torch.cat([replies.updates for replies in query_all(engine, asks)])
        moved = torch.addcmul(params, rate, updates)
        after = evaluator.score(moved).utility
        fine = np.isfinite(after)
        worth = np.where(fine, after, worth)
        params = moved if fine.all() else torch.where(torch.from_numpy(fine).to(params.device)[:, None], moved, params)
        along.append(worth)
    return np.stack(along, 1)
