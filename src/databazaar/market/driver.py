"""Plays runs to their ends: one, ten seeds in lockstep, or the jobs of several consumers with one engine."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from databazaar.engines import Engine
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.market.run import MarketRun


def play(runs: Sequence[MarketRun], engine: Engine) -> None:
    """A round of every run that goes on, until none does. What all of them need at a moment is computed as one stack.

    Runs are independent: each ends as if it were played alone, up to float tolerance.
    """
    going = list(runs)
    while going := _close_ended(going):
        replies = engine.query_many([run.ask() for run in going])
        stacks = [run.stack(reply) for run, reply in zip(going, replies, strict=True)]
        scores = score_together([run.evaluator for run in going], stacks)
        models = [run.conclude(score) for run, score in zip(going, scores, strict=True)]  # type: ignore[arg-type]
        reached = score_together([run.evaluator for run in going], models)
        for run, score in zip(going, reached, strict=True):
            run.settle(score)


def _close_ended(runs: Sequence[MarketRun]) -> list[MarketRun]:
    """Those that go on; the others are closed."""
    going = []
    for run in runs:
        if run.ended:
            run.close()
        else:
            going.append(run)
    return going


def score_together(evaluators: Sequence[Evaluator], stacks: Sequence[Tensor | None]) -> list[Scores | None]:
    """Every stack's scores by its own evaluator; stacks that share one are scored in one pass."""
    found: list[Scores | None] = [None] * len(stacks)
    for evaluator in {id(own): own for own in evaluators}.values():
        pairs = enumerate(zip(evaluators, stacks, strict=True))
        alike = {i: stack for i, (own, stack) in pairs if own is evaluator and stack is not None}
        if alike:
            for i, scores in zip(alike, evaluator.score_many(list(alike.values())), strict=True):
                found[i] = scores
    return found
