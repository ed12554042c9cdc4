"""What a run or a valuation may wish for while somebody drives it, and how wishes are granted.

An `Ask` is answered with Replies, and stacked parameters with Scores. Valuations have wishes of other kinds, which say
themselves how several of them are granted in one go.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from databazaar.engines import Ask, Engine
from databazaar.utilities import Evaluator


class Wish:
    """A wish that can be granted together with others of its kind."""

    @staticmethod
    def grant(wishes: Sequence[Any], engine: Engine, evaluator: Evaluator) -> Sequence[Any]:
        """One answer per wish, each as if it had been granted alone, up to float tolerance."""
        raise NotImplementedError


def drive(play: Generator[Any, Any, Any], engine: Engine, evaluator: Evaluator) -> Any:
    """Grants the wishes of a run, or of a valuation, one by one, and gives what it returns."""
    answer: Any = None
    while True:
        try:
            wish = play.send(answer)
        except StopIteration as end:
            return end.value
        if isinstance(wish, Ask):
            answer = engine.query(wish)
        elif isinstance(wish, Wish):
            (answer,) = wish.grant([wish], engine, evaluator)
        else:
            answer = evaluator.score(wish)
