"""Line 10 of Algorithm 1: the model that a round's updates lead to, with all of them or without one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from databazaar.aggregators import Aggregator, Mean
from databazaar.engines import Replies
from databazaar.market.state import State


@dataclass(frozen=True)
class Move:
    """Line 10, with all that it depends on but the draws that count.

    The consumer's own update, where there is one, counts as one more draw. Alone it moves nothing.
    """

    aggregator: Aggregator
    state: State
    asked: Sequence[int]
    replies: Replies
    step: float
    own: Tensor | None

    def __call__(self, good: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The model after the updates of the `good` draws, in their order, and the aggregator's new state."""
        state, updates = self.state, self.replies.updates
        if not good:
            return state.params, state.aggregator
        rows = torch.tensor([self.asked.index(i) for i in good])
        chosen = updates[rows.to(updates.device, non_blocking=True)]  # a plain list would wait for the device
        if self.own is not None:
            chosen = torch.cat([chosen, self.own[None]])
        combined, moved = self.aggregator.combine(state.aggregator, chosen, self.step)
        return state.params + moved, combined

    @property
    def _own(self) -> int:
        """How many draws the consumer's own update counts as."""
        return 0 if self.own is None else 1

    def alone(self, rows: slice = slice(None)) -> Tensor:
        """The models with one update each."""
        return (self.step * self.replies.updates[rows]).add_(self.state.params)

    def without_each(self, good: Sequence[int], rows: slice = slice(None)) -> Tensor:
        """The models without each of those asked, or with it where it is left out; one a row. Means are taken for all
        of them in one product."""
        rests = [[j for j in good if j != i] if self._counts(i, good) else [*good, i] for i in self.asked][rows]
        if type(self.aggregator) is not Mean:
            return torch.stack([self(rest)[0] for rest in rests])
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
        that is left out has no part in the others' rows.

        The consumer's update, one more draw, is a player like the others: there is half of it in every row.
        """
        if all(i in self.replies.failures for i in self.asked):
            return self.state.params.expand(2 * len(self.asked), -1)[rows]
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

    def _counts(self, provider: int, good: Sequence[int]) -> bool:
        """Whether it is in the average, or has failed; else it was left out."""
        return provider in good or provider in self.replies.failures

    def _moved_by(self, weights: Iterable[list[float]]) -> Tensor:
        """The models that so much of each update leads to, one a row; the consumer's own update comes last."""
        updates = self.replies.updates if self.own is None else torch.cat([self.replies.updates, self.own[None]])
        return (torch.tensor(list(weights)).to(updates) @ updates).add_(self.state.params)


def length(update: Tensor, size: int = 2**20) -> float:
    """‖g‖ in 64 bits, in pieces: a vector of 64 bits would be two more copies."""
    return math.hypot(
        *(float(torch.linalg.vector_norm(piece, dtype=torch.float64)) for piece in torch.split(update, size))
    )
