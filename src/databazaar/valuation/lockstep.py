"""Valuations as generators: what one may ask for, and how one or several are run in lockstep.

A valuation yields what it needs and is sent the answer: an `Ask` is answered with Replies, stacked parameters with
Scores, and a `Request` with whatever its kind promises. What several valuations need at the same moment is computed as
one stack.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from torch import Tensor

from databazaar.engines import Ask, Engine, Replies
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.valuation.result import ValuationResult

T = TypeVar("T")


class Request:
    """Something that a valuation needs and that is computed together with others of its kind."""

    @staticmethod
    def answer(requests: Sequence[Any], engine: Engine, evaluator: Evaluator) -> Sequence[Any]:
        """One answer per request, each as if it had been answered alone, up to float tolerance."""
        raise NotImplementedError


Steps = Generator[Ask | Tensor | Request, Any, ValuationResult]
"""A valuation, step by step."""


def run_in_lockstep(runs: Sequence[Generator[Any, Any, T]], engine: Engine, evaluator: Evaluator) -> list[T]:
    """Runs all generators to their ends and gives what each returned, in order.

    They are independent; each gets the same answers as if it were run alone, up to float tolerance.
    """
    results: dict[int, T] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(runs)))
    while answers:
        needs: dict[int, Any] = {}
        for i, answer in answers.items():
            try:
                needs[i] = runs[i].send(answer)
            except StopIteration as end:
                results[i] = end.value
        answers = {
            **_ask_all(needs, engine),
            **_score_all(needs, evaluator),
            **_answer_all(needs, engine, evaluator),
        }
    return [results[i] for i in range(len(runs))]


def _ask_all(needs: dict[int, Any], engine: Engine) -> dict[int, Replies]:
    asks = {i: need for i, need in needs.items() if isinstance(need, Ask)}
    return dict(zip(asks, engine.query_many(list(asks.values())), strict=True)) if asks else {}


def _score_all(needs: dict[int, Any], evaluator: Evaluator) -> dict[int, Scores]:
    stacks = {i: need for i, need in needs.items() if isinstance(need, Tensor)}
    return dict(zip(stacks, evaluator.score_many(list(stacks.values())), strict=True)) if stacks else {}


def _answer_all(needs: dict[int, Any], engine: Engine, evaluator: Evaluator) -> dict[int, Any]:
    answers: dict[int, Any] = {}
    for kind in {type(need) for need in needs.values() if isinstance(need, Request)}:
        alike = {i: need for i, need in needs.items() if type(need) is kind}
        answers.update(zip(alike, kind.answer(list(alike.values()), engine, evaluator), strict=True))
    return answers
