"""What every stop offers, and what it may look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from databazaar.codes import Code
from databazaar.registry import Registry
from databazaar.roster import RoundBudget

STOPS = Registry("stop", "databazaar.stops")
"""Every stop by its kind."""


@dataclass(frozen=True)
class History:
    """How far a run has come. All of it stands in the ledger, so an audit sees what the run saw.

    `utilities` are those of the model before the first round and after each round; empty before the first. `silent` is
    the number of rounds on end, the last one included, in which nobody gave a valid reply. `shortens` says whether the
    sampler may draw fewer than `per_round`.
    """

    rounds: int
    utilities: Sequence[float]
    silent: int
    round_budget: RoundBudget
    per_round: int
    shortens: bool = False


@runtime_checkable
class Stop(Protocol):
    """Frozen settings and one pure function, which is asked before every round. `check_stop` tests the contract."""

    kind: ClassVar[str]

    def reason(self, history: History) -> Code | None:
        """Why the run should end here, as a code; None where it should not. A stop of your own may say it in words:
        `Code.of("own-words", text="the weather turned")`."""
        ...
