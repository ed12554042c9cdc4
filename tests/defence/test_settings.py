"""Every rule on or off, three sets of them by name, and what the terms and the ledger hold of both."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, BazaarError
from databazaar.defence import Defence, Findings, OwnerGroups, defence_of
from databazaar.defence.words import rules_of
from databazaar.ledger import Terms
from databazaar.ledger.rulebook import RuleBook
from small_markets import vector_market

RULES = ("owners", "alike", "clip", "screen", "leak", "new", "data", "cap")


@pytest.mark.parametrize("name", ["none", "standard", "strict"])
def test_a_set_of_rules_is_known_by_its_name_and_comes_back_from_the_terms(name: str) -> None:
    defence = Defence.named(name)
    assert defence.name == name and defence_of(name) == defence_of(defence) == defence
    assert Defence.of(defence.settings()) == defence
    assert defence.off is (name == "none") and defence.watches is defence.holds_back is (name != "none")


def test_without_any_it_is_the_papers_market() -> None:
    assert defence_of(None).off and Defence() == Defence.named("none") and Defence().name == "none"
    own = Defence(owners=True)
    assert not own.off and own.name == "own" and not own.watches and not own.holds_back


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"alike": 1.5}, "alike = 1.5 must be above 0 and at most 1"),
        ({"alike": 0}, "alike = 0 must be above 0"),
        ({"leak": True}, "leak = True must be a number"),
        ({"leak": float("nan")}, "leak = nan must be a finite number"),
        ({"clip": "2"}, "clip = '2' must be a number"),
        ({"owners": 1}, "owners = 1 must be true or false"),
        ({"doubt": None}, "doubt = None must be true or false"),
        ({"colour": "red"}, "unexpected keyword argument 'colour': correct its settings"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BazaarError, match="defence: ") as refused:
        Defence.of(settings)
    assert says in str(refused.value)


@pytest.mark.parametrize("given", ["paranoid", 3, {"owners": True}])
def test_what_is_no_defence_is_refused(given: Any) -> None:
    with pytest.raises(BazaarError, match=r"use one of none, standard, strict, or a Defence\(…\)"):
        defence_of(given)


def test_an_arbiter_writes_its_defence_into_the_terms_and_only_where_it_has_one() -> None:
    consumer, providers = vector_market(owners=["ann", "ann", "bob", "eve"])
    for none in (None, "none", Defence()):
        plain = Arbiter(consumer, providers, engine="loop", defence=none)
        assert "defence" not in plain.terms().rules
        assert not isinstance(plain.rules.sampler, OwnerGroups) and "defence" not in str(plain)
    arbiter = Arbiter(consumer, providers, engine="loop", defence=Defence(owners=True, cap=0.6))
    terms = arbiter.terms()
    assert terms.rules["defence"] == Defence(owners=True, cap=0.6).settings()
    again = RuleBook.of(Terms.from_body(terms.body()))
    assert again.defence == arbiter.rules.defence and again.sampler == arbiter.rules.sampler
    assert "defence" in str(arbiter) and "OwnerGroups(" not in str(arbiter)
    report = arbiter.run()
    assert report.closed and report.regret_bound is None
    with pytest.raises(BazaarError, match="defence 'all' is unknown"):
        Arbiter(consumer, providers, defence="all")


def test_every_rule_that_may_be_off_is_off_by_default() -> None:
    off = Defence()
    assert {field.name for field in fields(Defence)} - {"pay_left_out", "doubt", "rows"} == set(RULES)
    assert not any(getattr(off, name) for name in RULES)


@pytest.mark.parametrize("name", ["standard", "strict"])
def test_of_rows_only_what_is_about_rows_is_on(name: str) -> None:
    updates, rows = Defence.named(name), Defence.named(name).of_rows()
    assert rows.name == name and Defence.of(rows.settings()) == rows != updates
    assert (rows.clip, rows.screen, rows.new, rows.parts_holdout) == (None, None, None, False)
    assert (rows.leak, rows.alike, rows.data, rows.cap) == (updates.leak, updates.alike, updates.data, updates.cap)
    assert "rows" not in updates.settings() and Defence().of_rows() == Defence()
    told = {name for name, _ in rules_of(rows)}
    assert told >= {"leak", "alike", "data"} and not told & {"clip", "screen", "new"}


figures = st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), min_size=3, max_size=3)


@given(lists=st.lists(figures, min_size=5, max_size=5), cosines=st.lists(st.floats(-1, 1), max_size=3))
def test_findings_come_back_from_the_ledger(lists: list[list[float | None]], cosines: list[float]) -> None:
    names = ("length", "harm", "leak", "signal", "error")
    alike = [(0, 1 + i, cosine) for i, cosine in enumerate(cosines)]
    findings = Findings(**dict(zip(names, lists, strict=True)), alike=alike)
    again = Findings.of(findings.body(), 3, 5)
    assert again.body() == findings.body() and list(again.alike) == alike
    for name, own in zip(names, lists, strict=True):
        assert [again.at(name, place) for place in range(3)] == own
    assert Findings().body() == {} and Findings().at("leak", 0) is None
