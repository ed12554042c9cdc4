"""Ends a run whose model is good enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.codes import Code
from databazaar.settings import check_settings, setting
from databazaar.stops.protocol import History


@dataclass(frozen=True)
class TargetUtility:
    """Ends a run after the first round whose model has reached this `utility`; so one round is always played."""

    utility: float = setting(help="the utility at which the run ends, looked at after every round", example=0.9)
    kind: ClassVar[str] = "target-utility"

    def __post_init__(self) -> None:
        check_settings(self, "stop target-utility")

    def reason(self, history: History) -> Code | None:
        if not history.utilities or history.utilities[-1] < self.utility:
            return None
        return Code.of("target-reached", utility=float(f"{history.utilities[-1]:.6g}"), wanted=self.utility)
