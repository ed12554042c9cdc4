"""Deposits, payouts, balances. Amounts are in minor units of the market's currency."""

from __future__ import annotations

from collections.abc import Iterator

from databazaar.client import shapes
from databazaar.client.sending import Sender, place, read


class Money(Sender):
    def balances(self) -> dict[str, int]:
        """What one's own accounts hold, by name."""
        accounts = [read(shapes.Account, one) for one in self._get("/v1/balances")["accounts"]]
        return {account.name: account.balance for account in accounts}

    def statement(self) -> Iterator[shapes.Movement]:
        """What happened on one's own accounts, the newest first."""
        return self._items(shapes.Movement, "/v1/statement")

    def deposit(self, amount: int) -> shapes.Cash:
        """Says that money comes in; it is there once it is confirmed."""
        return read(shapes.Cash, self._post("/v1/deposits", {"amount": amount}))

    def payout(self, amount: int) -> shapes.Cash:
        """Asks for pay to be sent out."""
        return read(shapes.Cash, self._post("/v1/payouts", {"amount": amount}))

    def withdraw_cash(self, amount: int) -> shapes.Cash:
        """Asks for cash back that is not spent."""
        return read(shapes.Cash, self._post("/v1/withdrawals", {"amount": amount}))

    def cash(self, state: str | None = None) -> Iterator[shapes.Cash]:
        """Deposits and payouts: one's own, or all for the operator."""
        return self._items(shapes.Cash, "/v1/cash", state=state)

    def confirm(self, record_id: str, reference: str = "") -> shapes.Cash:
        return read(shapes.Cash, self._post(place("cash", record_id, "confirm"), {"reference": reference}))

    def refuse(self, record_id: str, reason: str) -> shapes.Cash:
        return read(shapes.Cash, self._post(place("cash", record_id, "refuse"), {"reason": reason}))
