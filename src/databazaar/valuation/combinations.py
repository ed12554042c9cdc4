"""The utilities of a round's models w + Σ_i c_i g_i, scored here or by whoever the engine has for it.

Elsewhere the rows of coefficients go in blocks, each to one worker: w and the updates g are sent once for a round, and
utilities alone come back. How the rows are cut depends on what a model costs and on nothing else, so the bits are the
same with any number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from databazaar.engines import Engine
from databazaar.engines.errands import RunsErrands, Start
from databazaar.learning.utilities import Evaluator
from databazaar.valuation.scoring import FirstLayer, Scorer, Weights, scorer_of

WORTH_A_TRIP = 2**30
"""Multiplications, of some 60 ms, below which models are scored here: two blocks, and what it takes to ask for them."""

SENT = 64
"""Multiplications that take about as long as sending one float of w and the updates."""

BLOCK = 2**29
"""Multiplications of one block, about: some 30 ms, where a call takes some 3."""


def score_combinations(engine: Engine, scorer: Scorer, coefficients: Weights) -> NDArray[np.float64]:
    """The utilities of w + Σ_i c_i g_i: by whoever the engine has for it, or here, where it has nobody or it is not
    worth the trip."""
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
    """An errand: the utilities of some of a round's models."""

    coefficients: Weights

    @property
    def length(self) -> int:
        return len(self.coefficients)

    def run(self, engine: Engine, evaluator: Evaluator, start: Start) -> NDArray[np.float64]:
        """By the scorer that the run itself would have used, which is made once for the round."""
        updates = start.updates
        assert updates is not None
        scorer = start.once(lambda: scorer_of(FirstLayer.of(evaluator), evaluator, start.params, updates))
        return scorer(self.coefficients)
