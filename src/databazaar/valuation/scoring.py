"""Scoring many models that differ by a few known updates: w + Σ_i c_i g_i for many rows of coefficients c."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines import Engine
from databazaar.engines.errands import RunsErrands, Start
from databazaar.learning.utilities import Evaluator

PLAIN_FLOATS = 2**26
"""Parameters of the models that are formed at a time (256 MiB)."""

WORTH_A_TRIP = 2**30
"""Multiplications, of some 60 ms, below which models are scored here: two blocks, and what it takes to ask for them."""

SENT = 64
"""Multiplications that take about as long as sending one float of w and the updates."""

BLOCK = 2**29
"""Multiplications of one block, about: some 30 ms, where a call takes some 3."""

Weights = NDArray[np.float64]
"""Coefficients c, one model per row: [m, K]."""


class Scorer:
    """Utilities [m] of the models w + Σ_i c_i g_i for coefficients [m, K]. Forms every model: right for any model and
    any utility. `work` is how many multiplications one model takes, about; infinite where nobody knows."""

    def __init__(self, evaluator: Evaluator, params: Tensor, updates: Tensor) -> None:
        self.evaluator = evaluator
        samples = len(evaluator.holdout[1]) if evaluator.judges_rows else float("inf")
        self.work = len(params) * (len(updates) + samples)
        self.start = Start(params, updates)
        self._params, self._updates = params, updates

    def __call__(self, coefficients: Weights) -> NDArray[np.float64]:
        weights = torch.from_numpy(coefficients).to(self._updates)
        parts = torch.split(weights, max(1, PLAIN_FLOATS // len(self._params)))
        models = (torch.addmm(self._params, part, self._updates) for part in parts)
        return np.concatenate([self.evaluator.score(stack).utility for stack in models])


def score_combinations(engine: Engine, scorer: Scorer, coefficients: Weights) -> NDArray[np.float64]:
    """The utilities of w + Σ_i c_i g_i: by the engine's workers, or here, where it has none or it is not worth the
    trip. How rows are cut depends on what a model costs alone, so the bits are the same with any number of workers."""
    size = block_size(scorer, len(coefficients))
    if size is None or not isinstance(engine, RunsErrands):
        return scorer(coefficients)
    blocks = [Block(coefficients[first : first + size]) for first in range(0, len(coefficients), size)]
    found = engine.errands(scorer.evaluator, scorer.start, blocks)
    return scorer(coefficients) if found is None else np.concatenate(found)


def block_size(scorer: Scorer, rows: int) -> int | None:
    """How many models one worker is given at a time; None where all of them are scored here."""
    work = scorer.work
    if not rows * work >= WORTH_A_TRIP + SENT * scorer.start.floats or not np.isfinite(work):
        return None
    return max(1, int(BLOCK // work))


@dataclass(frozen=True, eq=False)
class Block:
    """A remote task: the utilities of some of a round's models."""

    coefficients: Weights

    @property
    def length(self) -> int:
        return len(self.coefficients)

    def run(self, engine: Engine, evaluator: Evaluator, start: Start) -> NDArray[np.float64]:
        """By a scorer that is made once for the round."""
        updates = start.updates
        assert updates is not None
        scorer = start.once(lambda: Scorer(evaluator, start.params, updates))
        return scorer(self.coefficients)
