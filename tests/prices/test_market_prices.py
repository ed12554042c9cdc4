"""Whole markets with caps, announced prices and limits: what was agreed holds in every round, and every replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar import OSMD, Arbiter, BazaarError, Report, Uniform
from databazaar.ledger import Entry, Ledger, MemoryStore, Snapshot, Terms, audit_entries
from databazaar.market.loop import play
from databazaar.market.methods import OwnMarketMethod
from databazaar.payments import PricePerRow
from databazaar.roster import RoundBudget
from databazaar.runs.report import report_from
from databazaar.samplers import Sampler
from databazaar.stops.budget import SPENT
from own_samplers import Valued
from small_markets import vector_market

PRICES = st.integers(1, 6) | st.sampled_from([40, 10**9])


class Setting(NamedTuple):
    """A market of four, of which the last one fails; `caps` and `changes` by place."""

    prices: Sequence[int] = (1, 1, 1, 1)
    caps: Sequence[int | None] = (None, None, None, None)
    changes: Sequence[Sequence[tuple[int, int]]] = ((), (), (), ())
    budget: int = 60
    per_round: int = 3
    most_per_access: int | None = None
    most_per_round: int | None = None
    sampler: Sampler = Valued()
    seed: int = 0

    def arbiter(self, **more: Any) -> Arbiter:
        consumer, providers = vector_market(
            budget=self.budget, per_round=self.per_round, prices=self.prices, oracles={3: lambda w: w * np.nan}
        )
        consumer = replace(consumer, most_per_access=self.most_per_access, most_per_round=self.most_per_round)
        terms = zip(providers, self.caps, self.changes, strict=True)
        sellers = [replace(p, most_accesses=cap, price_changes=changes) for p, cap, changes in terms]
        return Arbiter(consumer, sellers, self.sampler, engine="loop", seed=self.seed, **more)

    def price(self, provider: int, round: int) -> int:
        """The obvious way."""
        price = self.prices[provider]
        for start in range(round + 1):
            price = dict(self.changes[provider]).get(start, price)
        return price


RULES: list[Sampler] = [Valued(), OSMD(0.6, 0.2), Uniform(), Uniform(replacement=False)]
CAPS = st.lists(st.none() | st.integers(1, 8), min_size=4, max_size=4)
CHANGES = st.lists(st.dictionaries(st.integers(1, 8), PRICES, max_size=2), min_size=4, max_size=4)


@st.composite
def priced(draw: st.DrawFn) -> Setting:
    setting = Setting(
        prices=draw(st.lists(PRICES, min_size=4, max_size=4)),
        caps=draw(CAPS),
        changes=[sorted(changes.items()) for changes in draw(CHANGES)],
        per_round=draw(st.integers(1, 4)),
        sampler=draw(st.sampled_from(RULES)),
        seed=draw(st.integers(0, 5)),
    )
    cheapest = min(setting.prices)
    return setting._replace(
        budget=cheapest * setting.per_round * draw(st.integers(1, 25)) + draw(st.integers(0, 30)),
        most_per_access=draw(st.none() | st.integers(cheapest, cheapest + 8)),
        most_per_round=draw(st.none() | st.integers(cheapest, 5 * cheapest + 8)),
    )


def ledger_of(arbiter: Arbiter) -> list[Entry]:
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    return list(ledger.store.entries())


def report_of(entries: list[Entry]) -> Report:
    return report_from(audit_entries(entries))


@settings(max_examples=120)
@given(priced())
def test_what_was_agreed_holds_in_every_round(setting: Setting) -> None:
    entries = ledger_of(setting.arbiter())
    audit = audit_entries(entries)
    assert audit.ok and audit.closed, audit.first_broken
    report, used, left = report_from(audit), Counter[int](), setting.budget
    assert report.rounds
    for number, one in enumerate(report.rounds):
        cost = 0
        for access in one.accesses:
            assert access.quoted == setting.price(access.provider, number)
            assert access.paid == (0 if access.failure is not None else access.quoted)
            assert setting.most_per_access is None or access.quoted <= setting.most_per_access
            used[access.provider] += 1
            cost += access.quoted
        assert 1 <= len(one.accesses) <= setting.per_round and cost <= left
        assert setting.most_per_round is None or cost <= setting.most_per_round
        left -= cost
    for provider, cap in enumerate(setting.caps):
        assert cap is None or used[provider] <= cap
        assert used[provider] == report.payouts[provider].accesses + report.payouts[provider].failures
    paid = sum(access.paid for one in report.rounds for access in one.accesses)
    assert paid == report.spent == sum(payout.pay for payout in report.payouts) == setting.budget - report.refunded
    assert_over(setting, report, used, left)


def assert_over(setting: Setting, report: Report, used: Counter[int], left: int) -> None:
    """The run ended because nobody could be asked any more, or because nobody answered."""
    if report.stopped_by is not None and report.stopped_by.name == "no-valid-reply":
        return
    prices = [setting.price(i, len(report.rounds)) for i in range(4)]
    most = min(m for m in (left, setting.most_per_access, setting.most_per_round) if m is not None)
    waiting = [i for i, cap in enumerate(setting.caps) if prices[i] <= most and (cap is None or used[i] < cap)]
    if report.stopped_by == SPENT and waiting:  # one price for all: what buys no whole round goes back
        limits = [*setting.caps, setting.most_per_access, setting.most_per_round]
        assert len(set(prices)) == 1 and left < prices[0] * setting.per_round and set(limits) == {None}
    else:
        assert not waiting
        assert (left < min(prices)) == (report.stopped_by == SPENT)


class Mortal(MemoryStore):
    """Keeps what was appended, until the lights go out in the middle of a round."""

    durable = True

    def __init__(self, appends: int) -> None:
        super().__init__()
        self.appends = appends

    def append(self, entries: Sequence[Entry], snapshot: Snapshot | None) -> None:
        super().append(entries, snapshot)
        self.appends -= 1
        if not self.appends:
            raise KeyboardInterrupt


@settings(max_examples=40)
@given(priced(), st.integers(1, 9))
def test_a_run_that_is_killed_in_mid_round_goes_on_to_the_same_hashes(setting: Setting, appends: int) -> None:
    """After an append, a whole round is reserved and nothing of it settled."""
    undisturbed, store = ledger_of(setting.arbiter()), Mortal(appends)
    for _ in range(2):
        arbiter = setting.arbiter()
        try:
            ledger = Ledger(arbiter.rules, store)
            if not ledger.book.closed:
                play(arbiter.begin(ledger), arbiter.engine)
        except KeyboardInterrupt:
            assert audit_entries(store.entries(), store.snapshot()).ok
    assert list(store.entries()) == undisturbed


def test_prices_of_one_and_of_a_thousand_million_stand_side_by_side() -> None:
    setting = Setting(prices=(1, 10**9, 1, 1), budget=3 * 10**9 + 500, sampler=Uniform(), caps=(40, None, 40, 40))
    report = report_of(ledger_of(setting.arbiter()))
    assert [payout.accesses for payout in report.payouts][:3] == [40, 3, 40]
    assert report.spent == 3 * 10**9 + 80
    limited = report_of(ledger_of(setting._replace(most_per_access=10**9 - 1).arbiter()))
    assert [payout.accesses for payout in limited.payouts][:3] == [40, 0, 40]
    assert str(limited.stopped_by) == (
        "nobody can be asked any more (3 of 4 providers used up, 1 above the most per access)"
    )
    assert str(limited.stopped_by) in limited.message


def test_a_price_that_changes_in_mid_run_is_paid_from_its_round_on() -> None:
    changes = ((), ((2, 4), (5, 2)), (), ())
    report = report_of(ledger_of(Setting(changes=changes, sampler=Uniform(replacement=False), per_round=4).arbiter()))
    paid = [access.paid for one in report.rounds for access in one.accesses if access.provider == 1]
    assert paid[:7] == [1, 1, 4, 4, 4, 2, 2]


def test_a_cap_that_runs_out_in_mid_round_shortens_the_round() -> None:
    """One provider alone, two accesses of which are left in a round of three."""
    setting = Setting(prices=(1, 9, 9, 9), caps=(5, None, None, None), most_per_access=3)
    report = report_of(ledger_of(setting.arbiter()))
    assert [len(one.accesses) for one in report.rounds] == [3, 2]
    assert (
        str(report.stopped_by) == "nobody can be asked any more (1 of 4 providers used up, 3 above the most per access)"
    )
    assert report.refunded == 55


def test_a_draw_whose_reply_failed_has_used_an_access_too() -> None:
    setting = Setting(prices=(9, 9, 9, 1), caps=(None, None, None, 5), most_per_access=3)
    report = report_of(ledger_of(setting.arbiter()))
    assert (report.payouts[3].failures, report.spent) == (5, 0)
    assert report.status == "nobody-answered"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (Setting(caps=(2, 2, 2, 2)), "nobody can be asked any more (4 of 4 providers used up)"),
        (
            Setting(changes=(((2, 9),),) * 4, most_per_access=8, most_per_round=20),
            "nobody can be asked any more (4 of 4 providers above the most per access)",
        ),
        (
            Setting(changes=(((2, 9),),) * 4, caps=(1, 9, 9, 9), most_per_round=8, per_round=4, sampler=Uniform(False)),
            "nobody can be asked any more (1 of 4 providers used up, 3 above the most per round)",
        ),
        (
            Setting(prices=(1, 50, 50, 50), caps=(4, None, None, None), budget=45, per_round=2),
            "nobody can be asked any more (1 of 4 providers used up, 3 above what is left)",
        ),
        (Setting(most_per_round=2, prices=(1, 1, 1, 2)), "the budget is spent"),
    ],
)
def test_the_reason_says_what_ended_the_run(setting: Setting, reason: str) -> None:
    report = report_of(ledger_of(setting.arbiter()))
    assert str(report.stopped_by) == reason
    assert (reason in report.message) == (reason != "the budget is spent")


def test_a_pace_makes_more_rounds_of_the_same_money() -> None:
    setting = Setting(per_round=4, most_per_round=2)
    report = report_of(ledger_of(setting.arbiter()))
    assert {len(one.accesses) for one in report.rounds} == {2} and len(report.rounds) == 30


def test_what_an_access_costs_is_its_rows_too() -> None:
    setting = Setting(changes=(((1, 2),), (), (), ()), most_per_access=15, most_per_round=30)
    report = report_of(ledger_of(setting.arbiter(payment=PricePerRow((10, 15, 16, 1)))))
    assert all(access.provider != 2 for one in report.rounds for access in one.accesses)
    asked = [one.number for one in report.rounds for access in one.accesses if access.provider == 0]
    assert set(asked) <= {0}  # from round 1 on its ten rows cost 20


def test_terms_of_plain_markets_have_no_limits() -> None:
    arbiter = Setting().arbiter()
    body = arbiter.terms().body()
    assert body["format"] == 5 and "most_per_access" not in body and "most_per_round" not in body
    assert body["providers"][0] == ["p0", "p0", 1]
    assert Terms.from_body(body) == arbiter.terms()


def test_terms_with_caps_changes_and_limits_come_back_whole() -> None:
    setting = Setting(caps=(3, None, None, 2), changes=((), ((4, 7),), (), ((1, 1),)), most_per_access=5)
    terms = setting.arbiter().terms()
    body = terms.body()
    assert body["format"] == 5 and body["most_per_access"] == 5
    assert body["providers"] == [
        ["p0", "p0", 1, {"most_accesses": 3}],
        ["p1", "p1", 1, {"price_changes": [[4, 7]]}],
        ["p2", "p2", 1],
        ["p3", "p3", 1, {"most_accesses": 2, "price_changes": [[1, 1]]}],
    ]
    assert Terms.from_body(body) == terms and Terms.from_body(body).body() == body
    assert "most per access" in repr(terms)


def test_a_run_is_not_taken_up_with_other_caps() -> None:
    setting = Setting(caps=(5, 5, 5, 5))
    store = Mortal(3)
    arbiter = setting.arbiter()
    with pytest.raises(KeyboardInterrupt):
        play(arbiter.begin(Ledger(arbiter.rules, store)), arbiter.engine)
    for other in (Setting(), setting._replace(caps=(5, 5, 5, 6)), setting._replace(most_per_round=9)):
        with pytest.raises(BazaarError, match="begun with other terms"):
            Ledger(other.arbiter().rules, store)


@dataclass(frozen=True)
class Blind(Uniform):
    """Draws whoever comes first, whether it can be asked or not."""

    kind: ClassVar[str] = "test-blind"

    def draw(self, state: np.ndarray, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> np.ndarray:
        return np.zeros(size, dtype=np.int64)


def test_a_sampler_that_draws_nobody_who_can_be_asked_is_named() -> None:
    arbiter = Setting(caps=(4, None, None, None), sampler=Blind()).arbiter()
    with pytest.raises(BazaarError, match="sampler 'test-blind' drew nobody who can be asked"):
        ledger_of(arbiter)


def test_the_market_is_a_method_of_valuation_within_its_caps() -> None:
    arbiter = Setting(caps=(3, 4, 5, 1), sampler=Uniform()).arbiter()
    result = OwnMarketMethod(engine="loop").run(arbiter.consumer, arbiter.providers)
    assert result.values.tolist() == [3, 4, 5, 0]
