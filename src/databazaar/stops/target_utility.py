"""A consumer that has what it wanted need not spend the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from databazaar.codes import Code
from databazaar.errors import BazaarError
from databazaar.stops.protocol import History


@dataclass(frozen=True)
class TargetUtility:
    """Ends a run after the first round whose model has reached this `utility`; so one round is always played."""

    utility: float
    kind: ClassVar[str] = "target-utility"

    def __post_init__(self) -> None:
        if (
            isinstance(self.utility, bool)
            or not isinstance(self.utility, int | float)
            or not math.isfinite(self.utility)
        ):
            raise BazaarError(f"stop target-utility: utility = {self.utility!r} must be a number")

    def reason(self, history: History) -> Code | None:
        if not history.utilities or history.utilities[-1] < self.utility:
            return None
        return Code.of("target-reached", utility=float(f"{history.utilities[-1]:.6g}"), wanted=self.utility)
