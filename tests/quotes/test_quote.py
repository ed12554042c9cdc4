"""What a quote says of markets whose numbers can be worked out by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import PricePerRow, Thrifty, Uniform
from databazaar.market.quoting import quote
from databazaar.market.quoting.fares import draws_repeat
from databazaar.market.quoting.projection import draws_until_all_seen
from databazaar.market.quoting.quote import Span
from databazaar.money import Currency
from databazaar.roster import Offer, PriceChange, Purse, Roster
from databazaar.samplers.protocol import Vector
from own_samplers import Together
from quoted_markets import Stubborn, offers_at, rules_for


def test_one_price_for_all_is_the_papers_market() -> None:
    """T = ⌊B / K⌋ whole rounds, whatever is drawn; the rest goes back."""
    found = quote(rules_for(offers_at(*[2] * 10), budget=1003, per_round=5))
    assert found.rounds == Span(100, 100, 100) and found.accesses == Span(500, 500, 500)
    assert (found.least_unspent, found.most_unspent, found.short_rounds) == (3, 3, 0)
    assert found.unspent_because == ("a rest below 0.10 EUR pays for no whole round",)
    assert {(p.price, p.can_sell, p.can_earn, p.status) for p in found.providers} == {(2, 500, 1000, "open")}
    assert found.facts()["rounds"] == "100" and found.without_pace is None and not found.warnings


def test_one_credit_and_one_access_are_no_plural() -> None:
    rules = rules_for(offers_at(2, 3), budget=51, per_round=1)
    found = quote(replace(rules, terms=replace(rules.terms, currency=Currency())))
    facts = found.facts()
    assert facts["budget"] == "51 credits, 1 access a round"
    assert facts["not spent"] == "0 credits to 1 credit; a rest below 2 credits pays for nobody"
    assert [found.about(mean) for mean in (0.05, 1.0, 120.4)] == ["0.05 credits", "1.0 credits", "120 credits"]


def test_two_prices() -> None:
    found = quote(rules_for(offers_at(1, 100), budget=5000, per_round=5))
    assert found.rounds.least == 10  # 500 a round
    assert found.rounds.most == 1 + 5000 // 5  # in one round the dear one may be left out
    assert (found.accesses.least, found.accesses.most) == (50, 5000)
    assert found.accesses.even == pytest.approx(2525, rel=0.02)  # half of the money at 1, half at 100


def test_a_pace_makes_a_run_longer() -> None:
    market = offers_at(10, 20, 30, 40)
    free, paced = (quote(rules_for(market, budget=12_000, per_round=3, most_per_round=m)) for m in (None, 60))
    assert paced.without_pace == free.rounds and (free.rounds.least, paced.rounds.least) == (100, 200)
    assert free.rounds.most == paced.rounds.most == 400 + 2  # at 30 a round, but for what the rest shortens
    assert "no round costs more than 0.60 EUR; without it the rounds are 100 to 402" in paced.facts()["pace"]


def test_caps_leave_money_behind() -> None:
    market = [Offer("a", "a", 10, most_accesses=20), Offer("b", "b", 30, most_accesses=10)]
    found = quote(rules_for(market, budget=1000, per_round=2))
    assert (found.least_unspent, found.most_unspent) == (500, 500)
    assert (found.accesses.least, found.accesses.most) == (30, 30) and found.rounds.least == 15
    assert found.unspent_because[0] == "all caps together allow 30 accesses"
    assert any("5.00 EUR or more of the budget cannot be spent" in warning for warning in found.warnings)
    assert [(p.can_sell, p.can_earn) for p in found.providers] == [(20, 200), (10, 300)]


def test_a_price_that_all_announce_ends_the_run() -> None:
    market = [Offer(f"p{i}", f"p{i}", 10, price_changes=(PriceChange(20, 50),)) for i in range(4)]
    found = quote(rules_for(market, budget=5000, per_round=4, most_per_access=20))
    assert found.rounds == Span(20, 20, 20) and (found.least_unspent, found.most_unspent) == (4200, 4200)
    assert found.unspent_because[0] == "from round 21 on everybody is above most_per_access"
    assert {p.status for p in found.providers} == {"too dear from round 21 on"}


def test_who_can_be_asked() -> None:
    market = [
        Offer("used", "o", 10, most_accesses=0),
        Offer("dear", "o", 900),
        Offer("rich", "o", 20_000),
        Offer("hasty", "o", 450),
        Offer("late", "o", 100, price_changes=(PriceChange(5, 800),)),
        Offer("early", "o", 800, price_changes=(PriceChange(5, 100), PriceChange(7, 800))),
        Offer("b", "o", 30),
        Offer("a", "o", 20, most_accesses=3),
    ]
    found = quote(rules_for(market, budget=10_000, per_round=4, most_per_access=500, most_per_round=400))
    assert {p.id: p.status for p in found.providers} == {
        "a": "open",
        "b": "open",
        "late": "too dear from round 6 on",
        "early": "above most_per_access, open from round 6 on, too dear from round 8 on",
        "used": "offers no access",
        "hasty": "dearer than most_per_round",
        "dear": "above most_per_access",
        "rich": "above most_per_access",
    }
    assert [p.id for p in found.providers] == ["a", "b", "late", "early", "used", "hasty", "dear", "rich"]
    earned = {p.id: (p.can_sell, p.can_earn) for p in found.providers}
    assert earned["a"] == (3, 60) and earned["late"] == (20, 2000) and earned["early"] == (8, 800)
    assert quote(rules_for(market, budget=10_000, per_round=4)).providers[-1].status == "above the budget"


def test_rows_are_paid_for() -> None:
    rules = rules_for(offers_at(2, 3), budget=100_000, per_round=2, payment=PricePerRow((100, 50)))
    assert [p.price for p in quote(rules).providers] == [150, 200]


def test_exploration_is_what_the_sampler_says() -> None:
    found = quote(rules_for(offers_at(100, 300), budget=30_000, per_round=4, sampler=Stubborn(True, False)))
    assert found.exploration is not None and found.accesses.even == 200  # half of the money for each: 150 and 50
    assert (found.exploration.per_round, found.exploration.over_the_run) == (400.0, 20_000.0)  # 50 + 150 / … a draw
    assert found.facts()["exploration"].startswith("4.00 EUR a round and 200.00 EUR over the run, 66.7 % of the budget")
    assert "exploration takes 67 % of the budget: lower the sampler's alpha" in found.warnings
    silent = quote(rules_for(offers_at(1, 3), budget=300, per_round=4, sampler=Uniform()))
    assert silent.exploration is None
    assert silent.facts()["exploration"] == "sampler 'uniform' does not say what it spends on it"


def test_until_everybody_has_been_asked() -> None:
    """The coupon collector: for n alike n (1 + 1/2 + … + 1/n) draws; for two 1/p + 1/(1 − p) − 1."""
    for n in (1, 2, 10, 1000):
        assert draws_until_all_seen(np.full(n, 1 / n)) == pytest.approx(n * sum(1 / k for k in range(1, n + 1)), 1e-3)
    for p in (0.5, 0.1, 1e-9):
        assert draws_until_all_seen(np.array([p, 1 - p])) == pytest.approx(1 / p + 1 / (1 - p) - 1, 1e-3)
    found = quote(rules_for(offers_at(*[10] * 12), budget=6000, per_round=5, sampler=Uniform())).first_look
    assert found is not None and found.rounds is not None
    assert (found.providers, found.least_rounds, found.least_money) == (12, 3, 120)
    assert found.rounds == pytest.approx(12 * sum(1 / k for k in range(1, 13)) / 5, 1e-3)
    assert found.money == pytest.approx(found.rounds * 50)
    paced = quote(rules_for(offers_at(*[10] * 12), budget=6000, per_round=5, sampler=Uniform(), most_per_round=20))
    assert paced.first_look is not None and paced.first_look.least_rounds == 6
    assert paced.first_look.rounds == pytest.approx(found.rounds * 2.5)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=5))
def test_the_coupon_collector_by_trying(weights: list[float]) -> None:
    """Against inclusion and exclusion over all groups of providers that may be missing."""
    p = np.array(weights) / sum(weights)
    groups = [np.array([bool(mask >> i & 1) for i in range(len(p))]) for mask in range(1, 2 ** len(p))]
    exact = sum((-1) ** (group.sum() + 1) / p[group].sum() for group in groups)
    assert draws_until_all_seen(p) == pytest.approx(exact, rel=1e-3)


@dataclass(frozen=True)
class Only(Uniform):
    """Has made up its mind."""

    kind: ClassVar[str] = "test-only"

    def probabilities(self, state: Vector, purse: Purse) -> Vector:
        return np.asarray(np.eye(len(state))[0])


def test_who_has_no_chance_is_never_seen() -> None:
    found = quote(rules_for(offers_at(1, 2, 3), budget=300, per_round=2, sampler=Only()))
    assert found.first_look is not None and found.first_look.rounds is None
    assert "sampler 'test-only' gives somebody no chance at first" in found.facts()["all asked once"]


def test_whether_a_sampler_draws_somebody_twice() -> None:
    for sampler, repeats in ((Together(), True), (Uniform(), True), (Uniform(replacement=False), False)):
        roster = Roster.equal(5)
        assert draws_repeat(sampler, sampler.init(roster, 100, 3), 3, 5) == repeats


@pytest.mark.parametrize(
    ("market", "words"),
    [
        ({"offers": offers_at(50, 60), "budget": 40}, "the budget pays for no round of 2 accesses: raise budget to at"),
        ({"offers": offers_at(50, 60), "budget": 4000, "most_per_access": 9}, "nobody can be asked, so there is no"),
        ({"offers": offers_at(50, 60), "budget": 4000, "most_per_access": 55}, "only one provider can be asked"),
        ({"offers": offers_at(1, 2, 3), "budget": 1000, "per_round": 5}, "per_round = 5 is more than the 3 providers"),
        ({"offers": offers_at(*[10] * 9, 300), "budget": 2000}, "a single access to p9 costs up to 15 % of the budget"),
        ({"offers": offers_at(*[10] * 40), "budget": 600}, "about 60 accesses for 40 providers are fewer than two"),
        ({"offers": [Offer(c, c, 10, 1) for c in "abcd"], "budget": 600}, "raise most_accesses, because"),
        (
            {"offers": offers_at(*[1] * 9, 99), "budget": 800, "sampler": Thrifty()},
            "the budget is spent before everybody has been asked",
        ),
        ({"offers": offers_at(*[10] * 9), "budget": 1000, "per_round": 20}, "about 5 rounds are few"),
        ({"offers": offers_at(9, 9, 9, 9), "budget": 900, "per_round": 4, "most_per_round": 20}, "pays for about 2.2"),
    ],
)
def test_warnings_with_remedies(market: dict[str, Any], words: str) -> None:
    found = quote(rules_for(**{"per_round": 2, **market}))
    (warning,) = [warning for warning in found.warnings if words in warning]
    assert any(remedy in warning for remedy in ("raise", "lower", "set ", "find"))
    assert json.loads(json.dumps(found.to_dict()))["warnings"] == list(found.warnings)
    assert warning in repr(found)


def test_a_sound_market_has_no_warning() -> None:
    assert quote(rules_for(offers_at(*range(10, 30)), budget=20_000, per_round=5)).warnings == ()


def test_prices_of_all_sizes_and_a_thousand_providers() -> None:
    """Sums are beyond 64 bits, and nothing is counted round by round."""
    sizes = count(1)
    huge = [Offer(f"p{i}", f"p{i}", min(3 ** (next(sizes) % 40), 10**18), most_accesses=10**12) for i in range(1000)]
    found = quote(rules_for(huge, budget=2**63 - 1, per_round=50))
    assert found.rounds.most > 10**12 and found.rounds.least >= 1
    assert len(found.providers) == 1000 and len(repr(found).splitlines()) < 30
