"""What every payment rule offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

from databazaar.registry import Registry
from databazaar.roster import Amounts, Roster

PAYMENTS = Registry("payment", "databazaar.payments")
"""Every payment rule by its kind."""


@runtime_checkable
class Payment(Protocol):
    """Frozen settings and two pure functions. All amounts are whole numbers of minor units.

    The quote is reserved before anybody is asked, so no payment can exceed what the consumer has. What is quoted and
    not paid goes back to the consumer when the run closes. `check_payment` tests the contract.
    """

    kind: ClassVar[str]

    def quote(self, roster: Roster) -> Amounts:
        """The most that one access to each provider may cost: one amount per provider, each 1 or more."""
        ...

    def settle(self, quotes: Sequence[int], gains: Sequence[float | None]) -> Sequence[int]:
        """What each draw of a round is paid: 0 ≤ paid ≤ quoted, and 0 where the gain is None: no valid reply."""
        ...
