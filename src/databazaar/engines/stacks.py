"""Stacks: many providers' work as one computation, in which row r trains its own copy of the model on its own data.

There are several ways to compute one, each a class with a `kind` under `STACKS`. An engine tries them in order and
takes the first that suits an oracle. Those of other packages are tried where the engine is asked for them by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from databazaar.learning.models import split_fixed_prefix
from databazaar.learning.oracles import Oracle
from databazaar.learning.task import Task
from databazaar.registry import Registry

STACKS = Registry(
    "stack",
    {
        "alone": "databazaar.engines.alone:Alone",
        "stacked": "databazaar.engines.stacked:StackedOracle",
    },
)


def default_stacks(device: torch.device) -> tuple[str, ...]:
    """The kinds that are tried on a device; the last one suits every oracle.

    >>> default_stacks(torch.device("cpu"))
    ('stacked',)
    """
    return ("alone", "stacked") if device.type == "cuda" else ("stacked",)


@dataclass(frozen=True)
class Data:
    """All providers' samples end to end. Provider i has rows starts[i] … starts[i] + sizes[i] − 1."""

    x: Tensor
    y: Tensor
    starts: Tensor
    sizes: Tensor


@dataclass(frozen=True)
class Workload:
    """What is to be stacked: a task with a torch model, and all providers' samples, both on the engine's device."""

    task: Task
    data: Data

    @cached_property
    def without_prefix(self) -> Workload:
        """The same without the model's first layers that have no parameters: the samples have passed them."""
        assert self.task.model is not None
        model, x = split_fixed_prefix(self.task.model, self.data.x)
        return Workload(replace(self.task, model=model), replace(self.data, x=x))


@dataclass(frozen=True)
class BatchPlan:
    """What each of R rows does in each of S steps, with providers of unequal sizes padded to one shape.

    `weights` makes Σ weights·loss the mean over the batch; it is 0 on padding. `steps` is the row's step size,
    0 where the row has nothing left to do.
    """

    providers: Tensor  # [R]
    local: Tensor  # [R, S, b] sample within the provider
    weights: Tensor  # [R, S, b]
    steps: Tensor  # [R, S]

    @property
    def first_step(self) -> BatchPlan:
        """The plan cut off after one step."""
        return BatchPlan(self.providers, self.local[:, :1], self.weights[:, :1], self.steps[:, :1])


class Stack(ABC):
    """Computes R updates at once, for providers that share an oracle."""

    kind: ClassVar[str]
    floats_per_sample: int
    """Floats of one sample as this stack reads it, to size the chunks by."""
    together: ClassVar[int | None] = None
    """The most rows of one call, where there is such a bound."""

    @classmethod
    @abstractmethod
    def make(cls, work: Workload, oracle: Oracle, shape: tuple[int, int]) -> Stack | None:
        """The stack for that oracle, where it suits. `shape`: most steps of a row, and samples in each."""

    def floats(self, samples: int) -> int:
        """Floats that a row of so many samples takes beside its parameters."""
        return samples * self.floats_per_sample

    @abstractmethod
    def __call__(self, params: Tensor, plan: BatchPlan) -> Tensor:
        """Updates [R, d] from parameters [R, d]. No look at a tensor's value, so that a CUDA graph can hold it."""
