"""A round without its updates: whoever computes them adds them up and scores what they lead to, and keeps them.

Where the model moves by the mean of the updates and nobody else looks at them, a market needs their sum, why some of
them failed, and utilities. Of K updates of a large model that is one vector instead of K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from databazaar.engines.protocol import Ask, Replies
from databazaar.learning.sums import Part, half, reached, rest, stepped, total
from databazaar.learning.utilities import Evaluator, Scores


@dataclass(frozen=True)
class Sought:
    """What a market wants to know of an ask's updates. `draws` are who was drawn, in order, as often as it was; `step`
    is γ; `gains` as in market/round.py; `own` is the consumer's own update, which counts as one more draw."""

    ask: Ask
    draws: Sequence[int]
    step: float
    gains: str
    evaluator: Evaluator
    own: Tensor | None = None


@dataclass(frozen=True)
class Summed:
    """The sum of the valid draws' updates, in their order, and last of the consumer's own; why others failed; and the
    scores of the model that it leads to.

    Of each provider that is valid, `utilities` are those of the models that its gain is measured by (`models_of`), and
    `largest` is the largest number of its update, without its sign.
    """

    total: Tensor
    failures: dict[int, str]
    reached: Scores
    utilities: dict[int, tuple[float, ...]]
    largest: dict[int, float]


def models_of(gains: str, step: float, draws: int, own: int, times: int) -> tuple[Part, ...]:
    """What the models are that a provider's gain is measured by, of those that are made with the sum."""
    if gains == "together":
        return (rest(step, draws, own, times),)
    return half(step, draws, own, times) if gains == "shapley" else ()


def largest_of(update: Tensor) -> float:
    return max(abs(float(end)) for end in torch.aminmax(update))


def summed_from(sought: Sought, replies: Replies) -> Summed | None:
    """The same from replies that are here: slow and plain, to compare with. None where no reply is valid."""
    rows = dict(zip(sought.ask.providers, replies.updates, strict=True))
    good = [i for i in sought.draws if i not in replies.failures]
    if not good:
        return None
    own = [] if sought.own is None else [sought.own]
    params, step, summed = sought.ask.params, sought.step, total([*(rows[i] for i in good), *own])

    def score(part: Part, summed: Tensor, update: Tensor) -> Scores:
        return sought.evaluator.score(stepped(params, part, summed, update)[None])

    utilities = {}
    for i in dict.fromkeys(good):
        parts = models_of(sought.gains, step, len(good), len(own), good.count(i))
        found = [score(part, summed, rows[i]) for part in parts] or [score(Part(step, 0), rows[i], rows[i])]
        utilities[i] = tuple(float(scores.utility[0]) for scores in found)
    return Summed(
        summed,
        dict(replies.failures),
        score(reached(step, len(good), len(own)), summed, summed),
        utilities,
        {i: largest_of(rows[i]) for i in dict.fromkeys(good)},
    )
