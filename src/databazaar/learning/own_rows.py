"""What the consumer's own rows give without any market: the model to start from, and the one to be better than."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, NamedInputs
from databazaar.learning.oracles import LocalSGD, compute_update
from databazaar.learning.task import Task
from databazaar.learning.torch_state import limited_threads
from databazaar.learning.utilities import Evaluator
from databazaar.randomness import oracle_key

STEPS = (0.3, 0.1, 0.03)
"""The learning rates that are tried."""
MOST_STEPS, MOST_PASSES, PATIENCE = 4000, 100, 10
"""A fit ends after so many steps or passes over the rows, or after so many passes on end that were none the better."""
BATCH = 32
"""Samples of a step."""
OWN_ROWS = "own rows"
"""Stands for the consumer where randomness derives from who works on which rows."""


@dataclass(frozen=True)
class OwnFit:
    """Parameters fitted to some rows, with what was found to suit them: the learning rate and the steps."""

    params: Tensor
    step: float
    steps: int
    loss: float


def fit_own_rows(task: Task, start: Tensor, train: Examples, judge: Examples) -> OwnFit:
    """SGD from `start` over `train`, stopped early: of every rate and pass, the model that `judge` likes best.

    Stopping early is all the regularisation there is. `judge` picks the pass, so its loss is a little too good; a
    market's utility is measured on the same rows, so that what it buys must improve on just this model.
    """
    if task.model is None:
        raise BazaarError("train: a model that is a plain vector has no rows to start from: leave train out")
    evaluator = Evaluator(task, judge, "negative-loss", torch.device("cpu"))
    best = OwnFit(start, STEPS[0], 0, _loss(evaluator, start))
    a_pass = -(-len(train[0]) // BATCH)
    for step in STEPS:
        params, since = start, 0
        for number in range(max(1, min(MOST_PASSES, MOST_STEPS // a_pass))):
            params = _pass(task, train, params, step, number)
            loss = _loss(evaluator, params)
            if not np.isfinite(loss):
                break
            since += 1
            if loss < best.loss:
                best, since = OwnFit(params, step, (number + 1) * a_pass, loss), 0
            if since >= PATIENCE:
                break
    return best


def refit(task: Task, start: Tensor, train: Examples, judge: Examples, found: OwnFit) -> Tensor:
    """The same fit on all rows: as many passes over both as `found`, which `judge` has picked, made over `train`.

    A refit that is worse than what was found on rows that it has learned from has failed (such as a rate at which a
    model with dropout or batch norm is as good only now and then): what was found then stays.
    """
    passes, rows = round(found.steps / -(-len(train[0]) // BATCH)), joined([train, judge])
    params = start
    for number in range(passes):
        params = _pass(task, rows, params, found.step, number)
    evaluator = Evaluator(task, judge, "negative-loss", torch.device("cpu"))
    return params if _loss(evaluator, params) <= found.loss else found.params


def joined(parts: Sequence[Examples]) -> Examples:
    """Rows of several tables as one."""
    y = torch.cat([y for _, y in parts])
    named = [x for x, _ in parts if isinstance(x, NamedInputs)]
    plain = [x for x, _ in parts if isinstance(x, Tensor)]
    if named:
        return NamedInputs({name: torch.cat([x.tensors[name] for x in named]) for name in named[0].tensors}), y
    return torch.cat(plain), y


def _pass(task: Task, rows: Examples, params: Tensor, step: float, number: int) -> Tensor:
    oracle = LocalSGD(step=step, batch_size=BATCH, steps=None)
    with limited_threads(len(params)):
        return params + compute_update(oracle, task, rows, params, number, oracle_key(0, number, OWN_ROWS))


def _loss(evaluator: Evaluator, params: Tensor) -> float:
    with limited_threads(len(params)):
        losses = evaluator.score(params[None]).loss
    assert losses is not None
    return float(losses[0])
