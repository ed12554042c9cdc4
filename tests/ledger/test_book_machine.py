"""Book and Ledger under random use: a model of the money runs alongside, and refusals leave no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from databazaar import BazaarError, LedgerError, Uniform
from databazaar.codes import Code
from databazaar.ledger import Book, Drawn, Entry, Ledger, MemoryStore, RuleBook, Settlement, Snapshot, Terms
from databazaar.ledger.rulebook import Stopped
from databazaar.money import Currency
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers import SAMPLERS

PRICES = {"a": 1, "b": 3, "c": 7}


def access(
    kind: Any, round: int | None, draw: int | None, provider: str | None, amount: int | None, **body: Any
) -> Entry:
    return Entry(1, kind, round, draw, provider, amount, body)


class BookMachine(RuleBasedStateMachine):
    """Any entry at any time. The model is a set of open and of settled keys."""

    @initialize(budget=st.integers(0, 60))
    def begin(self, budget: int) -> None:
        self.book = Book(budget, dict(PRICES))
        self.open: dict[tuple[int, int], str] = {}
        self.settled: set[tuple[int, int]] = set()
        self.paid = dict.fromkeys(PRICES, 0)
        self.held_back = dict.fromkeys(PRICES, 0)
        self.asked = self.voided = self.unpaid = 0
        self.closed = False

    keys = st.tuples(st.integers(0, 3), st.integers(0, 2))

    @rule(key=keys, provider=st.sampled_from([*PRICES, "stranger"]), off=st.sampled_from([0, 0, 0, 1, -1, -100]))
    def reserve(self, key: tuple[int, int], provider: str, off: int) -> None:
        amount = PRICES.get(provider, 1) + off
        fine = (
            not self.closed
            and provider in PRICES
            and off == 0
            and key not in self.open
            and key not in self.settled
            and self.asked + amount <= self.book.budget
        )
        self._try(access("reserve", *key, provider, amount), fine)
        if fine:
            self.open[key] = provider
            self.asked += amount

    @rule(
        kind=st.sampled_from(["post", "post", "void"]),
        key=keys,
        other=st.sampled_from([None, None, *PRICES]),
        off=st.sampled_from([0, 0, 0, 1, -1, -2]),
        held=st.sampled_from([None, None, -1, 0, 1, 2, 1.0, True]),
    )
    def settle(self, kind: str, key: tuple[int, int], other: str | None, off: int, held: Any) -> None:
        provider = other or self.open.get(key, "a")
        amount = PRICES[provider] + off
        less = kind == "post" and 0 <= amount <= PRICES[provider]  # paid may be less than reserved, a void is all of it
        fine = not self.closed and self.open.get(key) == provider and (off == 0 or less)
        if kind == "post" and held is not None:
            fine = fine and type(held) is int and 0 < held <= -off
        body = {} if held is None else {"held": held}
        self._try(access(kind, *key, provider, amount, **body), fine)
        if fine:
            del self.open[key]
            self.settled.add(key)
            if kind == "post":
                self.paid[provider] += amount
                self.unpaid -= off + (held or 0)
                self.held_back[provider] += held or 0
            else:
                self.voided += amount

    @rule(
        kind=st.sampled_from(["release", "return"]),
        provider=st.sampled_from([*PRICES, "stranger"]),
        off=st.sampled_from([0, 0, 0, 1, -1]),
        draw=st.sampled_from([None, None, None, 0]),
        round=st.sampled_from([None, 0, 7]),
    )
    def settle_held_back(self, kind: str, provider: str, off: int, draw: int | None, round: int | None) -> None:
        """All of it at once, or nothing."""
        amount = self.held_back.get(provider, 0)
        fine = not self.closed and amount > 0 and off == 0 and draw is None
        self._try(access(kind, round, draw, provider, amount + off), fine)
        if fine:
            self.held_back[provider] = 0
            if kind == "release":
                self.paid[provider] += amount
            else:
                self.unpaid += amount

    @rule(missing=st.integers(0, 3), kind=st.sampled_from(["reserve", "post", "void"]))
    def leave_out_a_field(self, missing: int, kind: str) -> None:
        fields: list[Any] = [9, 9, "a", 1]
        fields[missing] = None
        self._try(access(kind, *fields), False)

    @precondition(lambda self: len(self.settled) > 3)
    @rule()
    def close(self) -> None:
        fine = not self.closed and not self.open and not any(self.held_back.values())
        self._try(access("close", None, None, None, None), fine)
        self.closed |= fine

    def _try(self, entry: Entry, fine: bool) -> None:
        if fine:
            self.book.apply(entry)
            return
        with pytest.raises(LedgerError):
            self.book.apply(entry)

    @invariant()
    def adds_up(self) -> None:
        book = self.book
        book.assert_sound()
        assert book.asked == self.asked <= book.budget
        assert book.spent == sum(self.paid.values())
        assert (book.voided, book.unpaid) == (self.voided, self.unpaid)
        assert book.held == sum(PRICES[who] for who in self.open.values())
        assert book.held_back == {who: amount for who, amount in self.held_back.items() if amount}
        assert book.left == book.budget - self.asked
        assert {p: book.pay.get(p, 0) for p in PRICES} == self.paid
        assert {k: v[0] for k, v in book.reserved.items()} == self.open
        assert book.closed == self.closed


QUICK = (Phase.explicit, Phase.generate)  # the machines are small: a failure reads well without minutes of shrinking
BookMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=30, phases=QUICK)
TestBook = BookMachine.TestCase


def make_rules(budget: int = 30, per_round: int = 2) -> RuleBook:
    return RuleBook.of(
        Terms(
            seed=0,
            budget=budget,
            per_round=per_round,
            currency=Currency(),
            roster=Roster.of((name, name, price) for name, price in PRICES.items()),
            rules={
                "sampler": SAMPLERS.settings_of(Uniform()),
                "aggregator": {"kind": "mean"},
                "payment": {"kind": "price-per-access"},
                "stops": [{"kind": "patience", "rounds": 10}, {"kind": "budget"}],
            },
            bounded_utility=True,
            initial_model="0" * 64,
        )
    )


def drawn(draws: list[int]) -> Drawn:
    quotes = np.array(list(PRICES.values()))
    return Drawn(np.array(draws), np.full(len(draws), 0.3), RoundBudget(10**6, quotes))


def outcome(draws: list[int], failures: list[Code | None]) -> Settlement:
    gains = [None if why else 0.5 for why in failures]
    paid = [0 if why else list(PRICES.values())[i] for i, why in zip(draws, failures, strict=True)]
    return Settlement(gains, failures, [0.3] * len(failures), paid, 0.5, None, 0.5, None)


class Standing:
    """What these rounds leave behind: always the same."""

    model_hash, utility, loss = "0" * 64, 0.5, None

    def snapshot(self) -> Snapshot:
        return Snapshot(0, b"", b"")


STANDING = Standing()
BUDGET = Stopped("budget", Code("budget-spent"))


def settle(ledger: Ledger, round: int, draws: list[int], failures: list[Code | None]) -> None:
    ledger.settle(round, drawn(draws), outcome(draws, failures), STANDING)


def close(ledger: Ledger) -> None:
    ledger.close(BUDGET, STANDING)


class LedgerMachine(RuleBasedStateMachine):
    """Only the public calls. What is in the store is always a whole chain that a second ledger takes up."""

    @initialize(budget=st.integers(14, 80))
    def begin(self, budget: int) -> None:
        self.rulebook, self.store = make_rules(budget), MemoryStore()
        self.ledger = Ledger(self.rulebook, self.store)
        self.round = 0
        self.held: list[int] | None = None
        self.closed = False

    draws = st.lists(st.integers(0, 2), min_size=2, max_size=2)

    @precondition(lambda self: not self.closed)
    @rule(draws=draws)
    def reserve(self, draws: list[int]) -> None:
        cost = sum(list(PRICES.values())[i] for i in draws)
        fits = cost <= self.ledger.book.left if self.held is None else self.held == draws
        if fits:
            self.ledger.reserve(self.round, drawn(draws))
            self.held = draws
            return
        with pytest.raises(LedgerError):
            self.ledger.reserve(self.round, drawn(draws))

    @precondition(lambda self: self.held is not None)
    @rule(failures=st.lists(st.sampled_from([None, None, Code("no-answer")]), min_size=2, max_size=2))
    def settle(self, failures: list[Code | None]) -> None:
        assert self.held is not None
        settle(self.ledger, self.round, self.held, failures)
        self.held, self.round = None, self.round + 1

    @precondition(lambda self: self.held is None and self.round > 0)
    @rule()
    def close(self) -> None:
        if self.closed:
            with pytest.raises(LedgerError):
                close(self.ledger)
            return
        close(self.ledger)
        self.closed = True

    @precondition(lambda self: not self.closed)
    @rule()
    def crash_and_reopen(self) -> None:
        """What was settled and not yet committed is lost, as after a crash; what was committed is found."""
        self.ledger = Ledger(self.rulebook, self.store)
        places = list(PRICES)
        if self.ledger.book.reserved:
            self.round = self.ledger.book.rounds
            self.held = [places.index(who) for who, _ in self.ledger.book.reserved.values()]

    @invariant()
    def stored_chain_is_whole(self) -> None:
        again = Ledger(self.rulebook, self.store)
        again.book.assert_sound()
        assert again.book.spent + sum(a for _, a in again.book.reserved.values()) <= self.rulebook.terms.budget
        assert sum(again.book.pay.values()) == again.book.spent
        assert again.book.closed == self.closed


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, phases=QUICK)
TestLedger = LedgerMachine.TestCase


def test_post_without_reserve_and_double_post_are_refused() -> None:
    book = Book(10, PRICES)
    with pytest.raises(LedgerError, match="nothing like it is reserved"):
        book.apply(access("post", 0, 0, "a", 1))
    book.apply(access("reserve", 0, 0, "a", 1))
    book.apply(access("post", 0, 0, "a", 1))
    with pytest.raises(LedgerError, match="nothing like it is reserved"):
        book.apply(access("post", 0, 0, "a", 1))
    assert book.spent == 1


def test_an_access_is_paid_once_even_when_it_is_reserved_again() -> None:
    book = Book(10, PRICES)
    for kind in ("reserve", "post"):
        book.apply(access(kind, 0, 0, "a", 1))
    with pytest.raises(LedgerError):
        book.apply(access("reserve", 0, 0, "a", 1))


def test_a_refused_post_leaves_the_reservation_as_it_was() -> None:
    book = Book(10, PRICES)
    book.apply(access("reserve", 0, 0, "b", 3))
    for wrong in (access("post", 0, 0, "a", 1), access("post", 0, 0, "b", 4), access("void", 0, 0, "b", 2)):
        with pytest.raises(LedgerError):
            book.apply(wrong)
    book.assert_sound()
    book.apply(access("post", 0, 0, "b", 3))
    assert book.spent == 3


@pytest.mark.parametrize("amount", [-1, 0, 2, 10**9])
def test_an_access_costs_its_price(amount: int) -> None:
    with pytest.raises(LedgerError, match="costs 1"):
        Book(10, PRICES).apply(access("reserve", 0, 0, "a", amount))


def test_overspending_is_refused_at_the_reserve() -> None:
    book = Book(7, PRICES)
    book.apply(access("reserve", 0, 0, "c", 7))
    with pytest.raises(LedgerError, match="reserves 1 of 0 left"):
        book.apply(access("reserve", 0, 1, "a", 1))


def test_a_negative_price_is_refused_before_any_money_moves() -> None:
    book = Book(7, {"a": -5})
    with pytest.raises(LedgerError):
        book.apply(access("reserve", 0, 0, "a", -5))
        book.assert_sound()


def test_a_payment_may_be_less_than_was_reserved_and_the_rest_goes_back() -> None:
    book = Book(10, PRICES)
    book.apply(access("reserve", 0, 0, "c", 7))
    with pytest.raises(LedgerError):
        book.apply(access("post", 0, 0, "c", -1))
    book.apply(access("post", 0, 0, "c", 2))
    book.assert_sound()
    assert (book.spent, book.unpaid, book.asked, book.left) == (2, 5, 7, 3)


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ({"budget": 2}, "paid + held back + reserved ≤ budget"),
        ({"pay": {"b": 4}}, "payments sum to what was spent"),
        ({"voided": 1}, "asked = paid + unpaid + voided + reserved + held back"),
        ({"voided": -1, "unpaid": 1}, "nothing is negative"),
    ],
)
def test_accounts_that_do_not_add_up_are_named_by_the_rule_they_break(fault: dict[str, Any], rule: str) -> None:
    book = Book(10, PRICES)
    book.apply(access("reserve", 0, 0, "b", 3))
    book.apply(access("post", 0, 0, "b", 3))
    book.assert_sound()
    for name, value in fault.items():
        setattr(book, name, value)
    with pytest.raises(LedgerError) as broken:
        book.assert_sound()
    assert str(broken.value) == f"the ledger broke its rule '{rule}': nothing was written"


def test_a_round_that_the_budget_does_not_cover_is_refused_whole() -> None:
    """Not even its first draw is reserved, and the ledger can go on with a cheaper round."""
    store = MemoryStore()
    ledger = Ledger(make_rules(budget=9), store)
    with pytest.raises(LedgerError, match="would reserve 14 of 9 left in the budget: nothing was written"):
        ledger.reserve(0, drawn([2, 2]))
    assert len(list(store.entries())) == 1 and not ledger.book.reserved
    ledger.reserve(0, drawn([2, 0]))
    assert ledger.book.left == 1


def test_nothing_follows_the_close_and_nothing_is_closed_with_money_held() -> None:
    ledger = Ledger(make_rules())
    ledger.reserve(0, drawn([0, 1]))
    with pytest.raises(LedgerError, match="2 reservations are still open"):
        close(ledger)
    ledger = Ledger(make_rules())
    ledger.reserve(0, drawn([0, 1]))
    settle(ledger, 0, [0, 1], [None, Code("no-answer")])
    close(ledger)
    attempts: list[Callable[[], None]] = [
        lambda: ledger.reserve(1, drawn([0, 0])),
        lambda: settle(ledger, 1, [0, 0], [None, None]),
        lambda: close(ledger),
    ]
    for attempt in attempts:
        with pytest.raises(LedgerError):
            attempt()


def test_a_ledger_that_refused_something_still_writes_a_whole_chain() -> None:
    """After a refusal the caller may go on: what reaches the store must still be a chain."""
    store = MemoryStore()
    ledger = Ledger(make_rules(), store)
    ledger.reserve(0, drawn([0, 1]))
    with pytest.raises(LedgerError):
        settle(ledger, 0, [0, 2], [None, None])  # draw 1 was for another provider
    try:
        settle(ledger, 0, [0, 1], [None, None])
        close(ledger)
    except LedgerError:
        pass  # refusing all further use is fine too
    Ledger(make_rules(), store).book.assert_sound()


def test_other_terms_are_refused_on_the_same_store() -> None:
    store = MemoryStore()
    Ledger(make_rules(), store)
    with pytest.raises(BazaarError, match="other terms"):
        Ledger(make_rules(budget=31), store)
