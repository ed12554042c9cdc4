"""w⁺ − w after local training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.errors import BazaarError
from databazaar.oracles.protocol import MOST_STEPS, Batches, OptimizerKind
from databazaar.randomness import sample_order
from databazaar.settings import check_settings, setting


@dataclass(frozen=True)
class LocalSGD:
    """w⁺ − w after some mini-batches, which go through the samples in a new random order every epoch.

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
    optimizer: OptimizerKind = setting("sgd", "adam begins afresh with every ask, and wants a smaller step")
    weight_decay: float = setting(0.0, "as torch.optim.SGD and AdamW have it; 0 is none", at_least=0, in_files=False)
    kind: ClassVar[str] = "local-sgd"

    def __post_init__(self) -> None:
        check_settings(self, "oracle local-sgd")
        if self.optimizer == "adam" and self.momentum:
            raise BazaarError(
                f"oracle local-sgd: momentum = {self.momentum} belongs to optimizer sgd, and adam has its own: "
                "take momentum out"
            )

    @property
    def is_plain(self) -> bool:
        """Whether every step is linear in the gradients so far, as with SGD that does not decay."""
        return self.optimizer == "sgd" and not self.weight_decay

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
