"""The area under the ROC curve, for classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from databazaar.errors import BazaarError
from databazaar.utilities.protocol import CLASSES, Judged, Scored, Utility

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AUC(Utility):
    """The area under the ROC curve: the chance that a row of a class is ranked above a row of another; the mean over
    the classes (each against the rest) where there are more than two.

    Fawcett: An introduction to ROC analysis, Pattern Recognition Letters 2006.
    """

    kind: ClassVar[str] = "auc"
    bounded: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = CLASSES
    meaning: ClassVar[str] = "the area under the ROC curve: 1 ranks every row correctly, and 0.5 is chance"

    def check(self, targets: Tensor) -> None:
        super().check(targets)
        if bool((targets == targets.flatten()[0]).all()):
            raise BazaarError("utility 'auc' needs rows of two classes in the hold-out: add some, or use exp-loss")

    def score(self, judged: Judged) -> Scored:
        import torch

        outputs, targets = judged.seen, judged.targets.flatten()
        if judged.single:
            return judged.where_finite(_area(outputs.flatten(1), targets == 1))
        if outputs.shape[-1] == 2:
            return judged.where_finite(_area(outputs[..., 1] - outputs[..., 0], targets == 1))
        chances = outputs.double().softmax(-1)
        present = [one for one in range(outputs.shape[-1]) if bool((targets == one).any())]
        return judged.where_finite(torch.stack([_area(chances[..., one], targets == one) for one in present]).mean(0))


def _area(scores: Tensor, positive: Tensor) -> Tensor:
    """Mann and Whitney's statistic for each row of scores [models, rows]; equal scores share their ranks. NaN where
    all rows are of one class."""
    import torch

    scores = scores.contiguous()
    ordered = scores.sort(1).values
    below = torch.searchsorted(ordered, scores, right=False)
    ranks = (below + torch.searchsorted(ordered, scores, right=True) + 1).double() / 2
    ones = int(positive.sum())
    pairs = ones * (len(positive) - ones)
    return (ranks[:, positive].sum(1) - ones * (ones + 1) / 2) / (pairs or torch.nan)
