"""Plans made where they are used: from each row's provider, key and step, in tensor code that a CUDA graph can hold.

The host hands over three numbers a row. The orders are those of `randomness.sample_order`, number for number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from databazaar.engines.stacks import BatchPlan
from databazaar.learning.oracles import FullGradient, LocalSGD, Oracle, StochasticGradient
from databazaar.randomness import EPOCH, GOLDEN, ROUNDS, sample_order

LAST = 2**63 - 1
"""The largest rank, for samples that a provider does not have; one that it has gets it once in 2⁶⁴."""


@dataclass(frozen=True)
class Rows:
    """What the host says of each of R rows; and, where it says that, the most samples that one of them has."""

    providers: Tensor  # [R] int64
    keys: Tensor  # [R] int64, from randomness.oracle_keys
    steps: Tensor  # [R] float32
    largest: int | None = None

    def to(self, device: torch.device) -> Rows:
        providers, keys, steps = (part.to(device, non_blocking=True) for part in self.tensors)
        return Rows(providers, keys, steps, self.largest)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.providers, self.keys, self.steps


def shape_of(oracle: Oracle, samples: int) -> tuple[int, int]:
    """Steps, and samples in each, of a provider with so many samples."""
    if isinstance(oracle, FullGradient):
        return 1, samples
    batch = min(oracle.batch_size, samples)
    return (1 if isinstance(oracle, StochasticGradient) else oracle.step_count(samples)), batch


class Planner:
    """Rows → BatchPlan, for providers that share an oracle; `sizes` [n] are all providers' numbers of samples.

    Plans have the shape that `largest` samples ask for, or fewer steps where the host says that no row has so many.
    """

    def __init__(self, oracle: Oracle, sizes: Tensor, largest: int) -> None:
        self.shape = shape_of(oracle, largest)
        self._oracle = oracle
        self._largest = largest
        self._fewest = int(sizes.min())
        self._epochs = oracle.epochs if isinstance(oracle, LocalSGD) else 1
        self._shuffles = not isinstance(oracle, FullGradient)
        self._sizes = sizes

    def samples_of(self, size: int) -> int:
        """How many samples a provider of this size sends through the model: a measure of its work."""
        steps, batch = shape_of(self._oracle, size)
        return steps * batch

    def _shape_for(self, largest: int) -> tuple[int, int]:
        """As wide as ever, but for much smaller full gradients: a batch of another width may differ in the last bit."""
        steps, batch = shape_of(self._oracle, largest)
        return steps, batch if 5 * batch <= 4 * self.shape[1] and not self._shuffles else self.shape[1]

    def __call__(self, rows: Rows) -> BatchPlan:
        largest = rows.largest or self._largest
        steps, batch = self.shape if rows.largest is None else self._shape_for(largest)
        longest = -(-largest // batch) * batch  # the longest epoch
        width = min(longest, steps * batch)
        begun = min(self._epochs, -(-steps // -(-self._fewest // batch)))  # epochs that anybody begins
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
            one_by_one = 2 * width <= longest and rows.keys.device.type == "cpu"
            orders = (
                first_of_each(rows.keys, sizes, begun, width)
                if one_by_one
                else sample_orders(rows.keys, sizes, longest, begun, width)
            )
            if begun > 1:
                places = (epoch * width + within)[:, :, None] + lane
                orders = orders.gather(1, (places * used).flatten(1))
            local = orders[:, : steps * batch].view(used.shape)
        return BatchPlan(
            rows.providers,
            local * used,
            used * counts.clamp(min=1).reciprocal()[:, :, None],
            rows.steps[:, None].masked_fill(counts == 0, 0.0),
        )


ComputeUpdates = Callable[[Tensor, Rows], Tensor]
"""Updates [R, d] from parameters [R, d] and what the host says of R rows, which may lie on the host."""


def sample_orders(keys: Tensor, sizes: Tensor, width: int, epochs: int, first: int | None = None) -> Tensor:
    """Each row's orders of all epochs, end to end: [R, epochs · width]; the first sizes[r, 0] of each epoch count.

    With `first`, only so many of each epoch: [R, epochs · first].
    """
    sample = torch.arange(width, device=keys.device)
    counters = torch.arange(epochs, device=keys.device)[:, None] * EPOCH + sample
    ranks = _mix(keys[:, None, None] + counters * _signed(GOLDEN))
    ranks.masked_fill_(sample >= sizes[:, :, None], LAST)
    on_cpu = ranks.device.type == "cpu"  # where NumPy sorts faster
    order = torch.from_numpy(ranks.numpy().argsort()) if on_cpu else ranks.argsort()
    return order[..., :first].reshape(len(keys), -1)


def first_of_each(keys: Tensor, sizes: Tensor, epochs: int, first: int) -> Tensor:
    """As `sample_orders`, row by row: on a CPU each provider's own samples alone are ranked."""
    orders = np.zeros((len(keys), epochs, first), dtype=np.int64)
    for row, key, size in zip(orders, keys.tolist(), sizes[:, 0].tolist(), strict=True):
        for epoch in range(epochs):
            order = sample_order(key, size, epoch, first=min(first, size))
            row[epoch, : len(order)] = order
    return torch.from_numpy(orders).view(len(keys), -1)


def _mix(z: Tensor) -> Tensor:
    """As in randomness.py, in place; a signed shift drags the sign along, and the mask takes it off."""
    for shift, factor in ROUNDS:
        z ^= (z >> shift).bitwise_and_(2 ** (64 - shift) - 1)
        z *= _signed(factor)
    return z


def _signed(word: int) -> int:
    """The int64 with the same bits."""
    return word - 2**64 if word >= 2**63 else word
