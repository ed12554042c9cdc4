"""What a run leaves behind, as plain data: the curves, the payouts and the settlement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from databazaar.ledger.replay import Access, Round
from databazaar.money import Currency

__all__ = ["Access", "Payout", "Report", "Round", "Status"]

Status = Literal["settled", "nobody answered", "diverged", "open"]
"""How a run ended; `open` is one that has not."""


@dataclass(frozen=True)
class Payout:
    """One provider's line of the statement. `failures` counts accesses that were voided, so not paid.

    `epsilon` is the differential privacy that a federated provider says it has spent.
    """

    provider: str
    owner: str
    price: int
    accesses: int
    pay: int
    failures: int
    epsilon: float | None = None


@dataclass(frozen=True)
class Report:
    """The outcome of a run, or of the part of it that has been played.

    `distributions` holds p at the start of each round, then the final p: [T+1, n]. `rules` are the settings of the
    market's rules by noun: "sampler", "aggregator", "payment", and "stops", which is a list. While a run is `open`,
    nothing is refunded, `held` is what is reserved for the round under way, and the final utility and model are those
    of the last round. `stopped_by` is the reason that a stop gave, empty while the run is open. `regret_bound` is
    Theorem 1's, where it applies; `notes` are further remarks. `market` and `consumer` are names; `run` is the id of a
    run that has a folder, and `began` and `settled` are its dates, in UTC: the ledger itself knows no time.
    """

    status: Status
    message: str
    rules: dict[str, Any]
    seed: int
    currency: Currency
    budget: int
    per_round: int
    spent: int
    refunded: int
    payouts: tuple[Payout, ...]
    rounds: tuple[Round, ...]
    distributions: np.ndarray
    final_utility: float
    final_loss: float | None
    model_hash: str
    ledger_head: str
    held: int = 0
    stopped_by: str = ""
    regret_bound: float | None = None
    notes: tuple[str, ...] = field(default=())
    market: str = ""
    consumer: str = ""
    run: str = ""
    began: str = ""
    settled: str = ""

    @property
    def closed(self) -> bool:
        """Whether the run has ended and its money is settled."""
        return self.status != "open"

    @property
    def sampler(self) -> dict[str, Any]:
        """The sampler's kind and settings."""
        found: dict[str, Any] = self.rules["sampler"]
        return found
