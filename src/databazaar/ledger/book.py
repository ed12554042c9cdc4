"""The accounts: what the entries of a ledger add up to, and the rules that no entry may break."""

from __future__ import annotations

from dataclasses import dataclass, field

from databazaar.errors import LedgerError
from databazaar.ledger.chain import Entry


@dataclass
class Book:
    """Accounts in minor units. `apply` refuses an entry that breaks a rule; `assert_sound` adds everything up.

    Every reserve is followed by one post (a valid reply is paid) or one void (a failed one is not). What is
    reserved is used up either way, so a run of budget B asks for accesses worth B at most; money of voided
    accesses goes back to the consumer when the run closes.
    """

    budget: int
    prices: dict[str, int]
    owners: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    spent: int = 0
    voided: int = 0
    reserved: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    settled: set[tuple[int, int]] = field(default_factory=set)
    pay: dict[str, int] = field(default_factory=dict)
    accesses: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    closed: bool = False

    def covers(self, cost: int) -> bool:
        """Whether the budget that has not been asked for pays for another round of this cost."""
        return self.asked + cost <= self.budget

    def apply(self, entry: Entry) -> None:
        if self.closed:
            raise LedgerError(f"{entry}: the ledger is closed and takes nothing more")
        if entry.kind == "reserve":
            self._reserve(entry)
        elif entry.kind in ("post", "void"):
            self._settle(entry)
        elif entry.kind == "close":
            if self.reserved:
                raise LedgerError(f"{entry}: {len(self.reserved)} reservations are still open")
            self.closed = True

    def _reserve(self, entry: Entry) -> None:
        key, provider, amount = self._access(entry)
        if key in self.settled:
            raise LedgerError(f"{entry}: this access is settled already")
        if key in self.reserved:
            raise LedgerError(f"{entry}: this access is reserved already")
        if amount != self.prices[provider]:
            raise LedgerError(f"{entry}: reserves {amount}, but {provider} costs {self.prices[provider]}")
        if amount < 0:
            raise LedgerError(f"{entry}: reserves a negative amount")
        if not self.covers(amount):
            raise LedgerError(f"{entry}: reserves {amount} of {self.budget - self.asked} left in the budget")
        self.reserved[key] = provider, amount
        self.asked += amount

    def _settle(self, entry: Entry) -> None:
        key, provider, amount = self._access(entry)
        if self.reserved.get(key) != (provider, amount):
            raise LedgerError(f"{entry}: nothing like it is reserved")
        del self.reserved[key]
        self.settled.add(key)
        if entry.kind == "void":
            self.voided += amount
            self.failures[provider] = self.failures.get(provider, 0) + 1
            return
        self.spent += amount
        self.pay[provider] = self.pay.get(provider, 0) + amount
        self.accesses[provider] = self.accesses.get(provider, 0) + 1

    def _access(self, entry: Entry) -> tuple[tuple[int, int], str, int]:
        if entry.round is None or entry.draw is None or entry.provider is None or entry.amount is None:
            raise LedgerError(f"{entry}: lacks its round, draw, provider or amount")
        if entry.provider not in self.prices:
            raise LedgerError(f"{entry}: provider {entry.provider!r} is not part of this market")
        return (entry.round, entry.draw), entry.provider, entry.amount

    def assert_sound(self) -> None:
        """The invariants, checked at every commit."""
        reserved = sum(amount for _, amount in self.reserved.values())
        rules = {
            "posted + reserved ≤ budget": self.spent + reserved <= self.budget,
            "payments sum to what was spent": sum(self.pay.values()) == self.spent,
            "asked = posted + voided + reserved": self.asked == self.spent + self.voided + reserved,
            "nothing is negative": min([self.spent, self.voided, *self.pay.values()], default=0) >= 0,
        }
        for rule, holds in rules.items():
            if not holds:
                raise LedgerError(f"the ledger broke its rule '{rule}': nothing was written")
