"""Ledgers with caps, announced prices and limits that somebody has changed and sealed anew: the audit says what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from databazaar import Arbiter, LedgerError, Uniform
from databazaar.ledger import Book, Entry, Ledger, audit_entries
from databazaar.market.loop import play
from forging import reseal
from small_markets import vector_market

Forge = Callable[[list[Entry]], list[Entry]]


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    """Two of four have caps, which run out; one gets dearer in round 3; a round may cost 12, an access 8."""
    consumer, providers = vector_market(budget=70, per_round=4, prices=(1, 2, 3, 4))
    consumer = replace(consumer, most_per_access=8, most_per_round=12)
    providers[0] = replace(providers[0], most_accesses=6)
    providers[2] = replace(providers[2], most_accesses=4, price_changes=[(3, 7)])
    providers[3] = replace(providers[3], price_changes=[(9, 9)])
    arbiter = Arbiter(consumer, providers, Uniform(replacement=False), engine="loop", seed=1)
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    found = list(ledger.store.entries())
    prices = {(entry.provider, entry.amount) for entry in found if entry.kind == "post"}
    assert {("p2", 3), ("p2", 7)} <= prices and found[-1].body["spent"] > 50
    return found


def terms(**more: Any) -> Forge:
    """Other terms over the same rounds; without what is None."""

    def forge(entries: list[Entry]) -> list[Entry]:
        body = {name: value for name, value in {**entries[0].body, **more}.items() if value is not None}
        return [entries[0]._replace(body=body), *entries[1:]]

    return forge


def seller(place: int, **more: Any) -> Forge:
    def forge(entries: list[Entry]) -> list[Entry]:
        sellers = [list(one) for one in entries[0].body["providers"]]
        agreed = {name: value for name, value in {**dict(*sellers[place][3:]), **more}.items() if value is not None}
        sellers[place] = [*sellers[place][:3], *([agreed] if agreed else [])]
        return terms(providers=sellers)(entries)

    return forge


def paid_at(round: int, amount: int) -> Forge:
    """Somebody is reserved and paid another amount from a round on."""

    def changed(entry: Entry) -> Entry:
        theirs = entry.provider == "p2" and entry.round is not None and entry.round >= round
        return entry._replace(amount=amount) if theirs else entry

    return lambda entries: [changed(entry) for entry in entries]


FORGED: dict[str, tuple[Forge, str]] = {
    "a cap raised": (seller(0, most_accesses=60), "was not drawn here"),
    "a cap taken away": (seller(0, most_accesses=None), "was not drawn here"),
    "a cap lowered": (seller(0, most_accesses=2), "was not drawn here"),
    "a cap that is a float": (seller(0, most_accesses=6.0), "most_accesses = 6.0 must be a whole number"),
    "a change taken away": (seller(2, price_changes=None), "reserves 7, but p2 costs 3"),
    "a change come sooner": (seller(2, price_changes=[[1, 7]]), "reserves 3, but p2 costs 7"),
    "changes in disorder": (seller(2, price_changes=[[3, 7], [3, 8]]), "must come in their order"),
    "a change that is no pair": (seller(2, price_changes=[[3]]), "entry 0 (open): the terms cannot be read"),
    "the price before, from its round on": (paid_at(3, 3), "reserves 3, but p2 costs 7"),
    "the price to come, too soon": (paid_at(0, 7), "reserves 7, but p2 costs 3"),
    "most per access lowered": (terms(most_per_access=6), "reserves 7, and the most per access is 6"),
    "most per round lowered": (terms(most_per_round=9), "and the most per round is 9"),
    "most per round raised": (terms(most_per_round=200), "settled before the whole round was reserved"),
    "most per round taken away": (terms(most_per_round=None), "settled before the whole round was reserved"),
    "most per round in words": (terms(most_per_round="much"), "limits and prices must be whole numbers"),
    "an agreement nobody knows": (seller(1, least_accesses=3), "entry 0 (open): the terms cannot be read"),
    "an agreement too many": (
        lambda entries: terms(providers=[["p0", "p0", 1, {}, {}]])(entries),
        "entry 0 (open): the terms cannot be read",
    ),
    "an older format": (terms(format=4), "ledger format 4 needs another version of databazaar"),
}


def test_the_ledger_holds_and_says_why_it_ended(entries: list[Entry]) -> None:
    audit = audit_entries(entries)
    assert audit.ok and audit.closed
    assert reseal(entries) == entries


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_ledger_is_found_and_the_fault_named(entries: list[Entry], case: str) -> None:
    forge, words = FORGED[case]
    audit = audit_entries(reseal(forge(entries)))
    assert not audit.ok and words in audit.message, audit.message


def test_an_end_for_another_reason_is_found(entries: list[Entry]) -> None:
    stop = {**entries[-1].body["stop"], "reason": {"code": "nobody-can-be-asked", "providers": 4, "used_up": 4}}
    forged = [*entries[:-1], entries[-1]._replace(body={**entries[-1].body, "stop": stop})]
    assert "says it stopped because" in audit_entries(reseal(forged)).message


def test_a_run_that_ended_although_somebody_could_be_asked_is_found(entries: list[Entry]) -> None:
    rounds = [at for at, entry in enumerate(entries) if entry.kind == "round"]
    spent = sum(entry.amount or 0 for entry in entries[: rounds[-2]] if entry.kind == "post")
    last = {**entries[-1].body, "spent": spent, "refunded": 70 - spent}
    forged = [*entries[: rounds[-2] + 1], entries[-1]._replace(body=last)]
    assert "the run stopped although the budget covers another round" in audit_entries(reseal(forged)).message


def reserve(round: int, draw: int, provider: str, amount: int) -> Entry:
    return Entry(1, "reserve", round, draw, provider, amount, {})


def test_a_book_refuses_what_goes_beyond_a_limit() -> None:
    book = Book(100, {"a": 2, "b": 5}, {"a": [(3, 4)]}, {"a": 2}, most_per_access=4, most_per_round=7)
    with pytest.raises(LedgerError, match="reserves 5, and the most per access is 4"):
        book.apply(reserve(0, 0, "b", 5))
    with pytest.raises(LedgerError, match="reserves 4, but a costs 2"):
        book.apply(reserve(2, 0, "a", 4))
    book.apply(reserve(3, 0, "a", 4))
    with pytest.raises(LedgerError, match="the round would cost 8, and the most per round is 7"):
        book.apply(reserve(3, 1, "a", 4))
    book.apply(Entry(1, "void", 3, 0, "a", 4, {"reason": "no answer"}))
    book.apply(Entry(1, "round", 3, None, None, None, {"utility": 0.1, "reached": 0.1, "gains": [None]}))
    book.apply(reserve(4, 0, "a", 4))  # another round, and another seven
    assert book.drawn == {"a": 2} and book.drawn_before() == {"a": 1}
    with pytest.raises(LedgerError, match="a may be drawn 2 times, and was"):
        book.apply(reserve(5, 0, "a", 4))
