"""Every rule of the book by itself: what an entry changes, to the last account, and what is refused in which words."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from databazaar import LedgerError
from databazaar.ledger import Book, Entry
from databazaar.ledger.book import NOT_SETTLED

PRICES = {"a": 1, "b": 3, "c": 7}


def access(
    kind: Any, round: Any = 0, draw: Any = 0, provider: Any = "b", amount: Any = 3, body: dict[str, Any] | None = None
) -> Entry:
    return Entry(1, kind, round, draw, provider, amount, body or {})


def ended(gains: Sequence[float | None], utility: float = 0.5, reached: float = 0.6) -> Entry:
    return Entry(1, "round", 0, None, None, None, {"gains": list(gains), "utility": utility, "reached": reached})


CLOSE = Entry(9, "close", None, None, None, None, {})


def book_after(*entries: Entry, budget: int = 100, **limits: Any) -> Book:
    book = Book(budget, dict(PRICES), **limits)
    for entry in entries:
        book.apply(entry)
        book.assert_sound()
    return book


def refused(book: Book, entry: Entry, words: str) -> None:
    """The entry is named and refused in these words, and no account is touched."""
    before = copy.deepcopy(book)
    with pytest.raises(LedgerError) as broken:
        book.apply(entry)
    assert str(broken.value) == f"{entry}: {words}"
    assert book == before


def test_what_is_written_of_an_access_that_the_consumer_left_unsettled() -> None:
    assert NOT_SETTLED == {"reason": {"code": "run-closed"}}


def test_an_entry_is_named_by_its_number_its_kind_and_its_place() -> None:
    assert str(access("reserve")) == "entry 1 (reserve, round 0, draw 0)"
    assert str(ended([])) == "entry 1 (round, round 0)" and str(CLOSE) == "entry 9 (close)"


def test_a_new_book_is_empty() -> None:
    book = Book(100, dict(PRICES))
    numbers = (book.asked, book.asked_before, book.spent, book.voided, book.unpaid, book.rounds, book.silent)
    assert numbers == (0,) * 7 and book.closed is False
    assert (book.left, book.held, book.utilities, book.drawn_before()) == (100, 0, [], {})
    assert book.most_per_access is None and book.most_per_round is None


def test_a_copy_goes_on_by_itself() -> None:
    book = book_after(access("reserve"))
    fork = book.copied()
    assert fork == book
    fork.apply(access("post"))
    assert (book.spent, book.held, book.pay, book.settled) == (0, 3, {}, set())
    assert (fork.spent, fork.held, fork.pay, fork.settled) == (3, 0, {"b": 3}, {(0, 0)})


def test_a_reserve_sets_the_price_aside() -> None:
    book = book_after(access("reserve"), access("reserve", draw=1, provider="c", amount=7))
    assert book.reserved == {(0, 0): ("b", 3), (0, 1): ("c", 7)}
    assert (book.asked, book.left, book.held, book.spent) == (10, 90, 10, 0)
    assert book.drawn == {"b": 1, "c": 1}
    book.apply(access("reserve", draw=2))
    assert book.drawn == {"b": 2, "c": 1}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (access("reserve"), "this access is reserved already"),
        (access("reserve", draw=1), "this access is settled already"),
        (access("reserve", draw=2, amount=4), "reserves 4, but b costs 3"),
        (access("reserve", draw=2, provider="c", amount=7), "reserves 7 of 4 left in the budget"),
        (access("reserve", draw=2, provider="z"), "provider 'z' is not part of this market"),
        (access("reserve", round=None), "lacks its round, draw, provider or amount"),
        (access("reserve", draw=None), "lacks its round, draw, provider or amount"),
        (access("reserve", provider=None), "lacks its round, draw, provider or amount"),
        (access("reserve", amount=None), "lacks its round, draw, provider or amount"),
        (access("reserve", amount=3.0), "its amount is not a whole number"),
        (access("reserve", amount=True), "its amount is not a whole number"),
        (access("reserve", round=1.0), "its round or draw is not a whole number"),
        (access("reserve", draw=True), "its round or draw is not a whole number"),
        (access("reserve", draw="2"), "its round or draw is not a whole number"),
    ],
)
def test_a_reserve_that_breaks_a_rule_is_refused(entry: Entry, words: str) -> None:
    book = book_after(access("reserve", draw=1), access("post", draw=1), access("reserve"), budget=10)
    refused(book, entry, words)


def test_a_price_below_zero_is_refused_and_nothing_at_all_may_be_its_price() -> None:
    for price in (-3, -1):
        refused(Book(10, {"b": price}), access("reserve", amount=price), "reserves a negative amount")
    book = Book(10, {"b": 0})
    book.apply(access("reserve", amount=0))
    assert book.reserved == {(0, 0): ("b", 0)} and book.asked == 0


def test_the_last_of_the_budget_may_be_reserved() -> None:
    assert book_after(access("reserve"), budget=3).left == 0


def test_a_price_is_that_of_the_round() -> None:
    book = Book(100, dict(PRICES), changes={"b": [(2, 5), (4, 2)]})
    assert [book.quote("b", round) for round in range(6)] == [3, 3, 5, 5, 2, 2]
    assert [book.quote("c", round) for round in (0, 9)] == [7, 7]
    refused(book, access("reserve", round=2), "reserves 3, but b costs 5")
    book.apply(access("reserve", round=2, amount=5))
    book.apply(access("reserve", round=1, draw=2))
    assert book.held == 8


def test_limits_are_reached_and_not_passed() -> None:
    book = book_after(access("reserve"), caps={"b": 2})
    book.apply(access("reserve", draw=1))
    refused(book, access("reserve", draw=2), "b may be drawn 2 times, and was")
    book.apply(access("reserve", draw=2, provider="c", amount=7))
    refused(Book(9, dict(PRICES), caps={"b": 0}), access("reserve"), "b may be drawn 0 times, and was")
    Book(9, dict(PRICES), caps={"b": 1}).apply(access("reserve"))


@pytest.mark.parametrize("most", [3, 2])
def test_the_most_per_access(most: int) -> None:
    book = Book(100, dict(PRICES), most_per_access=most)
    if most == 3:
        book.apply(access("reserve"))
        return
    refused(book, access("reserve"), "reserves 3, and the most per access is 2")


def test_the_most_per_round_is_of_each_round() -> None:
    book = book_after(access("reserve"), access("reserve", draw=1), most_per_round=6)
    words = "the round would cost 7, and the most per round is 6"
    refused(book, access("reserve", draw=2, provider="a", amount=1), words)
    for draw in (0, 1):
        book.apply(access("post", draw=draw, amount=1))
    book.apply(ended([0.1, 0.1]))
    assert book.asked_before == 6
    for draw in (0, 1):
        book.apply(access("reserve", round=1, draw=draw))
    refused(book, access("reserve", round=1, draw=2, provider="a", amount=1), words)


def test_what_was_drawn_before_leaves_out_the_round_under_way() -> None:
    book = book_after(
        access("reserve"), access("post"), access("reserve", draw=1), access("reserve", draw=2, provider="c", amount=7)
    )
    assert book.drawn == {"b": 2, "c": 1} and book.drawn_before() == {"b": 1, "c": 0}


def test_a_post_pays_and_what_it_does_not_pay_goes_back() -> None:
    book = book_after(access("reserve"), access("post", amount=2), access("reserve", draw=1), access("post", draw=1))
    assert (book.spent, book.unpaid, book.voided, book.held, book.left) == (5, 1, 0, 0, 94)
    assert (book.pay, book.accesses, book.failures, book.held_back) == ({"b": 5}, {"b": 2}, {}, {})
    assert book.settled == {(0, 0), (0, 1)} and not book.reserved


def test_a_void_pays_nothing_and_counts_as_a_failure_unless_the_consumer_left() -> None:
    code = {"reason": {"code": "no-answer"}}
    book = book_after(access("reserve"), access("void", body=code))
    assert (book.voided, book.spent, book.unpaid, book.failures, book.settled) == (3, 0, 0, {"b": 1}, {(0, 0)})
    book.apply(access("reserve", draw=1))
    book.apply(access("void", draw=1, body=code))
    assert book.failures == {"b": 2}
    book.apply(access("reserve", draw=2))
    book.apply(access("void", draw=2, body=NOT_SETTLED))
    assert (book.voided, book.failures, book.accesses, book.pay) == (9, {"b": 2}, {}, {})


def test_held_in_a_void_holds_nothing_back() -> None:
    book = book_after(access("reserve"), access("void", body={"held": 2}))
    assert (book.voided, book.held_back, book.unpaid) == (3, {}, 0)


@pytest.mark.parametrize(
    "entry",
    [
        access("post", amount=4),
        access("post", amount=-1),
        access("post", provider="a", amount=1),
        access("post", draw=1),
        access("post", round=1),
        access("post", draw=7, amount=0),
        access("void", amount=2),
        access("void", amount=0),
        access("void", provider="c", amount=3),
    ],
)
def test_what_was_not_reserved_is_not_settled(entry: Entry) -> None:
    refused(book_after(access("reserve")), entry, "nothing like it is reserved")


def test_a_part_of_a_post_may_be_held_back() -> None:
    book = book_after(
        access("reserve", provider="c", amount=7), access("post", provider="c", amount=2, body={"held": 4})
    )
    assert (book.spent, book.unpaid, book.held_back, book.pay) == (2, 1, {"c": 4}, {"c": 2})
    book.apply(access("reserve", draw=1, provider="c", amount=7))
    book.apply(access("post", draw=1, provider="c", amount=0, body={"held": 7}))
    assert (book.spent, book.unpaid, book.held_back, book.accesses) == (2, 1, {"c": 11}, {"c": 2})


@pytest.mark.parametrize("held", [0, -1, 2, 1.0, True, "1", None])
def test_something_is_held_back_and_no_more_than_is_not_paid(held: Any) -> None:
    book = book_after(access("reserve"))
    words = f"holds back {held!r}, and 1 is what is not paid"
    refused(book, access("post", amount=2, body={"held": held}), words)


def holding() -> Book:
    return book_after(
        access("reserve", provider="c", amount=7), access("post", provider="c", amount=2, body={"held": 4})
    )


def freeing(kind: Any, provider: str | None = "c", amount: Any = 4, draw: int | None = None) -> Entry:
    return Entry(1, kind, 0, draw, provider, amount, {})


def test_held_back_pay_is_released_or_returned() -> None:
    book = holding()
    book.apply(freeing("release"))
    book.assert_sound()
    assert (book.spent, book.unpaid, book.pay) == (6, 1, {"c": 6})
    assert (book.released, book.returned, book.held_back) == ({"c": 4}, {}, {})
    book = holding()
    book.apply(freeing("return"))
    book.assert_sound()
    assert (book.spent, book.unpaid, book.pay) == (2, 5, {"c": 2})
    assert (book.released, book.returned, book.held_back) == ({}, {"c": 4}, {})


@pytest.mark.parametrize("kind", ["release", "return"])
def test_what_is_freed_adds_up_over_the_rounds(kind: str) -> None:
    book = holding()
    book.apply(freeing(kind))
    book.apply(access("reserve", draw=1, provider="c", amount=7))
    book.apply(access("post", draw=1, provider="c", amount=0, body={"held": 5}))
    book.apply(freeing(kind, amount=5))
    book.assert_sound()
    freed = book.released if kind == "release" else book.returned
    assert freed == {"c": 9} and book.pay == {"c": 11 if kind == "release" else 2}


def test_a_single_coin_is_held_back_and_freed() -> None:
    book = book_after(access("reserve"), access("post", amount=2, body={"held": 1}), freeing("release", "b", 1))
    assert (book.pay, book.released, book.unpaid) == ({"b": 3}, {"b": 1}, 0)


def test_pay_may_be_released_that_was_all_held_back() -> None:
    book = book_after(access("reserve"), access("post", amount=0, body={"held": 3}), freeing("release", "b", 3))
    assert book.pay == {"b": 3} and book.spent == 3


@pytest.mark.parametrize("kind", ["release", "return"])
@pytest.mark.parametrize(
    ("more", "held"),
    [
        ({"amount": 3}, 4),
        ({"amount": 5}, 4),
        ({"amount": 4.0}, 4),
        ({"amount": None}, 4),
        ({"draw": 0}, 4),
        ({"provider": "b", "amount": 0}, 0),
        ({"provider": None, "amount": 0}, 0),
        ({"provider": None}, 0),
    ],
)
def test_all_that_is_held_back_is_settled_at_once_or_nothing(kind: str, more: dict[str, Any], held: int) -> None:
    entry = freeing(kind, **more)
    refused(holding(), entry, f"{entry.provider!r} has {held} held back, and all of it is settled at once")


def test_the_end_of_a_round() -> None:
    book = book_after(access("reserve"), access("post"))
    book.apply(ended([0.1]))
    assert (book.rounds, book.silent, book.utilities, book.asked_before) == (1, 0, [0.5, 0.6], 3)
    assert book.settled == set()
    for round, gains in ((1, [None, None]), (2, [None])):
        book.apply(ended(gains, utility=0.9, reached=0.7))
        assert (book.rounds, book.silent) == (round + 1, round)
    assert book.utilities == [0.5, 0.6, 0.7, 0.7]
    book.apply(ended([None, 0.2]))
    assert (book.rounds, book.silent) == (4, 0)


def test_a_round_that_has_ended_takes_no_more_reserves() -> None:
    book = book_after(access("reserve", round=1, draw=5), access("post", round=1, draw=5))
    book.apply(ended([0.1]))
    assert book.settled == {(1, 5)}
    late = book_after(
        access("reserve", draw=5), access("post", draw=5), access("reserve", round=1), access("post", round=1)
    )
    late.apply(ended([0.1]))
    assert late.settled == {(1, 0)}
    refused(book, access("reserve"), "this access is settled already")
    refused(book, access("reserve", round=1, draw=5), "this access is settled already")
    book.apply(access("reserve", round=1))
    assert book.held == 3


def test_a_book_closes_when_nothing_is_open_and_takes_nothing_more() -> None:
    book = book_after(access("reserve"))
    refused(book, CLOSE, "1 reservations are still open")
    refused(holding(), CLOSE, "pay of c is still held back")
    names = dict.fromkeys("dbeca", 1)
    held = Book(10, dict(PRICES), held_back=names)
    refused(held, CLOSE, "pay of a, b, c is still held back")
    book.apply(access("post"))
    book.apply(CLOSE)
    assert book.closed is True
    for entry in (CLOSE, access("reserve", draw=1), ended([])):
        refused(book, entry, "the ledger is closed and takes nothing more")


SOUND = {"asked": 20, "spent": 5, "unpaid": 4, "voided": 3, "pay": {"a": 2, "b": 3}, "held_back": {"a": 1}}
SOUND |= {"reserved": {(0, 0): ("c", 7)}}


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ({}, ""),
        ({"budget": 13}, ""),
        ({"budget": 12}, "paid + held back + reserved ≤ budget"),
        ({"asked": 19}, "asked = paid + unpaid + voided + reserved + held back"),
        ({"asked": 21}, "asked = paid + unpaid + voided + reserved + held back"),
        ({"unpaid": 0, "voided": 7}, ""),
        ({"unpaid": 7, "voided": 0}, ""),
        ({"unpaid": -1, "voided": 8}, "nothing is negative"),
        ({"unpaid": 8, "voided": -1}, "nothing is negative"),
        ({"spent": -1, "unpaid": 10, "pay": {"a": -1}}, "nothing is negative"),
        ({"held_back": {"a": 2, "b": -1}}, "nothing is negative"),
        ({"held_back": {"a": 1, "b": 0}}, ""),
        ({"pay": {"a": 2, "b": 4}}, "payments sum to what was spent"),
        ({"pay": {"a": 6, "b": -1}}, "no payment is negative"),
        ({"pay": {"a": 5, "b": 0}}, ""),
    ],
)
def test_everything_adds_up_or_the_rule_is_named(fault: dict[str, Any], rule: str) -> None:
    book = Book(**{"budget": 30, "quotes": dict(PRICES), **SOUND, **fault})
    if not rule:
        book.assert_sound()
        return
    with pytest.raises(LedgerError) as broken:
        book.assert_sound()
    assert str(broken.value) == f"the ledger broke its rule '{rule}': nothing was written"


def test_an_empty_book_is_sound() -> None:
    Book(0, {}).assert_sound()
