"""The accounts: what the entries of a ledger add up to, and the rules that no entry may break."""

from __future__ import annotations

from dataclasses import dataclass, field

from databazaar.errors import LedgerError
from databazaar.ledger.chain import Entry

NOT_SETTLED = {"reason": "the consumer closed the run before this round was settled", "by": "consumer"}
"""The body of a void whose round was under way when the consumer closed the run."""


@dataclass
class Book:
    """Accounts in minor units. `apply` refuses an entry that breaks a rule; `assert_sound` adds everything up.

    `quotes` is the most that an access to each provider may cost. Every reserve of that amount is followed by one post
    (a valid reply is paid, at most what was reserved) or one void (a failed one is not). What is reserved is used up
    either way, so a run of budget B asks for accesses worth B at most; what was reserved and not paid goes back to the
    consumer when the run closes.

    Beside the money it keeps what stops look at: `utilities` of the model before the first round and after each,
    `silent` rounds on end, and whether the last round `diverged`.
    """

    budget: int
    quotes: dict[str, int]
    asked: int = 0
    spent: int = 0
    voided: int = 0
    unpaid: int = 0
    reserved: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    settled: set[tuple[int, int]] = field(default_factory=set)
    pay: dict[str, int] = field(default_factory=dict)
    accesses: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    silent: int = 0
    utilities: list[float] = field(default_factory=list)
    diverged: bool = False
    closed: bool = False

    @property
    def left(self) -> int:
        """What has not been asked for yet."""
        return self.budget - self.asked

    @property
    def held(self) -> int:
        """What is reserved for the round under way."""
        return sum(amount for _, amount in self.reserved.values())

    def apply(self, entry: Entry) -> None:
        if self.closed:
            raise LedgerError(f"{entry}: the ledger is closed and takes nothing more")
        if entry.kind == "reserve":
            self._reserve(entry)
        elif entry.kind in ("post", "void"):
            self._settle(entry)
        elif entry.kind == "round":
            self._end_round(entry)
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
        if amount != self.quotes[provider]:
            raise LedgerError(f"{entry}: reserves {amount}, but {provider} costs {self.quotes[provider]}")
        if amount < 0:
            raise LedgerError(f"{entry}: reserves a negative amount")
        if amount > self.left:
            raise LedgerError(f"{entry}: reserves {amount} of {self.left} left in the budget")
        self.reserved[key] = provider, amount
        self.asked += amount

    def _settle(self, entry: Entry) -> None:
        key, provider, amount = self._access(entry)
        who, reserved = self.reserved.get(key, (None, 0))
        if who != provider or not 0 <= amount <= reserved or (entry.kind == "void" and amount != reserved):
            raise LedgerError(f"{entry}: nothing like it is reserved")
        del self.reserved[key]
        self.settled.add(key)
        if entry.kind == "void":
            self.voided += amount
            if entry.body == NOT_SETTLED:  # the consumer went, and the provider did not fail
                return
            self.failures[provider] = self.failures.get(provider, 0) + 1
            return
        self.spent += amount
        self.unpaid += reserved - amount
        self.pay[provider] = self.pay.get(provider, 0) + amount
        self.accesses[provider] = self.accesses.get(provider, 0) + 1

    def _access(self, entry: Entry) -> tuple[tuple[int, int], str, int]:
        if entry.round is None or entry.draw is None or entry.provider is None or entry.amount is None:
            raise LedgerError(f"{entry}: lacks its round, draw, provider or amount")
        if type(entry.amount) is not int:
            raise LedgerError(f"{entry}: its amount is not a whole number")
        if entry.provider not in self.quotes:
            raise LedgerError(f"{entry}: provider {entry.provider!r} is not part of this market")
        return (entry.round, entry.draw), entry.provider, entry.amount

    def _end_round(self, entry: Entry) -> None:
        body = entry.body
        if not self.utilities:
            self.utilities.append(body["utility"])
        reached = body.get("reached")
        if reached is not None:
            self.utilities.append(reached)
        self.diverged = "reached" in body and reached is None
        self.silent = self.silent + 1 if all(gain is None for gain in body["gains"]) else 0
        self.rounds += 1

    def assert_sound(self) -> None:
        """The invariants, checked at every commit."""
        held = self.held
        rules = {
            "posted + reserved ≤ budget": self.spent + held <= self.budget,
            "payments sum to what was spent": sum(self.pay.values()) == self.spent,
            "asked = posted + unpaid + voided + reserved": self.asked == self.spent + self.unpaid + self.voided + held,
            "nothing is negative": min([self.spent, self.unpaid, self.voided, *self.pay.values()], default=0) >= 0,
        }
        for rule, holds in rules.items():
            if not holds:
                raise LedgerError(f"the ledger broke its rule '{rule}': nothing was written")
