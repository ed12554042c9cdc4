"""Line 10 of Algorithm 1: the model that a round's updates lead to, with all of them or without one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from databazaar.aggregators import Aggregator, Mean
from databazaar.engines import Replies
from databazaar.learning import sums
from databazaar.learning.models import LARGE
from databazaar.learning.sums import Part, drowned, stepped, total
from databazaar.market.state import State

PIECES, ALIGNED = 64, 1024
"""A large model is made in so many pieces, each a multiple of so many coordinates: what is held of the updates
beside them is a 64th, and a processor adds up inside a piece as it does in the whole."""
NEAR, LAUNCHED = 2**15, 8
"""Sums are the same in any pieces. On a CPU they are of so many coordinates: near the processor, and not parted among
threads, which would wait for each other longer than they add. A GPU has to be told of each, so there are so many."""


@dataclass(frozen=True)
class Move:
    """Line 10, with all that it depends on but the draws that count.

    The consumer's own update, where there is one, counts as one more draw. Alone it moves nothing. Means of a large
    model's updates are sums by learning/sums.py.
    """

    aggregator: Aggregator
    state: State
    asked: Sequence[int]
    replies: Replies
    step: float
    own: Tensor | None
    _kept: dict[tuple[int, ...], Tensor] = field(default_factory=dict, repr=False, compare=False)
    """The sum of the draws that was last made of updates that are far."""

    @property
    def large(self) -> bool:
        return len(self.state.params) > LARGE

    def __call__(self, good: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The model after the updates of the `good` draws, in their order, and the aggregator's new state."""
        state, updates = self.state, self.replies.updates
        if not good:
            return state.params, state.aggregator
        if self.large and type(self.aggregator) is Mean:
            return self.summed(sums.reached(self.step, len(good), self._own), good), state.aggregator
        rows = torch.tensor([self.asked.index(i) for i in good])
        rows = rows.to(updates.device, non_blocking=True)  # a plain list would wait for the device
        if self.large and getattr(self.aggregator, "by_coordinate", False):
            return self.in_pieces(rows), state.aggregator
        chosen = updates[rows]
        if self.own is not None:
            chosen = torch.cat([chosen, self.own[None]])
        combined, moved = self.aggregator.combine(state.aggregator, chosen, self.step)
        return state.params + moved, combined

    @property
    def _own(self) -> int:
        """How many draws the consumer's own update counts as."""
        return 0 if self.own is None else 1

    def in_pieces(self, rows: Tensor, size: int | None = None) -> Tensor:
        """The same model, some coordinates at a time: no second copy of the updates is made. (Sums over a last piece of
        a few coordinates may be rounded otherwise; where pieces end depends on the model alone.)"""
        params, updates = self.state.params, self.replies.updates
        reached = torch.empty_like(params)
        for piece in self._pieces(size):
            chosen = updates[:, piece][rows].to(params.device)
            if self.own is not None:
                chosen = torch.cat([chosen, self.own[None, piece]])
            reached[piece] = params[piece] + self.aggregator.combine(self.state.aggregator, chosen, self.step)[1]
        return reached

    def summed(self, part: Part, draws: Sequence[int], provider: int | None = None, size: int | None = None) -> Tensor:
        """The model that is this part of the sum over `draws`, and the consumer's own, and of the provider's update."""
        if not draws and self.own is None:
            return self.state.params
        params, reached = self.state.params, torch.empty_like(self.state.params)
        known = self._known(draws) if self.replies.far and len(draws) > 1 else None
        for piece in self._pieces(size or self._handy):
            summed = self._total(draws, piece) if known is None else known[piece]
            one = params[:0] if provider is None else self._piece_of(provider, piece)
            reached[piece] = stepped(params[piece], part, summed, one)
        return reached

    def _total(self, draws: Sequence[int], piece: slice) -> Tensor:
        """Some coordinates of the sum, with the consumer's own update."""
        updates = [self._piece_of(i, piece) for i in draws]
        return total(updates if self.own is None else [*updates, self.own[piece]])

    def _known(self, draws: Sequence[int]) -> Tensor:
        """All of them, made once for all models that it is in: there is memory for that where updates are not in it."""
        if tuple(draws) not in self._kept:
            self._kept.clear()
            summed = torch.empty_like(self.state.params)
            for piece in self._pieces(self._handy):
                summed[piece] = self._total(draws, piece)
            self._kept[tuple(draws)] = summed
        return self._kept[tuple(draws)]

    def _pieces(self, size: int | None = None) -> Iterator[slice]:
        width = len(self.state.params)
        size = size or -(-width // (PIECES * ALIGNED)) * ALIGNED
        return (slice(start, start + size) for start in range(0, width, size))

    @property
    def _handy(self) -> int:
        """How large the pieces of sums are."""
        params = self.state.params
        return NEAR if params.device.type == "cpu" else -(-len(params) // LAUNCHED)

    def _piece_of(self, provider: int, piece: slice) -> Tensor:
        """Some coordinates of its update, where the model is."""
        return self.replies.updates[self.asked.index(provider), piece].to(self.state.params.device)

    def alone(self, rows: slice = slice(None)) -> Tensor:
        """The models with one update each."""
        if self.large:
            return _stacked([replace(self, own=None).summed(Part(self.step, 0), [i]) for i in self.asked[rows]])
        return (self.step * self.replies.updates[rows]).add_(self.state.params)

    def without_each(self, good: Sequence[int], rows: slice = slice(None)) -> Tensor:
        """The models without each of those asked, or with it where it is left out; one a row. Means are taken for all
        of them in one product, and of large models one by one: w + γ/(m − c_i) · (T − c_i g_i), where i is c_i of the m
        draws that count."""
        rests = [[j for j in good if j != i] if self._counts(i, good) else [*good, i] for i in self.asked][rows]
        if type(self.aggregator) is not Mean:
            return _stacked([self(rest)[0] for rest in rests])
        if self.large:
            pairs = [(self.rest(i, good), i) for i in self.asked[rows]]
            return _stacked([self._with_or_without(part, i, good) for part, i in pairs])
        shares = [
            [rest.count(i) for i in self.asked] + [1] * self._own if rest else [0] * (len(self.asked) + self._own)
            for rest in rests
        ]
        return self._moved_by(
            [self.step * share / max(1, len(rest) + self._own) for share in row]
            for row, rest in zip(shares, rests, strict=True)
        )

    def halfway_with_and_without_each(self, good: Sequence[int], rows: slice = slice(None)) -> Tensor:
        """Half of the move, but of one provider's part all (first those asked, one a row) or nothing (then again). One
        that is left out has no part in the others' rows. Of large models: w + γ/2m · (T ± c_i g_i).

        The consumer's update, one more draw, is a player like the others: there is half of it in every row.
        """
        if all(i in self.replies.failures for i in self.asked):
            return self.state.params.expand(2 * len(self.asked), -1)[rows]
        if self.large:
            halves = [(i, whole) for whole in (True, False) for i in self.asked]
            return _stacked([self._with_or_without(self.half(*one, good), one[0], good) for one in halves[rows]])
        parts = [[whole if j == i else 0.5 for j in self.asked] for whole in (1.0, 0.0) for i in self.asked]
        counted = [good if self._counts(i, good) else [*good, i] for i in self.asked] * 2
        return self._moved_by(
            [
                self.step / max(1, len(draws) + self._own) * times
                for times in [
                    *(draws.count(i) * half for i, half in zip(self.asked, part, strict=True)),
                    *[0.5] * self._own,
                ]
            ]
            for part, draws in zip(parts[rows], counted[rows], strict=True)
        )

    def rest(self, provider: int, good: Sequence[int]) -> Part:
        """What the round comes to without the provider, or with it where it is left out; where nobody else is drawn,
        the consumer's own update moves nothing."""
        if self._counts(provider, good):
            return sums.rest(self.step, len(good), self._own, good.count(provider))
        return Part(self.step / (len(good) + 1 + self._own), 1)

    def half(self, provider: int, whole: bool, good: Sequence[int]) -> Part:
        """Who is left out is one more draw in its own two rows: twice its half is added to the sum, or nothing."""
        if not self._counts(provider, good):
            return Part(self.step / (2 * (len(good) + self._own + 1)), 2 if whole else 0)
        return sums.half(self.step, len(good), self._own, good.count(provider))[0 if whole else 1]

    def _with_or_without(self, part: Part, provider: int, good: Sequence[int]) -> Tensor:
        """The model of this part; where the sum would be drowned, what is left without the provider is summed anew."""
        if not part.scale:
            return self.state.params
        if part.share < 0 and drowned([self._largest[i] for i in good]):
            return self.summed(part._replace(share=0), [i for i in good if i != provider])
        if not good and not self._own:  # nobody counts but who is left out
            return self.summed(part._replace(share=0, scale=part.scale * part.share), [provider])
        return self.summed(part, good, provider)

    @cached_property
    def _largest(self) -> dict[int, float]:
        """The largest number of each update, without its sign."""
        ends = torch.stack([torch.stack(torch.aminmax(update)) for update in self.replies.updates])
        return dict(zip(self.asked, ends.abs().amax(1).tolist(), strict=True))

    def _counts(self, provider: int, good: Sequence[int]) -> bool:
        """Whether it is in the average, or has failed; else it was left out."""
        return provider in good or provider in self.replies.failures

    def _moved_by(self, weights: Iterable[list[float]]) -> Tensor:
        """The models that so much of each update leads to, one a row; the consumer's own update comes last."""
        updates = self.replies.updates if self.own is None else torch.cat([self.replies.updates, self.own[None]])
        return (torch.tensor(list(weights)).to(updates) @ updates).add_(self.state.params)


def _stacked(models: Sequence[Tensor]) -> Tensor:
    """One a row; a single one where it lies."""
    return models[0][None] if len(models) == 1 else torch.stack(list(models))


def length(update: Tensor, size: int = 2**20) -> float:
    """‖g‖ in 64 bits, in pieces: a vector of 64 bits would be two more copies."""
    return math.hypot(
        *(float(torch.linalg.vector_norm(piece, dtype=torch.float64)) for piece in torch.split(update, size))
    )
