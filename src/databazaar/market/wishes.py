"""What a run or a valuation may wish for while somebody drives it, and how wishes are granted.

An `Ask` is answered with Replies, and stacked parameters with Scores. Valuations have wishes of other kinds, which say
themselves how several of them are granted in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from databazaar.engines import Ask, Engine
from databazaar.learning.utilities import Evaluator

T = TypeVar("T")


class Wish:
    """A wish that can be granted together with others of its kind."""

    @staticmethod
    def grant(wishes: Sequence[Any], engine: Engine, evaluator: Evaluator) -> Sequence[Any]:
        """One answer per wish, each as if it had been granted alone, up to float tolerance."""
        raise NotImplementedError


def drive(play: Generator[Any, Any, Any], engine: Engine, evaluator: Evaluator) -> Any:
    """Grants the wishes of a run, or of a valuation, one by one, and gives what it returns."""

    def granted(wish: Any) -> Any:
        if isinstance(wish, Ask):
            return engine.query(wish)
        if isinstance(wish, Wish):
            (answer,) = wish.grant([wish], engine, evaluator)
            return answer
        return evaluator.score(wish)

    return finish(play, granted)


def finish(asking: Generator[Any, Any, T], answer: Callable[[Any], Any]) -> T:
    """Answers all that a generator asks for, to its end, and gives what it returns."""
    found: Any = None
    while True:
        try:
            question = asking.send(found)
        except StopIteration as end:
            returned: T = end.value
            return returned
        found = answer(question)
