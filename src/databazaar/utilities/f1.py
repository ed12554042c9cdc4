"""The F1 score, for classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.utilities.protocol import CLASSES, Judged, Scored, Utility


@dataclass(frozen=True)
class F1(Utility):
    """The harmonic mean of precision and recall: of class 1 where there are two classes, else the mean over the
    classes that occur in the hold-out."""

    kind: ClassVar[str] = "f1"
    bounded: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = CLASSES
    meaning: ClassVar[str] = "the F1 score, the harmonic mean of precision and recall: 1 is a model without errors"

    def score(self, judged: Judged) -> Scored:
        import torch

        answers, targets = judged.answers.flatten(1), judged.targets.flatten()
        two = judged.single or judged.seen.shape[-1] == 2
        scores = []
        for one in [1] if two else torch.unique(targets).tolist():
            said, so = answers == one, targets == one
            found = (said & so).sum(1).double()
            scores.append(2 * found / (said.sum(1) + so.sum()).clamp(min=1))
        return judged.where_finite(torch.stack(scores).mean(0))
