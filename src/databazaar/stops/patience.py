"""A run that nobody answers ends before it has asked in vain for the whole budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from databazaar.codes import Code
from databazaar.errors import BazaarError
from databazaar.stops.protocol import History


@dataclass(frozen=True)
class Patience:
    """Ends a run after so many rounds on end in which nobody gave a valid reply. Every run has it."""

    rounds: int = 10
    kind: ClassVar[str] = "patience"

    def __post_init__(self) -> None:
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            raise BazaarError(f"patience = {self.rounds!r} must be a whole number of at least 1")

    def reason(self, history: History) -> Code | None:
        if history.silent < self.rounds:
            return None
        return Code.of("no-valid-reply", rounds=history.silent)
