"""The loss with its sign turned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.utilities.protocol import Judged, Scored, Utility


@dataclass(frozen=True)
class NegativeLoss(Utility):
    """The mean loss with its sign turned."""

    kind: ClassVar[str] = "negative-loss"
    wants_outputs: ClassVar[bool] = False
    meaning: ClassVar[str] = "the loss with its sign turned: 0 is the best there is"

    def score(self, judged: Judged) -> Scored:
        return -judged.losses
