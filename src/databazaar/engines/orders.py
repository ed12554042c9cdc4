"""Plans made where they are used: from each row's provider, key and step, in tensor code that a CUDA graph can hold.

The host hands over three numbers a row. The orders are those of `randomness.sample_order`, number for number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines.stacks import BatchPlan, Stack
from databazaar.learning.oracles import FullGradient, LocalSGD, Oracle, StochasticGradient
from databazaar.randomness import EPOCH, GOLDEN, ROUNDS

LAST = 2**63 - 1
"""The largest rank, for samples that a provider does not have; one that it has gets it once in 2⁶⁴."""


@dataclass(frozen=True)
class Rows:
    """What the host says of each of R rows."""

    providers: Tensor  # [R] int64
    keys: Tensor  # [R] int64, from randomness.oracle_keys
    steps: Tensor  # [R] float32

    @classmethod
    def of(cls, providers: NDArray[np.int64], keys: NDArray[np.int64], steps: NDArray[np.float32]) -> Rows:
        return cls(torch.from_numpy(providers), torch.from_numpy(keys), torch.from_numpy(steps))

    def to(self, device: torch.device) -> Rows:
        return Rows(*(part.to(device, non_blocking=True) for part in self.tensors))

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.providers, self.keys, self.steps


def shape_of(oracle: Oracle, samples: int) -> tuple[int, int]:
    """Steps, and samples in each, of a provider with so many samples."""
    if isinstance(oracle, FullGradient):
        return 1, samples
    batch = min(oracle.batch_size, samples)
    return (1 if isinstance(oracle, StochasticGradient) else oracle.epochs * -(-samples // batch)), batch


class Planner:
    """Rows → BatchPlan, for providers that share an oracle; `sizes` [n] are all providers' numbers of samples."""

    def __init__(self, oracle: Oracle, sizes: Tensor, largest: int) -> None:
        self.shape = shape_of(oracle, largest)
        self._width = -(-largest // self.shape[1]) * self.shape[1]
        self._epochs = oracle.epochs if isinstance(oracle, LocalSGD) else 1
        self._shuffles = not isinstance(oracle, FullGradient)
        self._sizes = sizes

    def __call__(self, rows: Rows) -> BatchPlan:
        steps, batch = self.shape
        sizes = self._sizes[rows.providers][:, None]
        start = torch.arange(0, steps * batch, batch, device=sizes.device)
        lane = torch.arange(batch, device=sizes.device)
        span = -(-sizes // batch) * batch  # an epoch, its last batch filled up
        epoch, within = start // span, start % span
        counts = (sizes - within).clamp(max=batch) * (epoch < self._epochs)
        used = lane < counts[:, :, None]
        if not self._shuffles:
            local = lane
        else:
            orders = sample_orders(rows.keys, sizes, self._width, self._epochs)
            if self._epochs > 1:
                places = (epoch * self._width + within)[:, :, None] + lane
                orders = orders.gather(1, (places * used).flatten(1))
            local = orders[:, : steps * batch].view(used.shape)
        return BatchPlan(
            rows.providers,
            local * used,
            used * counts.clamp(min=1).reciprocal()[:, :, None],
            rows.steps[:, None].masked_fill(counts == 0, 0.0),
        )


class ComputeUpdates(Protocol):
    """Computes R updates from what the host says of R rows."""

    def __call__(self, params: Tensor, rows: Rows) -> Tensor:
        """Updates [R, d] from parameters [R, d]; `rows` may lie on the host."""


class PlannedStack:
    """A stack with its planner in front."""

    def __init__(self, planner: Planner, stack: Stack) -> None:
        self._planner = planner
        self._stack = stack

    def __call__(self, params: Tensor, rows: Rows) -> Tensor:
        return self._stack(params, self._planner(rows.to(params.device)))


def sample_orders(keys: Tensor, sizes: Tensor, width: int, epochs: int) -> Tensor:
    """Each row's orders of all epochs, end to end: [R, epochs · width]; the first sizes[r, 0] of each epoch count."""
    sample = torch.arange(width, device=keys.device)
    counters = torch.arange(epochs, device=keys.device)[:, None] * EPOCH + sample
    ranks = _mix(keys[:, None, None] + counters * _signed(GOLDEN))
    ranks.masked_fill_(sample >= sizes[:, :, None], LAST)
    on_cpu = ranks.device.type == "cpu"  # where NumPy sorts faster
    order = torch.from_numpy(ranks.numpy().argsort()) if on_cpu else ranks.argsort()
    return order.view(len(keys), -1)


def _mix(z: Tensor) -> Tensor:
    """As in randomness.py, in place; a signed shift drags the sign along, and the mask takes it off."""
    for shift, factor in ROUNDS:
        z ^= (z >> shift).bitwise_and_(2 ** (64 - shift) - 1)
        z *= _signed(factor)
    return z


def _signed(word: int) -> int:
    """The int64 with the same bits."""
    return word - 2**64 if word >= 2**63 else word
