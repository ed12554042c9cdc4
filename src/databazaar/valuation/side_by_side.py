"""Several runs in lockstep: what all of them wish for at the same moment is computed as one stack."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from databazaar.engines import Ask, Replies, VectorizedEngine
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.market.wishes import Wish


def drive_together(
    plays: Sequence[Generator[Any, Any, Any]], engine: VectorizedEngine, evaluator: Evaluator
) -> list[Any]:
    """Plays all runs (or valuations) to their ends and gives what each returned, in order.

    Runs are independent; each gets the same answers as if it were driven alone, up to float tolerance.
    """
    results: list[Any] = [None] * len(plays)
    answers: dict[int, Any] = dict.fromkeys(range(len(plays)))
    while answers:
        wishes: dict[int, Any] = {}
        for i, answer in answers.items():
            try:
                wishes[i] = plays[i].send(answer)
            except StopIteration as end:
                results[i] = end.value
        answers = {
            **_ask_all(wishes, engine),
            **_score_all(wishes, evaluator),
            **_grant_all(wishes, engine, evaluator),
        }
    return results


def _grant_all(wishes: dict[int, Any], engine: VectorizedEngine, evaluator: Evaluator) -> dict[int, Any]:
    answers: dict[int, Any] = {}
    for kind in {type(wish) for wish in wishes.values() if isinstance(wish, Wish)}:
        alike = {i: wish for i, wish in wishes.items() if type(wish) is kind}
        answers.update(zip(alike, kind.grant(list(alike.values()), engine, evaluator), strict=True))
    return answers


def _ask_all(wishes: dict[int, Any], engine: VectorizedEngine) -> dict[int, Replies]:
    asks = {i: wish for i, wish in wishes.items() if isinstance(wish, Ask)}
    return dict(zip(asks, engine.query_many(list(asks.values())), strict=True)) if asks else {}


def _score_all(wishes: dict[int, Any], evaluator: Evaluator) -> dict[int, Scores]:
    stacks = {i: wish for i, wish in wishes.items() if isinstance(wish, Tensor)}
    if not stacks:
        return {}
    scores = evaluator.score(torch.cat(list(stacks.values())))
    ends = np.cumsum([len(stack) for stack in stacks.values()])[:-1]
    utilities = np.split(scores.utility, ends)
    losses = np.split(scores.loss, ends) if scores.loss is not None else [None] * len(stacks)
    return {i: Scores(u, loss) for i, u, loss in zip(stacks, utilities, losses, strict=True)}
