"""Ways to pay: never more than was quoted, nothing without a valid reply, and the audit settles again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import OSMD, Arbiter, BazaarError, PricePerAccess
from databazaar.ledger import Ledger, audit_entries
from databazaar.market.loop import play
from databazaar.payments import Payment, PricePerRow
from databazaar.roster import Amounts, Roster
from databazaar.testing import check_payment
from forging import reseal
from records import record_of
from small_markets import MakeMarket


@dataclass(frozen=True)
class IfItHelps:
    """Half of the price for every valid reply, and all of it where the reply helped."""

    kind: ClassVar[str] = "test-if-it-helps"

    def quote(self, roster: Roster) -> Amounts:
        return 2 * roster.prices

    def settle(self, quotes: Sequence[int], gains: Sequence[float | None]) -> Sequence[int]:
        pairs = zip(quotes, gains, strict=True)
        return [0 if gain is None else quote if gain > 0 else quote // 2 for quote, gain in pairs]


@dataclass(frozen=True)
class Generous(IfItHelps):
    kind: ClassVar[str] = "test-generous"

    def settle(self, quotes: Sequence[int], gains: Sequence[float | None]) -> Sequence[int]:
        return [quote + 1 for quote in quotes]


@dataclass(frozen=True)
class PaysForNothing(IfItHelps):
    kind: ClassVar[str] = "test-for-nothing"

    def settle(self, quotes: Sequence[int], gains: Sequence[float | None]) -> Sequence[int]:
        return list(quotes)


@dataclass(frozen=True)
class Floating(IfItHelps):
    kind: ClassVar[str] = "test-floating"

    def settle(self, quotes: Sequence[int], gains: Sequence[float | None]) -> Sequence[int]:
        return [0.5 * quote for quote in quotes]  # type: ignore[misc]


@dataclass(frozen=True)
class ForFree(IfItHelps):
    kind: ClassVar[str] = "test-for-free"

    def quote(self, roster: Roster) -> Amounts:
        return 0 * roster.prices


@pytest.mark.parametrize("payment", [PricePerAccess(), PricePerRow((1, 2, 3, 50, 9, 10**6)), IfItHelps()], ids=repr)
def test_check_payment_passes(payment: Payment) -> None:
    check_payment(payment)


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (Generous(), "0 ≤ paid ≤ quoted"),
        (PaysForNothing(), "no valid reply"),
        (Floating(), "whole number"),
        (ForFree(), "1 or more per provider"),
    ],
)
def test_check_payment_catches(broken: Payment, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_payment(broken)


@given(st.lists(st.tuples(st.integers(1, 10**9), st.none() | st.floats(-1, 1)), max_size=8))
def test_one_price_an_access_is_all_or_nothing(draws: list[tuple[int, float | None]]) -> None:
    quotes, gains = [quote for quote, _ in draws], [gain for _, gain in draws]
    paid = PricePerAccess().settle(quotes, gains)
    assert list(paid) == [0 if gain is None else quote for quote, gain in draws]


def test_a_run_pays_by_its_rule_and_gives_the_rest_back(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market(
        (0.0, 5.0), budget=60, prices=[2, 2], oracles={1: lambda w: -w - 1}, step=0.2
    )
    arbiter = Arbiter(consumer, providers, OSMD(0.1, 0.5), engine="loop", payment=IfItHelps(), seed=1)
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    entries = list(ledger.store.entries())
    assert audit_entries(entries).ok, audit_entries(entries).message
    amounts = {(e.kind, e.amount) for e in entries if e.kind in ("reserve", "post")}
    assert amounts == {("reserve", 4), ("post", 4), ("post", 2)}
    report = arbiter.run()
    for access in (a for r in report.rounds for a in r.accesses):
        assert access.gain is not None and access.paid == (4 if access.gain > 0 else 2)
    assert report.spent == sum(a.paid for r in report.rounds for a in r.accesses)
    assert report.refunded == 60 - report.spent > 0
    assert report.rules["payment"]["kind"] == "test-if-it-helps"
    at = next(i for i, e in enumerate(entries) if e.kind == "post" and e.amount == 4)
    forged = [*entries[:at], entries[at]._replace(amount=3), *entries[at + 1 :]]
    assert "payments do not follow" in audit_entries(reseal(forged)).message


@pytest.mark.parametrize("payment", [Generous(), PaysForNothing()], ids=repr)
def test_a_run_never_pays_more_than_it_reserved_nor_for_nothing(
    make_vector_market: MakeMarket, payment: Payment
) -> None:
    consumer, providers = make_vector_market(budget=60, oracles={0: lambda w: w * np.nan})
    with pytest.raises(BazaarError, match="between nothing and what it quoted"):
        Arbiter(consumer, providers, engine="loop", payment=payment).run()


def test_nothing_is_given_away(make_vector_market: MakeMarket) -> None:
    with pytest.raises(BazaarError, match="1 or more"):
        Arbiter(*make_vector_market(), engine="loop", payment=ForFree())


def test_a_price_for_every_row_is_what_an_access_costs(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market((0.0, 0.5), budget=2000, per_round=2, prices=[2, 5])
    payment = PricePerRow(rows=(20, 30))
    arbiter = Arbiter(consumer, providers, engine="loop", payment=payment)
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    audit = audit_entries(ledger.store.entries())
    assert audit.ok and audit.terms is not None
    assert audit.terms.rules["payment"]["kind"] == "price-per-row"
    assert list(audit.terms.rules["payment"]["rows"]) == [20, 30]
    paid = {(access.provider, access.paid) for round in record_of(audit).rounds for access in round.accesses}
    assert paid == {(0, 40), (1, 150)}


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**9)), min_size=1, max_size=6))
def test_quotes_are_prices_times_rows(offers: list[tuple[int, int]]) -> None:
    rule = PricePerRow(rows=tuple(rows for rows, _ in offers))
    roster = Roster.of((f"p{i}", f"p{i}", price) for i, (_, price) in enumerate(offers))
    assert rule.quote(roster).tolist() == [rows * price for rows, price in offers]


def test_rows_that_do_not_fit_the_market_are_refused() -> None:
    with pytest.raises(BazaarError, match="rows has 2 numbers and the market 3 providers: give one for each"):
        PricePerRow(rows=(1, 2)).quote(Roster.equal(3))
    with pytest.raises(BazaarError, match="more than a ledger holds"):
        PricePerRow(rows=(2**32,)).quote(Roster.equal(1, price=2**31))
    assert PricePerRow(rows=(2**31,)).quote(Roster.equal(1, price=2**31)).tolist() == [2**62]
    for rows in ((0,), (1.5,), (True,), (-3,)):
        with pytest.raises(BazaarError, match=r"rows\[0\] = .* must be (a whole number|at least 1): change it"):
            PricePerRow(rows=rows)  # type: ignore[arg-type]
