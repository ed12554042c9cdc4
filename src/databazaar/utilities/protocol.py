"""What every utility offers, and what it may look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

UTILITIES = Registry("utility", "databazaar.utilities")
"""Every utility by its kind."""
Scored = NDArray[np.float64]
FUNCTION = "function"
"""Stands for a kind where the utility is a function of the consumer's own."""
CLASSES, BOTH = ("classification",), ("classification", "regression")
"""The tasks that a utility or a model may be for."""


@dataclass(frozen=True)
class Judged:
    """Candidate models on the whole hold-out. `losses` are their mean losses, [models]. `outputs` are those of every
    model, [models, rows, …], for `targets` [rows, …]; of a utility that `wants_outputs`, else None. A single output
    above the `threshold` says class 1."""

    losses: Scored
    targets: Tensor
    outputs: Tensor | None = None
    threshold: float = 0.0

    @property
    def single(self) -> bool:
        """Whether a model has one output for a row, and not one for each class."""
        return self.seen[0].numel() == self.targets.numel()

    @property
    def seen(self) -> Tensor:
        if self.outputs is None:
            raise BazaarError("the utility looks at outputs: give its class `wants_outputs = True`")
        return self.outputs

    @property
    def answers(self) -> Tensor:
        """The class that each output says: the largest of several; of a single one, the side that it is on."""
        if self.single:
            alone = self.seen.reshape(len(self.seen), *self.targets.shape)
            return (alone > self.threshold).to(self.targets.dtype)
        return self.seen.argmax(-1)

    def where_finite(self, scores: Tensor) -> Scored:
        """The scores [models] of those whose outputs are all finite; others have none."""
        finite = self.seen.isfinite().flatten(1).all(1)
        found: Scored = scores.double().where(finite, np.nan).cpu().numpy()
        return found


class Utility:
    """What every utility inherits from: frozen settings, and a pure function `score`. Higher is better, and what is not
    finite is no utility.

    `bounded`: whether it lies in [0, 1], as Theorem 1 asks. `tasks`: those that it is for. `wants_outputs`: whether it
    looks at more than the mean loss. `meaning` is what its numbers mean, for the readers of a report.
    """

    kind: ClassVar[str]
    bounded: ClassVar[bool] = False
    tasks: ClassVar[tuple[str, ...]] = BOTH
    wants_outputs: ClassVar[bool] = True
    meaning: ClassVar[str] = ""

    def check(self, targets: Tensor) -> None:
        """Refuses a hold-out with these targets, on which it would say nothing."""
        if targets.is_floating_point() and "regression" not in self.tasks:
            raise BazaarError(f"utility {self.kind!r} needs classes (integers) as targets: use exp-loss for numbers")

    def score(self, judged: Judged) -> Scored:
        """One number for each candidate model."""
        raise NotImplementedError


def utility_of(given: object) -> Utility:
    """A utility by its kind, or as itself."""
    if isinstance(given, str):
        given = UTILITIES.build({"kind": given})
    UTILITIES.adopt(given)
    if not isinstance(given, Utility):
        raise BazaarError(f"utility {given!r} is none: let its class inherit from databazaar.utilities.Utility")
    return given
