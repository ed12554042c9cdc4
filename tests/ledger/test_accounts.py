"""The steps of a run's money, entry by entry: what is written for a round, for held-back pay and for the close."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from databazaar import LedgerError, Uniform
from databazaar.canonical import GENESIS, canonical, statement
from databazaar.codes import Code
from databazaar.defence import Findings
from databazaar.ledger import Accounts, Drawn, Entry, Ledger, RuleBook, Settlement, Snapshot, Terms
from databazaar.ledger.chain import KINDS
from databazaar.ledger.rulebook import Stopped
from databazaar.money import Currency
from databazaar.payments import PricePerAccess
from databazaar.roster import Roster, RoundBudget

PRICES = {"a": 2, "b": 3, "c": 7}
RULES: dict[str, Any] = {"sampler": {}, "aggregator": {}, "payment": {}, "stops": []}


def rules(budget: int = 40) -> RuleBook:
    roster = Roster.of((name, name, price) for name, price in PRICES.items())
    terms = Terms(0, budget, 2, Currency(), roster, RULES, True, "0" * 64)
    return RuleBook(terms, Uniform(), PricePerAccess(), ())


def drawn(*draws: int) -> Drawn:
    return Drawn(np.array(draws), np.full(len(draws), 0.3), RoundBudget(10**6, np.array(list(PRICES.values()))))


class Standing:
    model_hash, utility, loss = "ab" * 32, 0.6, 0.1

    def snapshot(self) -> Snapshot:
        return Snapshot(0, b"", b"")


def settlement(gains: list[float | None], paid: list[int], **more: Any) -> Settlement:
    failures = [Code("no-answer") if gain is None else None for gain in gains]
    return Settlement(gains, failures, [0.3] * len(gains), paid, 0.5, 0.2, 0.6, 0.1, **more)


def written(accounts: Accounts) -> list[tuple[Any, ...]]:
    """All entries but for the opening, without their numbers and hashes."""
    assert isinstance(accounts, Ledger)
    accounts._write([])
    return [entry[1:7] for entry in accounts.store.entries()][1:]


BODY = {"probabilities": [0.3, 0.3], "utility": 0.5, "loss": 0.2, "reached": 0.6, "reached_loss": 0.1}


@pytest.mark.parametrize("kept", [Ledger, Accounts])
def test_a_round_is_reserved_once(kept: type[Accounts]) -> None:
    accounts = kept(rules())
    for _ in range(2):
        accounts.reserve(0, drawn(2, 0))
        assert accounts.book.reserved == {(0, 0): ("c", 7), (0, 1): ("a", 2)}
    for other in (drawn(0, 2), drawn(2), drawn(2, 1), drawn(2, 0, 0)):
        with pytest.raises(
            LedgerError, match="round 0 is reserved with other draws than these: the ledger was changed"
        ):
            accounts.reserve(0, other)
    with pytest.raises(LedgerError, match="round 1 is reserved with other draws"):
        accounts.reserve(1, drawn(2, 0))
    assert accounts.book.asked == 9


@pytest.mark.parametrize("kept", [Ledger, Accounts])
def test_a_round_that_costs_all_that_is_left_is_reserved_and_a_dearer_one_is_not(kept: type[Accounts]) -> None:
    accounts = kept(rules(budget=9))
    with pytest.raises(LedgerError) as refused:
        accounts.reserve(0, drawn(2, 1))
    assert str(refused.value) == "round 0 would reserve 10 of 9 left in the budget: nothing was written"
    assert not accounts.book.reserved
    accounts.reserve(0, drawn(2, 0))
    assert accounts.book.left == 0


def test_what_is_written_of_a_round() -> None:
    ledger = Ledger(rules())
    ledger.reserve(0, drawn(2, 0))
    result = settlement(
        [0.25, None], [5, 0], replies=("cd" * 32, None), held=(2, 0), findings=Findings(leak=[1.0, None])
    )
    ledger.settle(0, drawn(2, 0), result, Standing())
    assert written(ledger) == [
        ("reserve", 0, 0, "c", 7, {}),
        ("reserve", 0, 1, "a", 2, {}),
        ("post", 0, 0, "c", 5, {"reply": "cd" * 32, "held": 2}),
        ("void", 0, 1, "a", 2, {"reason": {"code": "no-answer"}}),
        ("round", 0, None, None, None, {
            "gains": [0.25, None], **BODY, "model": "ab" * 32, "findings": {"leak": [1.0, None]},
        }),
    ]  # fmt: skip


def test_what_is_not_there_is_not_written() -> None:
    ledger = Ledger(rules())
    ledger.reserve(0, drawn(2, 0))
    ledger.settle(
        0, drawn(2, 0), settlement([None, 0.5], [0, 2], replies=("cd" * 32, None), findings=Findings()), Standing()
    )
    assert written(ledger)[2:] == [
        ("void", 0, 0, "c", 7, {"reason": {"code": "no-answer"}, "reply": "cd" * 32}),
        ("post", 0, 1, "a", 2, {}),
        ("round", 0, None, None, None, {"gains": [None, 0.5], **BODY, "model": "ab" * 32}),
    ]


@pytest.mark.parametrize("kept", [Ledger, Accounts])
def test_a_book_alone_takes_the_same_steps(kept: type[Accounts]) -> None:
    accounts = kept(rules())
    accounts.reserve(0, drawn(2, 0))
    accounts.settle(0, drawn(2, 0), settlement([0.25, 0.5], [3, 1], held=(2, 1)), Standing())
    book = accounts.book
    assert (book.pay, book.held_back, book.unpaid, book.rounds) == ({"c": 3, "a": 1}, {"c": 2, "a": 1}, 2, 1)
    accounts.settle_held_back([0])
    assert (book.pay, book.returned, book.released) == ({"c": 5, "a": 1}, {"a": 1}, {"c": 2})
    accounts.close(Stopped("budget", Code("budget-spent")), Standing())
    assert book.closed
    with pytest.raises(LedgerError):
        accounts.reserve(1, drawn(0))


def test_held_back_pay_is_settled_in_the_order_of_the_roster() -> None:
    ledger = Ledger(rules())
    ledger.reserve(0, drawn(2, 0, 1))
    ledger.settle(0, drawn(2, 0, 1), settlement([0.1] * 3, [1, 0, 0], held=(6, 1, 2)), Standing())
    ledger.reserve(1, drawn(0))
    more = {"released": [1], "returned": [2]}
    ledger.settle(1, drawn(0), settlement([0.1], [2], **more), Standing())
    ledger.settle_held_back([])
    ledger.close(Stopped("budget", Code("budget-spent")), Standing())
    kinds = [entry for entry in written_closed(ledger) if entry[0] in ("release", "return", "round", "close")]
    assert [entry[:5] for entry in kinds] == [
        ("round", 0, None, None, None),
        ("release", 1, None, "b", 2),
        ("return", 1, None, "c", 6),
        ("round", 1, None, None, None),
        ("release", None, None, "a", 1),
        ("close", None, None, None, None),
    ]
    assert kinds[-1][5] == {
        "status": "settled",
        "stop": {"kind": "budget", "reason": {"code": "budget-spent"}},
        "model": "ab" * 32,
        "utility": 0.6,
        "loss": 0.1,
        "spent": 6,
        "refunded": 34,
    }


def written_closed(ledger: Ledger) -> list[tuple[Any, ...]]:
    return [entry[1:7] for entry in ledger.store.entries()]


def test_who_has_nothing_held_back_has_nothing_settled() -> None:
    ledger = Ledger(rules())
    ledger.reserve(0, drawn(2))
    ledger.settle(0, drawn(2), settlement([0.1], [7], released=[0], returned=[1, 2]), Standing())
    assert [entry[0] for entry in written(ledger)] == ["reserve", "post", "round"]


def test_entries_are_numbered_and_chained() -> None:
    assert KINDS == ("open", "reserve", "post", "void", "release", "return", "round", "close")
    assert GENESIS == "0" * 64
    entry = Entry(3, "void", 1, 2, "é", 4, {"reason": {"code": "no-answer"}, "b": 0.1})
    assert entry.hash == "" and entry.fields == (3, "void", 1, 2, "é", 4, entry.body)
    # what the format says, worked out by hand with sha256sum
    assert Entry(0, "close", None, None, None, None, {}).digest("ab") == (
        "7d9389962057090c06548cf699fda173408a64c58c2271b78e58f845e3451ced"
    )
    sealed = entry.sealed("ab")
    assert sealed.hash == entry.digest("ab") and sealed.fields == entry.fields
    assert sealed.reason == Code("no-answer") and entry._replace(body={}).reason is None
    with pytest.raises(ValueError):
        _ = entry._replace(body={"reason": "words"}).reason
    assert canonical({"b": [1, 0.1, None, True], "a": "é"}) == '{"a":"é","b":[1,0.1,null,true]}'
    for odd in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            canonical(odd)


def test_accounts_number_their_entries_from_one_on() -> None:
    accounts = Accounts(rules())
    accounts.reserve(0, drawn(2, 0))
    with pytest.raises(LedgerError, match=r"entry 3 \(reserve"):
        accounts._write([("reserve", 0, 1, "a", 2, {})])


WHICH = {
    "opens": {"open"},
    "reserves": {"reserve"},
    "settles": {"post", "void"},
    "posts": {"post"},
    "frees": {"release", "return"},
    "releases": {"release"},
    "ends_round": {"round"},
    "closes": {"close"},
}
HAS = {"open": "0000", "close": "0000", "reserve": "1111", "post": "1111", "void": "1111", "round": "1000"}
HAS |= {"release": "?011", "return": "?011"}
"""Whether an entry has a round, a draw, a provider and an amount."""


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_entry_of_each_kind_does_and_has(kind: Any) -> None:
    entry = Entry(1, kind, None, None, None, None, {})
    assert {name for name in WHICH if getattr(entry, name)} == {name for name, kinds in WHICH.items() if kind in kinds}
    assert {type(getattr(entry, name)) for name in WHICH} == {bool}
    for given in itertools.product("01", repeat=4):
        fields = [value if has == "1" else None for has, value in zip(given, (0, 0, "a", 0), strict=True)]
        fits = all(wanted in ("?", has) for wanted, has in zip(HAS[kind], given, strict=True))
        assert Entry(1, kind, *fields, {}).well_formed is fits, given  # type: ignore[arg-type,call-arg]


def test_what_a_party_signs_says_of_which_kind_it_is() -> None:
    assert statement("renewal", {"b": 1, "a": "é"}) == '{"a":"é","b":1,"kind":"renewal"}'.encode()
    assert statement("renewal", {"kind": "reply"}) == b'{"kind":"renewal"}'
