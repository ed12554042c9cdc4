"""A run that nobody answers ends before it has asked in vain for the whole budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.codes import Code
from databazaar.settings import check_settings, setting
from databazaar.stops.protocol import History


@dataclass(frozen=True)
class Patience:
    """Ends a run after so many rounds on end in which nobody gave a valid reply. Every run has it."""

    rounds: int = setting(10, "the rounds on end in which nobody answers", at_least=1)
    kind: ClassVar[str] = "patience"

    def __post_init__(self) -> None:
        check_settings(self, "stop patience")

    def reason(self, history: History) -> Code | None:
        if history.silent < self.rounds:
            return None
        return Code.of("no-valid-reply", rounds=history.silent)
