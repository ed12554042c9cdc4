"""Gradient Shapley between providers: one pass through the providers takes the place of training.

Along a permutation the model takes each provider's update in turn, w ← w + γ O_i(w), and the provider is credited with
the change in utility (Ghorbani & Zou 2019, Algorithm 2; Section 5.1 of the paper). The mean over permutations is the
value. Several permutations, of several valuations if need be, advance side by side, as rows of one stacked computation;
what their models are worth is fetched when all have come to the end.

Departures from the paper: a player is a provider, and its "gradient step" is its oracle's whole update. Behind the
paper's figures the first provider of a permutation gets no credit in it; `credit_first=False` does that. Step sizes are
those of round 0. An update that fails, or after which the model has no finite utility, is not taken and earns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines import Ask, Engine, VectorizedEngine
from databazaar.engines.errands import Start, Walk
from databazaar.engines.protocol import LIMIT
from databazaar.errors import BazaarError
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.randomness import stream
from databazaar.valuation.context import Context
from databazaar.valuation.lockstep import Request, Steps
from databazaar.valuation.method import SteppedMethod, as_function
from databazaar.valuation.permutations import Averaging, Orders, Shuffle, credit_in_order
from databazaar.valuation.result import ValuationResult
from databazaar.valuation.stopping import BackCheck, MaxPermutations, Rule

Vector = NDArray[np.float64]

STOP = BackCheck(10, 0.01) | MaxPermutations(500)
"""Appendix A.1 of the paper; the cap is the one behind its figures."""


@dataclass(frozen=True, kw_only=True)
class GShapley(SteppedMethod):
    """Gradient Shapley values; `batch` permutations advance side by side."""

    stop: Rule = STOP
    credit_first: bool = True
    batch: int = 25
    kind: ClassVar[str] = "g-shapley"
    limit_argument: ClassVar[str | None] = "stop"

    def steps(self, context: Context) -> Steps:
        n, start, step = len(context.providers), context.start(), context.step(0)
        scores = yield start[None]
        assert isinstance(scores, Scores)
        context.tally.utility_evaluations += 1
        nothing = float(scores.utility[0])
        if not np.isfinite(nothing):
            raise BazaarError(f"the model's own utility is {nothing}: begin with other parameters")
        averaging = Averaging(Shuffle(n, self.seed, "g-shapley"), n, self.stop, context.tally, batch=self.batch)
        while averaging.stopped is None:
            orders, first = averaging.orders(), averaging.running.count
            seeds = [oracle_seed(self.seed, first + row) for row in range(len(orders))]
            after: Vector = yield Walks(start, orders, seeds, step, nothing)
            context.tally.oracle_calls += orders.size
            context.tally.utility_evaluations += orders.size
            before = after[:, :1] if not self.credit_first else np.full((len(orders), 1), nothing)
            averaging.add(credit_in_order(orders, np.concatenate([before, after], axis=1)))
            context.progress(averaging.share)
        running, cost = averaging.running, context.tally.now(averaging.running.count)
        return ValuationResult(self.kind, context.ids, running.mean, running.standard_errors, averaging.stopped, cost)


g_shapley = as_function(GShapley, "g_shapley")
"""`GShapley` as one call."""


def oracle_seed(seed: int, permutation: int) -> int:
    """The oracles' seed in one permutation: a provider meets its data in another order each time."""
    return int(stream(seed, permutation, "g-shapley oracles").integers(2**31))


@dataclass(frozen=True, eq=False)
class Walks(Request):
    """A request for the utilities after the first provider's update, after the second's, …, along each order: [P, n].

    Walk r begins at `start`, which is worth `nothing`, and its oracles' randomness derives from seeds[r].
    """

    start: Tensor
    orders: Orders
    seeds: Sequence[int]
    step: float
    nothing: float

    def walked_by(self, engine: Engine, evaluator: Evaluator) -> Vector | None:
        """The same, if the engine has somebody to walk."""
        orders = zip(self.orders.tolist(), self.seeds, strict=True)
        walks = [Walk(order, self.step, seed, self.nothing) for order, seed in orders]
        found = engine.errands(evaluator, Start(self.start), walks)
        return None if found is None else np.stack(found)

    @staticmethod
    def answer(requests: Sequence[Walks], engine: Engine, evaluator: Evaluator) -> list[Vector]:
        """All walks as rows of one stack. Nothing is fetched from the device before the end. An engine that has others
        to do it for it gets them walk by walk."""
        walked = [walks.walked_by(engine, evaluator) for walks in requests]
        if all(found is not None for found in walked):
            return [found for found in walked if found is not None]
        counts = [len(walks.orders) for walks in requests]
        orders = np.concatenate([walks.orders for walks in requests])
        seeds = [seed for walks in requests for seed in walks.seeds]
        params = torch.cat([walks.start.expand(len(walks.orders), -1) for walks in requests])
        each = np.repeat([[walks.step, walks.nothing] for walks in requests], counts, axis=0)
        steps, worth = torch.from_numpy(each).to(params.device).T
        steps = steps.to(params.dtype)[:, None]
        along = []
        for joining in orders.T.tolist():
            moved = torch.addcmul(params, steps, updates_of(engine, params, joining, seeds))
            after = evaluator.utilities(moved)
            fine = torch.isfinite(after)
            worth = torch.where(fine, after, worth)
            params = torch.where(fine[:, None], moved, params)
            along.append(worth)
        found = torch.stack(along, 1).cpu().numpy()
        ends = np.cumsum(counts).tolist()
        return [found[end - count : end] for end, count in zip(ends, counts, strict=True)]


def updates_of(engine: Engine, params: Tensor, providers: Sequence[int], seeds: Sequence[int]) -> Tensor:
    """Row r: provider r's update of parameters r in round 0, or zero where it fails. [R, d]"""
    if isinstance(engine, VectorizedEngine):
        updates = engine.updates(params, providers, [(seed, 0) for seed in seeds])
        valid = updates.abs().amax(1, keepdim=True) <= LIMIT  # not so for NaN, either
        return torch.where(valid, updates, 0.0)
    asks = [Ask(w, [provider], 0, seed) for w, provider, seed in zip(params, providers, seeds, strict=True)]
    return torch.cat([replies.updates for replies in engine.query_many(asks)])
