"""Sums of a large model's updates, coordinate by coordinate: the same bits in whatever pieces, and wherever computed.

Every model that a round scores is one formula, with the sum T of the draws that count, g of one provider more or less,
and the model w that the round began with:

    w + scale · (T + share · g)

Whoever has w, T and its own update can form it without the others' updates. A coordinate is made of the same additions
and products in the same order in a model, in a piece of it and on another machine; a product of matrices would add up
in another order for every shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

ON_ONE_THREAD = 2**17
"""So many numbers, half a megabyte, and what is computed of them stay near a processor. Several threads would part such
a piece among them, and wait for each other longer than they add: market/move.py takes smaller ones."""

GIANT = 2**10
"""An update whose largest number is so many times that of the middle one drowns the others in a sum: T − g would leave
2⁻²⁴ of it in place of them, and a model without it would be nothing like one."""


class Part(NamedTuple):
    """What a model of a round is made of: w + scale · (T + share · g)."""

    scale: float
    share: int


def reached(step: float, draws: int, own: int) -> Part:
    """What a round comes to: γ/m · T. The consumer's `own` update, where there is one, is one more of the m draws."""
    return Part(step / (draws + own), 0)


def rest(step: float, draws: int, own: int, times: int) -> Part:
    """What it comes to without a provider that was drawn so many `times`; where nobody else was drawn, the consumer's
    own update moves nothing."""
    left = draws - times
    return Part(step / (left + own) if left else 0.0, -times)


def half(step: float, draws: int, own: int, times: int) -> tuple[Part, Part]:
    """Half the round's move, but of this provider's part all, and nothing."""
    scale = step / (2 * max(1, draws + own))
    return Part(scale, times), Part(scale, -times)


def total(updates: Iterable[Tensor]) -> Tensor:
    """T: one update after the other, in the order of the draws."""
    pending = iter(updates)
    first, second = next(pending), next(pending, None)
    if second is None:
        return first.clone()
    summed = first + second
    for update in pending:
        summed += update
    return summed


def stepped(params: Tensor, part: Part, summed: Tensor, update: Tensor) -> Tensor:
    """w + scale · (T + share · g)."""
    if part.share:
        summed = summed + (update if part.share == 1 else part.share * update)
    return (part.scale * summed).add_(params)


def stepped_in(room: Tensor, params: Tensor, part: Part, summed: Tensor, update: Tensor) -> Tensor:
    """The same, to the same bits, in the memory of another vector: as much at a time as stays near the processor."""
    for start in range(0, len(params), ON_ONE_THREAD):
        piece = slice(start, start + ON_ONE_THREAD)
        room[piece] = stepped(params[piece], part, summed[piece], update[piece])
    return room


def drowned(largest: Sequence[float]) -> bool:
    """Whether one of the draws drowns the others, by the largest number (without its sign) of each one's update. Then
    nothing is taken from a sum: what is left without a provider is added up by itself."""
    return bool(largest) and max(largest) > GIANT * sorted(largest)[(len(largest) - 1) // 2]
