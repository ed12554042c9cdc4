"""Linear models by Newton's method, with what earlier rows have left: one linear system a step, in float64.

The problem. With parameters θ (a row of weights and an intercept for each output), ridge Λ (λ on weights, 0 on
intercepts) and the rows of rounds s ≤ t, a round looks for

    argmin_θ  Σ_s decay^(t−s) (½ θ'Λθ + Σ_{rows of s} loss(θ))

where the summands of earlier rounds are replaced by the quadratics that touch them where they were solved. Together
these are one quadratic ½ θ'Sθ − b'θ. Party i of a round gives the negative gradient g_i and the Hessian H_i of its
summed loss at θ, times its draws. With S' = decay · S + Λ + Σ H_i the step is

    S'^-1 (Σ g_i + decay (b − Sθ) − Λθ)

so party i's part is S'^-1 g_i. The parts add up to the move with one that belongs to nobody: the ridge's, and what the
model has not yet made of earlier rounds (halved steps, rounding to float32). Squared error is its own quadratic: with
decay 1 the model is ridge regression on all rows so far, with λ times the rounds. For classes the step is halved until
the objective, with the true loss of the round's rows, does not rise.

Hessians. Outputs that share one have one block: numbers all, and two classes, whose softmax moves along differences
alone. Of C > 2 classes each has a block with the weight C/(C−1) · p(1−p), as in learning/trees/objectives.py, and what
lies between classes is left out: exact at equal probabilities, C times smaller to keep and C² times faster to solve.
Columns are scaled to a diagonal of ones before they are solved for, and FLOOR is added there: columns that are the same
share their weight, and no column's unit matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from databazaar.learning.losses import Loss, binary_cross_entropy, cross_entropy, squared_error

Rows = tuple[Tensor, Tensor]
"""Features and a one [rows, features + 1], and targets, on the host and in float64."""
FLOOR = 1e-12
"""Added to a diagonal of ones before it is solved: columns may be constant or the same."""
HALVINGS, STEPS, CLOSE = 20, 50, 1e-8
"""The most halvings of a step; the most steps of a fit, which ends when a step moves no parameter by more than so."""


@dataclass(frozen=True)
class Quadratic:
    """½ θ'Sθ − b'θ: `hessian` S [blocks, width, width] and `linear` b [outputs, width], a width for the intercept."""

    hessian: Tensor
    linear: Tensor

    def slope(self, at: Tensor) -> Tensor:
        """Its negative gradient."""
        return self.linear - _times(self.hessian, at)


class Step(NamedTuple):
    """Parts of the move [parties + 1, outputs, width], nobody's last, what stays of all rows, and how much of the full
    step was taken."""

    parts: Tensor
    after: Quadratic
    share: float = 1.0


@dataclass(frozen=True)
class LinearProblem:
    """What is minimised: a loss of linear outputs, and a ridge."""

    loss: Loss
    outputs: int
    width: int
    ridge: float

    @property
    def blocks(self) -> int:
        return self.outputs if self.loss is cross_entropy and self.outputs > 2 else 1

    @property
    def nothing(self) -> Quadratic:
        """Before the first rows."""
        zero = torch.zeros(self.blocks, self.width, self.width, dtype=torch.float64)
        return Quadratic(zero, zero.new_zeros(self.outputs, self.width))

    def step(self, at: Tensor, before: Quadratic, decay: float, parties: Sequence[tuple[Rows, float]]) -> Step:
        """One round. Each party's rows count so many times."""
        x, y = (torch.cat([rows[part] for rows, _ in parties]) for part in (0, 1))
        sizes = [len(rows[1]) for rows, _ in parties]
        times = torch.tensor([many for _, many in parties]).double().repeat_interleave(torch.tensor(sizes))
        scores = x @ at.T
        gradients, weights = (each * times[:, None] for each in self.slopes(scores, y))
        pieces = zip(torch.split(gradients, sizes), torch.split(x, sizes), strict=True)
        pulls = torch.stack([theirs.T @ features for theirs, features in pieces])
        ridge = torch.full((self.width,), self.ridge, dtype=torch.float64)
        ridge[-1] = 0.0
        bought = torch.stack([(x * weight[:, None]).T @ x for weight in weights.T])
        after = Quadratic(
            decay * before.hessian + bought + torch.diag(ridge),
            decay * before.linear + pulls.sum(0) + _times(bought, at),
        )
        rest = decay * before.slope(at) - ridge * at
        parts = _solved(after.hessian, torch.cat([pulls, rest[None]]))
        if self.loss is squared_error:
            return Step(parts, after)
        move = parts.sum(0)
        slope = float((rest * move).sum())
        bend = float(((decay * _times(before.hessian, move) + ridge * move) * move).sum())
        along, losses = x @ move.T, self.loss(scores, y) * times
        share = 1.0
        for _ in range(HALVINGS):
            rise = float((self.loss(scores + share * along, y) * times - losses).sum())
            if rise - share * slope + share**2 * bend / 2 <= FLOOR * float(losses.sum()):
                return Step(share * parts, after, share)
            share /= 2
        return Step(0 * parts, after, 0.0)

    def row_values(self, at: Tensor, step: Step, rows: Rows, along: Tensor) -> Tensor:
        """⟨part of each row, along⟩, where a row's part is S'^-1 of its negative gradient: it needs one solution in
        all, of S' times it = along [outputs, width]."""
        (towards,) = step.share * _solved(step.after.hessian, along[None])
        slopes, _ = self.slopes(rows[0] @ at.T, rows[1])
        values: Tensor = (slopes * (rows[0] @ towards.T)).sum(1)
        return values

    def fitted(self, start: Tensor, rows: Rows, close: float = CLOSE) -> Tensor:
        """The minimum for these rows alone."""
        at, nothing = start, self.nothing
        for _ in range(STEPS):
            move = self.step(at, nothing, 0.0, [(rows, 1.0)]).parts.sum(0)
            at = at + move
            if float(move.abs().max()) <= close * (1 + float(at.abs().max())):
                break
        return at

    def mean_loss(self, at: Tensor, rows: Rows) -> float:
        return float(self.loss(rows[0] @ at.T, rows[1]).mean())

    def slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Negative gradient [rows, outputs] and Hessian [rows, blocks] of each row's loss, by its scores."""
        if self.loss is squared_error:
            return y.reshape(scores.shape) - scores, scores.new_ones(len(scores), 1)
        if self.loss is binary_cross_entropy:
            p = torch.sigmoid(scores)
            return y[:, None] - p, p * (1 - p)
        p, right = torch.softmax(scores, 1), y[:, None] == torch.arange(self.outputs)
        return right.double() - p, (self.outputs / (self.outputs - 1) * p * (1 - p))[:, : self.blocks]


def _times(blocks: Tensor, at: Tensor) -> Tensor:
    """The rows of `at` [outputs, width], each multiplied by its block, or all by the one."""
    return (blocks @ at[:, :, None])[:, :, 0]


def _solved(blocks: Tensor, right: Tensor) -> Tensor:
    """Solutions for right sides [many, outputs, width], by the block of each output."""
    scale = blocks.diagonal(dim1=-2, dim2=-1).sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    even = blocks / scale[:, :, None] / scale[:, None, :]
    even.diagonal(dim1=-2, dim2=-1).add_(FLOOR)
    roots = torch.linalg.cholesky_ex(even).L
    columns = (right / scale).permute(1, 2, 0)
    solved = [torch.cholesky_solve(each, roots[place % len(roots)]) for place, each in enumerate(columns)]
    return torch.stack(solved).permute(2, 0, 1) / scale
