"""Reasons to stop: each is written into the close, and the audit finds it again or says what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import OSMD, Arbiter, BazaarError, Consumer, NoProgress, Provider, TargetUtility, Uniform
from databazaar.codes import Code
from databazaar.ledger import Entry, Ledger, audit_entries
from databazaar.market.loop import play
from databazaar.roster import Roster, RoundBudget
from databazaar.stops import STOPS, Budget, History, Patience, Stop
from databazaar.testing import check_stop
from forging import reseal
from small_markets import MakeMarket


def entries_of(arbiter: Arbiter) -> list[Entry]:
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    return list(ledger.store.entries())


@pytest.mark.parametrize(
    "stop", [Budget(), Patience(3), TargetUtility(0.5), NoProgress(), NoProgress(6, 0.01)], ids=repr
)
def test_check_stop_passes_ours(stop: Stop) -> None:
    check_stop(stop)
    assert STOPS.build(STOPS.settings_of(stop)) == stop


@dataclass(frozen=True)
class Moody:
    """Says something else each time."""

    kind: ClassVar[str] = "test-moody"
    calls: ClassVar[list[int]] = []

    def reason(self, history: History) -> Code | None:
        self.calls.append(1)
        return None if len(self.calls) % 2 else Code("just-so")


@dataclass(frozen=True)
class Wordless:
    kind: ClassVar[str] = "test-wordless"

    def reason(self, history: History) -> Code | None:
        return "enough" if history.rounds > 5 else None  # type: ignore[return-value]


@pytest.mark.parametrize(("broken", "complaint"), [(Moody(), "pure function"), (Wordless(), "a reason is a Code")])
def test_check_stop_catches(broken: Stop, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_stop(broken)


@given(left=st.integers(0, 40), prices=st.lists(st.integers(1, 9), min_size=1, max_size=4), per_round=st.integers(1, 4))
def test_the_budget_is_spent_when_it_pays_for_nobody_and_with_one_price_for_no_whole_round(
    left: int, prices: list[int], per_round: int
) -> None:
    history = History(3, [0.1], 0, RoundBudget(left, np.array(prices)), per_round)
    needed = per_round * prices[0] if len(set(prices)) == 1 else min(prices)
    assert (Budget().reason(history) is None) == (left >= needed)


def test_a_target_ends_the_run_at_the_first_round_that_reaches_it(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market(budget=300)
    whole = Arbiter(consumer, providers, OSMD(0.5, 0.1), engine="loop").run()
    target = 0.7
    first = next(r.number for r in whole.rounds if r.reached is not None and r.reached >= target)
    arbiter = Arbiter(consumer, providers, OSMD(0.5, 0.1), engine="loop", stops=[TargetUtility(target)])
    report = arbiter.run()
    assert len(report.rounds) == first + 1 < len(whole.rounds)
    assert report.status == "settled" and report.final_utility >= target
    assert report.refunded == 300 - report.spent > 0
    assert report.stopped_by is not None and report.stopped_by.name == "target-reached"
    assert str(report.stopped_by) in report.message
    assert [r.accesses for r in report.rounds] == [r.accesses for r in whole.rounds[: first + 1]]


def test_a_target_that_is_reached_before_the_first_round_buys_nothing_after_one(make_vector_market: MakeMarket) -> None:
    """The utility of the first model stands in the ledger with the first round, so one round is played."""
    consumer, providers = make_vector_market(budget=30)
    report = Arbiter(consumer, providers, engine="loop", stops=[TargetUtility(-1.0)]).run()
    assert len(report.rounds) == 1


def test_no_progress_ends_a_run_that_has_arrived(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market((0.0, 0.0), budget=3000)
    report = Arbiter(consumer, providers, Uniform(), engine="loop", stops=[NoProgress(10, 1e-4)]).run()
    assert report.status == "settled" and report.final_utility > 0.999
    assert len(report.rounds) < 60
    assert "over the last 10 rounds" in str(report.stopped_by)


def test_the_first_stop_with_a_reason_is_the_one_that_is_written_down(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market(budget=30)
    both = [TargetUtility(-2.0), TargetUtility(-1.0)]
    assert str(Arbiter(consumer, providers, engine="loop", stops=both).run().stopped_by).endswith("-2 was wanted")


def played() -> Arbiter:
    target = np.array([1.0, -1.0])

    def pull(w: np.ndarray) -> np.ndarray:
        return np.asarray(target - w)

    def utility(w: np.ndarray) -> float:
        return float(np.exp(-np.sum((w - target) ** 2)))

    consumer = Consumer(np.zeros(2), budget=60, per_round=2, utility=utility, step=0.2)
    return Arbiter(consumer, [Provider("a", oracle=pull)], Uniform(), engine="loop", stops=[TargetUtility(0.8)])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"stop": {"kind": "budget", "reason": {"code": "budget-spent"}}}, "says it stopped because"),
        ({"stop": {"kind": "target-utility", "reason": {"code": "enough"}}}, "says it stopped because"),
        ({"status": "nobody-answered"}, "does not follow from the rounds"),
    ],
)
def test_a_forged_reason_is_found(change: dict[str, Any], complaint: str) -> None:
    entries = entries_of(played())
    assert audit_entries(entries).ok
    forged = reseal([*entries[:-1], entries[-1]._replace(body={**entries[-1].body, **change})])
    assert complaint in audit_entries(forged).message


def test_a_run_that_went_on_although_it_should_have_stopped_is_found() -> None:
    """Sealed anew with a lower target, the rounds after the target was reached are one too many."""
    entries = entries_of(played())
    rules = entries[0].body["rules"]
    stops = [{**stop, "utility": 0.5} if stop["kind"] == "target-utility" else stop for stop in rules["stops"]]
    first = entries[0]._replace(body={**entries[0].body, "rules": {**rules, "stops": stops}})
    assert "the run went on although the utility reached" in audit_entries(reseal([first, *entries[1:]])).message


def test_a_forged_utility_that_would_excuse_an_early_end_breaks_the_row_of_utilities() -> None:
    entries = entries_of(played())
    at = next(i for i, e in enumerate(entries) if e.kind == "round" and e.round == 1)
    body = {**entries[at].body, "reached": 0.9}
    audit = audit_entries(reseal([*entries[:at], entries[at]._replace(body=body), *entries[at + 1 :]]))
    assert "the run went on although" in audit.message


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Patience(0), "stop patience: rounds = 0"),
        (lambda: TargetUtility(float("nan")), "utility = nan"),
        (lambda: NoProgress(1), "rounds = 1"),
        (lambda: NoProgress(5, float("inf")), "least = inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, sentence: str) -> None:
    with pytest.raises(BazaarError, match=sentence):
        make()


def test_a_roster_needs_somebody_and_every_id_once() -> None:
    with pytest.raises(BazaarError, match="at least one provider"):
        Roster(())
    with pytest.raises(BazaarError, match="two providers are called a"):
        Roster.of([("a", "x", 1), ("a", "y", 2)])
