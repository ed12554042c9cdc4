"""What listeners are told that everybody has earned: values that stay as they were, against copies."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import OSMD, Arbiter
from databazaar.market import run
from databazaar.market.pay_so_far import PaySoFar
from databazaar.market.run import Progress
from small_markets import vector_market

NAMES = st.sampled_from("abcde")
CHANGES = st.dictionaries(NAMES, st.integers(0, 9), max_size=3)


@given(st.dictionaries(NAMES, st.integers(0, 9), max_size=3), st.lists(CHANGES, max_size=8))
def test_each_stays_what_a_copy_would_be(first: dict[str, int], changes: list[dict[str, int]]) -> None:
    told, copies = [PaySoFar(dict(first))], [dict(first)]
    for change in changes:
        told.append(told[-1].after(change))
        copies.append({**copies[-1], **change})
    for one, copied in zip(told, copies, strict=True):
        assert one == copied and dict(one) == copied and list(one) == list(copied) and len(one) == len(copied)
        assert [one.get(name) for name in "abcdef"] == [copied.get(name) for name in "abcdef"]
        assert repr(one) == repr(copied) and ("a" in one) == ("a" in copied)


@pytest.mark.parametrize("many", [0, 2, 1_000])
def test_a_run_tells_of_the_book_as_it_was_after_each_round(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MANY_PAID", many)
    told: list[Progress] = []
    consumer, providers = vector_market((0.0, 1.0, 2.0), budget=40, per_round=3)
    report = Arbiter(consumer, providers, OSMD(eta=0.2, alpha=0.2), engine="loop").run(tell=told.append)
    assert len(told) > 5
    earned: dict[str, int] = {}
    for one, round in zip(told, report.rounds, strict=True):
        for access in round.accesses:
            who = report.payouts[access.provider].provider
            earned[who] = earned.get(who, 0) + access.paid
        assert {who: pay for who, pay in one.pay.items() if pay} == {who: pay for who, pay in earned.items() if pay}


def test_what_many_have_earned_can_be_copied_after_very_many_rounds() -> None:
    """Each knows the next: a copy that followed them would go deeper than Python can."""
    first = last = PaySoFar({"a": 0})
    for amount in range(5_000):
        last = last.after({"a": amount})
    assert copy.deepcopy(first) == {"a": 0} and copy.copy(last) == {"a": 4_999}
