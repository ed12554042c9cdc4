"""Oracles: which rows an ask goes through, and how it moves the model over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.randomness import sample_order
from databazaar.registry import Registry
from databazaar.settings import check_settings, declared, setting

MOST_STEPS = 10**6
OracleKind = Literal["full-gradient", "stochastic-gradient", "local-sgd"]
OptimizerKind = Literal["sgd", "adam"]
Batches = NDArray[np.int64]
"""Which samples each step uses: [steps, batch size], a short batch filled up with −1."""


@dataclass(frozen=True)
class FullGradient:
    """The negative gradient over all rows."""

    kind: ClassVar[str] = "full-gradient"

    def batches(self, samples: int, key: int) -> Batches:
        return np.arange(samples)[None]


@dataclass(frozen=True)
class StochasticGradient:
    """The negative gradient over one random batch."""

    batch_size: int = setting(32, "the rows of the batch", at_least=1, at_most=MOST_STEPS)
    kind: ClassVar[str] = "stochastic-gradient"

    def __post_init__(self) -> None:
        check_settings(self, "oracle stochastic-gradient")

    def batches(self, samples: int, key: int) -> Batches:
        return sample_order(key, samples, first=self.batch_size)[None]


@dataclass(frozen=True)
class LocalSGD:
    """w⁺ − w after local training.

    Its mini-batches go through the samples in a new random order every epoch.

    An ask is over after `epochs` or after `steps` mini-batches, whichever comes first; so a provider with millions of
    samples works no longer than one with a few thousand. `steps=None` asks for whole epochs. `step` is the learning
    rate, a number or a schedule of the round. `optimizer` is "sgd", with `momentum` and `weight_decay` as
    torch.optim.SGD has them (the decay is part of the gradient), or "adam", which is torch.optim.AdamW (the decay is
    apart from it) and begins afresh with every ask.

    >>> LocalSGD(batch_size=2, steps=3).batches(100, key=1).shape
    (3, 2)
    """

    step: float | Callable[[int], float] = setting(0.1, "the providers' learning rate", above=0)
    batch_size: int = setting(32, "the rows of a mini-batch", at_least=1, at_most=MOST_STEPS)
    epochs: int = setting(1, "passes over the provider's data", at_least=1, at_most=MOST_STEPS)
    momentum: float = setting(0.0, "of sgd; 0 is plain SGD", at_least=0, below=1, in_files=False)
    steps: int | None = setting(64, "the most mini-batches of an ask", at_least=1, at_most=MOST_STEPS)
    optimizer: OptimizerKind = setting(
        "sgd", "adam begins afresh with every ask, and wants a smaller step", in_files=False
    )
    weight_decay: float = setting(0.0, "as torch.optim.SGD and AdamW have it; 0 is none", at_least=0, in_files=False)
    kind: ClassVar[str] = "local-sgd"

    def __post_init__(self) -> None:
        check_settings(self, "oracle local-sgd")
        if self.optimizer == "adam" and self.momentum:
            raise BazaarError(
                f"oracle local-sgd: momentum = {self.momentum} belongs to optimizer sgd, and adam has its own: "
                "take momentum out"
            )

    def step_count(self, samples: int) -> int:
        """The mini-batches of an ask to a provider with so many samples."""
        all_epochs = self.epochs * -(-samples // self.batch_size)
        return all_epochs if self.steps is None else min(self.steps, all_epochs)

    def batches(self, samples: int, key: int) -> Batches:
        steps, an_epoch = self.step_count(samples), -(-samples // self.batch_size)
        batches = np.full((steps, self.batch_size), -1, dtype=np.int64)
        for epoch, begin in enumerate(range(0, steps, an_epoch)):
            rows = batches[begin : begin + an_epoch].reshape(-1)
            order = sample_order(key, samples, epoch, first=min(samples, len(rows)))
            rows[: len(order)] = order
        return batches


Oracle = FullGradient | StochasticGradient | LocalSGD
ORACLES = Registry(
    "oracle", {one.kind: f"{__name__}:{one.__name__}" for one in (FullGradient, LocalSGD, StochasticGradient)}
)
"""Every oracle by its kind."""


def build_oracle(kind: str, **settings: Any) -> Oracle:
    """An oracle by name, with those of the settings that it has a use for.

    >>> build_oracle("stochastic-gradient", batch_size=5, step=0.1)
    StochasticGradient(batch_size=5)
    """
    used = {one.name for one in declared(ORACLES.find(kind))}
    oracle: Oracle = ORACLES.build({"kind": kind, **{name: settings[name] for name in used if name in settings}})
    return oracle
