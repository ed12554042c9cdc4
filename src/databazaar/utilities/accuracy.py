"""The share of right answers, for classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.utilities.protocol import CLASSES, Judged, Scored, Utility


@dataclass(frozen=True)
class Accuracy(Utility):
    """The share of rows whose class is predicted correctly."""

    kind: ClassVar[str] = "accuracy"
    bounded: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = CLASSES
    meaning: ClassVar[str] = "the accuracy: the share of rows whose class is predicted correctly"

    def score(self, judged: Judged) -> Scored:
        right = (judged.answers == judged.targets).flatten(1)
        return judged.where_finite(right.double().sum(1) / len(judged.targets))
