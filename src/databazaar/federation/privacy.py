"""Differential privacy on the provider's side: DP-SGD updates, and an accountant that the provider keeps.

Every step draws its rows by Poisson sampling, clips each row's gradient to norm `clip`, and adds Gaussian noise
of standard deviation `noise` × `clip` to their sum. Rows and noise come from the operating system's entropy, number by
number: a party that knew a seed could remove the noise, and torch's generator has no more than 2³² of them.

Nothing that a row holds can end in an error: parameters are the market's choice, so they may be such that one row's
gradient overflows and another's does not. A gradient that is not finite counts as zero, and the answer is held within
what a market takes; that happens after the noise and tells nothing.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap

from databazaar.engines.protocol import LIMIT
from databazaar.federation.accountant import Accountant
from databazaar.federation.messages import OracleMessage
from databazaar.federation.policy import ROWS_AT_ONCE, batch_and_steps, built_in
from databazaar.federation.table import Data
from databazaar.learning.oracles import Descent, LocalSGD
from databazaar.learning.task import Task

_BLOCK = 2**20
"""So many random numbers are made at a time: their bytes take more memory than they do."""


@dataclass(frozen=True)
class PrivateUpdates:
    """Answers a market's oracle with DP-SGD in its place: the same steps and batch size, clipped and noisy."""

    noise: float
    clip: float
    accountant: Accountant

    def check(self, oracle: OracleMessage, rows: int, consumer: str = "") -> None:
        self.accountant.check(self.noise, *_work(oracle, rows), consumer)

    def update(
        self,
        oracle: OracleMessage,
        task: Task,
        data: Data,
        params: Tensor,
        rows_at_once: int = ROWS_AT_ONCE,
        consumer: str = "",
    ) -> Tensor:
        rows = len(data[0])
        share, steps = _work(oracle, rows)
        self.accountant.charge(self.noise, share, steps, consumer)
        made = built_in(oracle, rows)
        rate, descend = (oracle.step if isinstance(made, LocalSGD) else 1.0), Descent.of(made)
        w = params.clone()
        for _ in range(steps):
            chosen = drawn(rows, share)
            total = clipped_sum(task, (data[0][chosen], data[1][chosen]), w, self.clip, rows_at_once)
            noisy = total + self.noise * self.clip * normal(len(w))
            descend({"w": w}, [noisy / (share * rows)], rate)
        return torch.nan_to_num(w - params, nan=0.0).clamp(-LIMIT, LIMIT)


def _work(oracle: OracleMessage, rows: int) -> tuple[float, int]:
    """The sample rate and the number of steps of one answer."""
    batch, steps = batch_and_steps(oracle, rows)
    return batch / rows, steps


def clipped_sum(task: Task, data: Data, params: Tensor, clip: float, rows_at_once: int = ROWS_AT_ONCE) -> Tensor:
    """Σ over rows of that row's gradient, each scaled down to norm `clip` where it is longer. A row without a known
    label (−1, or NaN) adds nothing, and neither does one whose gradient is not finite. All chunks have one shape, the
    last is filled up: so a row's gradient is the same number whichever rows go with it."""
    assert task.model is not None
    model, layout = task.model, task.layout

    def loss(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(model, layout.unflatten(flat), (x[None],))
        return task.loss(outputs, y[None]).sum()

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    total = torch.zeros(params.shape, dtype=torch.float64)
    for begin in range(0, len(data[0]), rows_at_once):
        x, y = (_filled(part[begin : begin + rows_at_once], rows_at_once) for part in data)
        rows = gradients(params, x, y)
        counts = torch.isfinite(rows).all(1)
        counts[len(data[0]) - begin :] = False
        if not y.is_floating_point():
            counts &= y >= 0
        total += clipped(torch.where(counts[:, None], rows, 0.0), clip).sum(0, dtype=torch.float64)
    return total.to(params.dtype)


def _filled(part: Tensor, rows: int) -> Tensor:
    return torch.cat([part, part.new_zeros(rows - len(part), *part.shape[1:])]) if len(part) < rows else part


def clipped(rows: Tensor, clip: float) -> Tensor:
    """Each row at norm `clip` where it is longer; also one whose norm is no float any more.

    >>> clipped(torch.tensor([[3.0e38, 3.0e38], [0.3, 0.4], [0.0, 0.0]]), 1.0)
    tensor([[0.7071, 0.7071],
            [0.3000, 0.4000],
            [0.0000, 0.0000]])
    """
    largest = rows.abs().amax(1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1.0)
    unit = rows / scale
    lengths = torch.linalg.vector_norm(unit, dim=1, keepdim=True, dtype=torch.float64).clamp(min=0.5)
    factors: Tensor = ((scale * lengths).clamp(max=clip) / lengths).to(rows.dtype)
    return unit * factors


def drawn(rows: int, share: float) -> Tensor:
    """Which rows a step takes: each by itself, with this chance."""
    return torch.from_numpy(np.concatenate([_uniform(count) < share for count in _blocks(rows)]))


def normal(count: int) -> Tensor:
    """So many standard normal numbers that nobody can foresee, by Box and Muller's transform."""
    out = np.empty(count, dtype=np.float32)
    begin = 0
    for block in _blocks(count):
        half = -(-block // 2)
        radius, angle = np.sqrt(-2 * np.log1p(-_uniform(half))), 2 * np.pi * _uniform(half)
        out[begin : begin + block] = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:block]
        begin += block
    return torch.from_numpy(out)


def _uniform(count: int) -> NDArray[np.float64]:
    """From 0 up to 1, in steps of 2⁻⁵³: in float32, a small chance would be rounded up to the next step."""
    bits = np.frombuffer(secrets.token_bytes(8 * count), np.uint64) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def _blocks(count: int) -> list[int]:
    """
    >>> _blocks(2**20 + 3)
    [1048576, 3]
    """
    return [min(_BLOCK, count - begin) for begin in range(0, count, _BLOCK)]
