"""Losses: outputs and targets of a batch → one number per sample."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from databazaar.errors import BazaarError

Loss = Callable[[Tensor, Tensor], Tensor]
"""Takes outputs and targets of a batch, gives one loss per sample."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """log Σ exp(o) − o_y, written out: torch's own loss takes three times as long inside vmap."""
    right = targets[:, None] == torch.arange(outputs.shape[1], device=outputs.device)
    return torch.logsumexp(outputs, 1) - (outputs * right).sum(1)


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """log(1 + exp(o)) − y·o, of one output o per sample for two classes: o is the log odds of class 1."""
    odds = outputs.reshape(targets.shape)
    return nn.functional.softplus(odds) - odds * targets


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """½(y − f(x))², summed over the target's components: the paper's regression loss."""
    errors = (outputs.reshape(targets.shape) - targets) ** 2
    return errors / 2 if errors.dim() == 1 else errors.flatten(1).sum(1) / 2


def unnamed_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Stands where neither a loss nor a hold-out that implies one was given; callables as oracles need none."""
    raise BazaarError("without a holdout the loss must be named: give loss='cross-entropy' or loss='squared-error'")


LOSSES: dict[str, Loss] = {
    "cross-entropy": cross_entropy,
    "binary-cross-entropy": binary_cross_entropy,
    "squared-error": squared_error,
}

_ELEMENTWISE = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCELoss, nn.BCEWithLogitsLoss)
"""Torch's losses that compare outputs and targets number by number, and would spread one over the other."""


@dataclass(frozen=True, eq=False)
class PerSample:
    """A loss of the user's own, held to one number per sample.

    A loss of torch, which would give the mean of a batch, is asked for no reduction. Where it compares number by
    number, the outputs take the targets' shape, so that (n, 1) is never spread over (n,); with several numbers per
    sample, their mean counts.
    """

    given: Callable[..., Any]
    call: Callable[..., Any]

    @property
    def elementwise(self) -> bool:
        return isinstance(self.given, _ELEMENTWISE)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.elementwise and outputs.numel() == targets.numel():
            outputs, targets = outputs.reshape(targets.shape), targets.to(outputs.dtype)
        losses = self.call(outputs, targets)
        if isinstance(losses, Tensor) and self.call is not self.given and losses.dim() > 1:
            losses = losses.flatten(1).mean(1)
        if isinstance(losses, Tensor) and losses.shape == (len(targets), 1):
            losses = losses[:, 0]
        if not isinstance(losses, Tensor) or losses.shape != (len(targets),):
            found = f"shape {list(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
            raise BazaarError(
                f"the loss gives {found} for a batch of {len(targets)} samples and must give one number for each: "
                "leave out its mean (reduction='none'), and compare outputs and targets of one shape"
            )
        return losses


def per_sample(loss: Callable[..., Any]) -> Loss:
    """The loss as the market needs it; what is ours already stays as it is."""
    if loss in (*LOSSES.values(), unnamed_loss) or isinstance(loss, PerSample):
        return loss
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        alone = copy.deepcopy(loss)
        setattr(alone, "reduction", "none")  # noqa: B010
        return PerSample(loss, alone)
    try:
        reduces = "reduction" in inspect.signature(loss).parameters
    except (TypeError, ValueError):
        reduces = False
    return PerSample(loss, partial(loss, reduction="none") if reduces else loss)


def threshold_of(loss: Loss) -> float:
    """From where on a single output says class 1: log odds of 0, or a probability of one half."""
    return 0.5 if isinstance(loss, PerSample) and isinstance(loss.given, nn.BCELoss) else 0.0
