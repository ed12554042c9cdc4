"""The accounts: what the entries of a ledger add up to, and the rules that no entry may break."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field, fields

from databazaar.codes import Code
from databazaar.errors import LedgerError
from databazaar.ledger.chain import Entry

NOT_SETTLED = {"reason": Code("run-closed").body()}
"""The body of a void whose round was under way when the consumer closed the run."""


@dataclass
class Book:
    """Accounts in minor units. `apply` refuses an entry that breaks a rule; `assert_sound` adds everything up.

    `quotes` is the most that an access to each provider may cost, and `changes` what it may cost from a round on. Every
    reserve of that amount is followed by one post (a valid reply is paid, at most what was reserved) or one void (a
    failed one is not). What is reserved is used up either way, so a run of budget B asks for accesses worth B at most;
    what was reserved and not paid goes back to the consumer when the run closes.

    A part of a post may be held back: it is neither paid nor unpaid until a release (it is paid) or a return (it is
    not) settles all that is `held_back` of a provider. A run closes when nothing is.

    `caps` are how often providers may be drawn, for those that have said so, and `drawn` how often they were.
    `most_per_access` and `most_per_round` are the consumer's limits.

    `settled` are the accesses of rounds that have not ended; one that has takes no more reserves.

    Beside the money it keeps what stops look at: `utilities` of the model before the first round and after each,
    and `silent` rounds on end.
    """

    budget: int
    quotes: dict[str, int]
    changes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    caps: dict[str, int] = field(default_factory=dict)
    most_per_access: int | None = None
    most_per_round: int | None = None
    asked: int = 0
    asked_before: int = 0
    spent: int = 0
    voided: int = 0
    unpaid: int = 0
    reserved: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    settled: set[tuple[int, int]] = field(default_factory=set)
    drawn: dict[str, int] = field(default_factory=dict)
    held_back: dict[str, int] = field(default_factory=dict)
    released: dict[str, int] = field(default_factory=dict)
    returned: dict[str, int] = field(default_factory=dict)
    pay: dict[str, int] = field(default_factory=dict)
    accesses: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    rounds: int = 0
    silent: int = 0
    utilities: list[float] = field(default_factory=list)
    closed: bool = False

    def copied(self) -> Book:
        """The same accounts, which go on by themselves."""
        return Book(**{one.name: copy.copy(getattr(self, one.name)) for one in fields(self)})

    @property
    def left(self) -> int:
        """What has not been asked for yet."""
        return self.budget - self.asked

    @property
    def held(self) -> int:
        """What is reserved for the round under way."""
        return sum(amount for _, amount in self.reserved.values())

    def quote(self, provider: str, round: int) -> int:
        """The most that an access to this provider may cost in this round."""
        if provider not in self.changes:
            return self.quotes[provider]
        passed = [quote for from_round, quote in self.changes[provider] if from_round <= round]
        return passed[-1] if passed else self.quotes[provider]

    def drawn_before(self) -> dict[str, int]:
        """How often each provider was drawn in the rounds before the one under way."""
        now = Counter(who for who, _ in self.reserved.values())
        return {who: times - now[who] for who, times in self.drawn.items()}

    def apply(self, entry: Entry) -> None:
        if self.closed:
            raise LedgerError(f"{entry}: the ledger is closed and takes nothing more")
        if entry.kind == "reserve":
            self._reserve(entry)
        elif entry.kind in ("post", "void"):
            self._settle(entry)
        elif entry.kind in ("release", "return"):
            self._settle_held_back(entry)
        elif entry.kind == "round":
            self._end_round(entry)
        elif entry.kind == "close":
            if self.reserved:
                raise LedgerError(f"{entry}: {len(self.reserved)} reservations are still open")
            if self.held_back:
                raise LedgerError(f"{entry}: pay of {', '.join(sorted(self.held_back)[:3])} is still held back")
            self.closed = True

    def _reserve(self, entry: Entry) -> None:
        key, provider, amount = self._access(entry)
        if key in self.settled or key[0] < self.rounds:
            raise LedgerError(f"{entry}: this access is settled already")
        if key in self.reserved:
            raise LedgerError(f"{entry}: this access is reserved already")
        quote = self.quote(provider, key[0])
        if amount != quote:
            raise LedgerError(f"{entry}: reserves {amount}, but {provider} costs {quote}")
        if amount < 0:
            raise LedgerError(f"{entry}: reserves a negative amount")
        if amount > self.left:
            raise LedgerError(f"{entry}: reserves {amount} of {self.left} left in the budget")
        if self.caps or self.most_per_access is not None or self.most_per_round is not None:
            self._refuse_beyond_limits(entry, provider, amount)
        self.reserved[key] = provider, amount
        self.asked += amount
        self.drawn[provider] = self.drawn.get(provider, 0) + 1

    def _refuse_beyond_limits(self, entry: Entry, provider: str, amount: int) -> None:
        cap, cost = self.caps.get(provider), self.asked - self.asked_before + amount
        if cap is not None and self.drawn.get(provider, 0) >= cap:
            raise LedgerError(f"{entry}: {provider} may be drawn {cap} times, and was")
        if self.most_per_access is not None and amount > self.most_per_access:
            raise LedgerError(f"{entry}: reserves {amount}, and the most per access is {self.most_per_access}")
        if self.most_per_round is not None and cost > self.most_per_round:
            raise LedgerError(f"{entry}: the round would cost {cost}, and the most per round is {self.most_per_round}")

    def _settle(self, entry: Entry) -> None:
        key, provider, amount = self._access(entry)
        who, reserved = self.reserved.get(key, (None, 0))
        if who != provider or not 0 <= amount <= reserved or (entry.kind == "void" and amount != reserved):
            raise LedgerError(f"{entry}: nothing like it is reserved")
        held = self._held_of(entry, reserved - amount) if "held" in entry.body and entry.kind == "post" else 0
        del self.reserved[key]
        self.settled.add(key)
        if entry.kind == "void":
            self.voided += amount
            if entry.body == NOT_SETTLED:  # the consumer went, and the provider did not fail
                return
            self.failures[provider] = self.failures.get(provider, 0) + 1
            return
        self.spent += amount
        self.unpaid += reserved - amount - held
        self.pay[provider] = self.pay.get(provider, 0) + amount
        self.accesses[provider] = self.accesses.get(provider, 0) + 1
        if held:
            self.held_back[provider] = self.held_back.get(provider, 0) + held

    def _held_of(self, entry: Entry, most: int) -> int:
        """What a post holds back: something, of what it does not pay."""
        held = entry.body["held"]
        if type(held) is not int or not 0 < held <= most:
            raise LedgerError(f"{entry}: holds back {held!r:.40}, and {most} is what is not paid")
        return held

    def _settle_held_back(self, entry: Entry) -> None:
        provider, amount, held = entry.provider, entry.amount, self.held_back.get(entry.provider or "", 0)
        if provider is None or entry.draw is not None or type(amount) is not int or not 0 < amount == held:
            raise LedgerError(f"{entry}: {provider!r:.80} has {held} held back, and all of it is settled at once")
        del self.held_back[provider]
        if entry.kind == "return":
            self.unpaid += amount
            self.returned[provider] = self.returned.get(provider, 0) + amount
            return
        self.spent += amount
        self.pay[provider] = self.pay.get(provider, 0) + amount
        self.released[provider] = self.released.get(provider, 0) + amount

    def _access(self, entry: Entry) -> tuple[tuple[int, int], str, int]:
        round, draw, provider, amount = entry.round, entry.draw, entry.provider, entry.amount
        if type(round) is int and type(draw) is int and type(amount) is int and provider in self.quotes:
            return (round, draw), provider, amount
        if entry.round is None or entry.draw is None or entry.provider is None or entry.amount is None:
            raise LedgerError(f"{entry}: lacks its round, draw, provider or amount")
        if type(entry.amount) is not int:
            raise LedgerError(f"{entry}: its amount is not a whole number")
        if type(entry.round) is not int or type(entry.draw) is not int:
            raise LedgerError(f"{entry}: its round or draw is not a whole number")
        raise LedgerError(f"{entry}: provider {entry.provider!r} is not part of this market")

    def _end_round(self, entry: Entry) -> None:
        body = entry.body
        if not self.utilities:
            self.utilities.append(body["utility"])
        self.utilities.append(body["reached"])
        self.silent = self.silent + 1 if all(gain is None for gain in body["gains"]) else 0
        self.rounds += 1
        self.settled = {key for key in self.settled if key[0] >= self.rounds}
        self.asked_before = self.asked

    def assert_sound(self) -> None:
        """The invariants, checked at every commit."""
        reserved, back = self.held, sum(self.held_back.values())
        settled = self.spent + self.unpaid + self.voided
        least = min(self.spent, self.unpaid, self.voided, *self.held_back.values())
        self._must(self.spent + back + reserved <= self.budget, "paid + held back + reserved ≤ budget")
        self._must(self.asked == settled + reserved + back, "asked = paid + unpaid + voided + reserved + held back")
        self._must(least >= 0, "nothing is negative")
        self._must(sum(self.pay.values()) == self.spent, "payments sum to what was spent")
        self._must(min(self.pay.values(), default=0) >= 0, "no payment is negative")

    def _must(self, holds: bool, rule: str) -> None:
        if not holds:
            raise LedgerError(f"the ledger broke its rule '{rule}': nothing was written")
