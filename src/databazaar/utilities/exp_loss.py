"""exp(−loss), in [0, 1], for which the paper's theory holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.utilities.protocol import Judged, Scored, Utility

BELOW_ZERO = -1e-3
"""exp(−loss) of a mean loss below this, which rounding does not explain, is no utility in [0, 1], and so none."""


@dataclass(frozen=True)
class ExpLoss(Utility):
    """exp(−loss), in [0, 1]."""

    kind: ClassVar[str] = "exp-loss"
    bounded: ClassVar[bool] = True
    wants_outputs: ClassVar[bool] = False
    meaning: ClassVar[str] = "exp(−loss): 1 is a model that is always sure and right, and near 0 one that is lost"

    def score(self, judged: Judged) -> Scored:
        bounded = np.where(judged.losses < BELOW_ZERO, np.nan, judged.losses)
        scores: Scored = np.exp(-bounded)
        return scores
