"""What a quote says of markets whose numbers can be worked out by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar

import numpy as np
import pytest

from databazaar import Uniform
from databazaar.market.quoting import quote
from databazaar.market.quoting.simulation import Range
from databazaar.money import Currency
from databazaar.payments import PricePerRow
from databazaar.roster import PriceChange, ProviderTerms, RoundBudget
from databazaar.samplers.protocol import Draws, Vector
from quoted_markets import Stubborn, offers_at, rules_for


def test_one_price_for_all_is_the_papers_market() -> None:
    """T = ⌊B / K⌋ whole rounds, whatever is drawn; the rest goes back."""
    found = quote(rules_for(offers_at(*[2] * 10), budget=1003, per_round=5))
    assert found.rounds == Range(100, 100, 100) and found.accesses == Range(500, 500, 500)
    assert found.unspent == Range(3, 3, 3) and found.horizon is None
    assert all(p.pay.low == 2 * p.accesses.low and p.pay.high <= 1000 for p in found.providers)
    assert {(p.price, p.status) for p in found.providers} == {(2, "open")}
    assert found.facts()["rounds"] == "100" and found.facts()["not spent"] == "0.03 EUR" and not found.warnings


def test_one_credit_and_one_access_are_no_plural() -> None:
    rules = rules_for(offers_at(2, 3), budget=51, per_round=1)
    found = quote(replace(rules, terms=replace(rules.terms, currency=Currency())))
    assert found.facts()["budget"] == "51 credits, 1 access a round"
    assert [found.about(mean) for mean in (0.05, 1.0, 120.4)] == ["0.05 credits", "1.0 credits", "120 credits"]


@pytest.mark.parametrize(("dearest", "price"), [(True, 100), (False, 1)])
def test_a_sampler_that_has_made_up_its_mind(dearest: bool, price: int) -> None:
    """Whatever is supposed of the providers, only one of them is drawn, and there are no others to see."""
    found = quote(rules_for(offers_at(1, 100), budget=500, per_round=5, sampler=Stubborn(dearest, False)))
    assert found.rounds == Range(100 // price, 100 // price, 100 // price)
    assert found.accesses.median == 500 // price and found.unspent == Range(0, 0, 0)
    assert {p.price: p.pay.median for p in found.providers} == {price: 500, 101 - price: 0}
    assert found.first_look.rounds is None and found.first_look.asked == Range(1, 1, 1)
    assert "not to be expected: 1 of 2 providers are asked" in found.facts()["all asked once"]


def test_a_pace_makes_a_run_longer() -> None:
    market = offers_at(10, 20, 30, 40)
    free, paced = (quote(rules_for(market, budget=3_000, per_round=3, most_per_round=m)) for m in (None, 60))
    assert paced.rounds.median >= 3_000 / 60 and paced.rounds.low > free.rounds.low
    assert paced.facts()["pace"] == "no round costs more than 0.60 EUR" and "pace" not in free.facts()


def test_caps_leave_money_behind() -> None:
    market = [ProviderTerms("a", "a", 10, most_accesses=20), ProviderTerms("b", "b", 30, most_accesses=10)]
    found = quote(rules_for(market, budget=1000, per_round=2))
    assert found.unspent == Range(500, 500, 500) and found.accesses == Range(30, 30, 30) and found.rounds.low >= 15
    assert any("5.00 EUR or more of the budget cannot be spent" in warning for warning in found.warnings)
    assert [(p.accesses.high, p.pay.low) for p in found.providers] == [(20, 200), (10, 300)]


def test_a_price_that_all_announce_ends_the_run() -> None:
    market = [ProviderTerms(f"p{i}", f"p{i}", 10, price_changes=(PriceChange(20, 50),)) for i in range(4)]
    found = quote(rules_for(market, budget=5000, per_round=4, most_per_access=20))
    assert found.rounds == Range(20, 20, 20) and found.unspent.low >= 4200
    assert {p.status for p in found.providers} == {"too dear from round 21 on"}


def test_who_can_be_asked() -> None:
    market = [
        ProviderTerms("used", "o", 10, most_accesses=0),
        ProviderTerms("dear", "o", 900),
        ProviderTerms("rich", "o", 20_000),
        ProviderTerms("hasty", "o", 450),
        ProviderTerms("late", "o", 100, price_changes=(PriceChange(5, 800),)),
        ProviderTerms("early", "o", 800, price_changes=(PriceChange(5, 100), PriceChange(7, 800))),
        ProviderTerms("b", "o", 30),
        ProviderTerms("a", "o", 20, most_accesses=3),
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
    sold = {p.id: p.accesses for p in found.providers}
    assert sold["a"].high == 3 and sold["late"].high <= 20 and sold["early"].high <= 8
    assert all(sold[id] == Range(0, 0, 0) for id in ("used", "hasty", "dear", "rich"))
    assert quote(rules_for(market, budget=10_000, per_round=4)).providers[-1].status == "above the budget"


def test_rows_are_paid_for() -> None:
    rules = rules_for(offers_at(2, 3), budget=100_000, per_round=2, payment=PricePerRow((100, 50)))
    assert [p.price for p in quote(rules).providers] == [150, 200]


def test_exploration_is_what_the_sampler_says() -> None:
    found = quote(rules_for(offers_at(100, 300), budget=30_000, per_round=4, sampler=Stubborn(False, False)))
    assert found.accesses.median == 300 and found.exploration == 30_000.0  # (50 + 150) / 2 a draw, 300 draws
    assert found.facts()["exploration"].startswith("300.00 EUR or 100.0 % of the budget")
    assert "exploration takes 100 % of the budget: lower the sampler's alpha" in found.warnings
    silent = quote(rules_for(offers_at(1, 3), budget=300, per_round=4, sampler=Uniform()))
    assert silent.exploration is None
    assert silent.facts()["exploration"] == "sampler 'uniform' does not say what it spends on it"


@dataclass(frozen=True)
class InTurn(Uniform):
    """Draws everybody in turn, by the round's share of the budget."""

    kind: ClassVar[str] = "test-in-turn"

    def draw(self, state: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        n, round = len(round_budget.quotes), (600 - round_budget.left) // 20
        return (np.arange(size) + size * round) % n


def test_until_everybody_has_been_asked() -> None:
    found = quote(rules_for(offers_at(*[10] * 12), budget=600, per_round=2, sampler=InTurn()))
    assert (found.first_look.providers, found.first_look.asked, found.first_look.rounds) == (12, Range(12, 12, 12), 6)
    assert found.facts()["all asked once"] == "after about 6 rounds"


@pytest.mark.parametrize(
    ("market", "words"),
    [
        ({"offers": offers_at(50, 60), "budget": 40}, "the budget pays for no round of 2 accesses: raise budget to at"),
        ({"offers": offers_at(50, 60), "budget": 4000, "most_per_access": 9}, "nobody can be asked, so there is no"),
        ({"offers": offers_at(50, 60), "budget": 4000, "most_per_access": 55}, "only one provider can be asked"),
        ({"offers": offers_at(1, 2, 3), "budget": 200, "per_round": 5}, "per_round = 5 is more than the 3 providers"),
        ({"offers": offers_at(*[10] * 9, 300), "budget": 2000}, "a single access to p9 costs up to 15 % of the budget"),
        ({"offers": offers_at(*[10] * 40), "budget": 600}, "about 60 accesses for 40 providers are fewer than two"),
        ({"offers": [ProviderTerms(c, c, 10, 1) for c in "abcd"], "budget": 600}, "raise most_accesses, because"),
        ({"offers": offers_at(*[10] * 20), "budget": 450}, "the budget is spent before everybody has been asked"),
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
    assert quote(rules_for(offers_at(*range(10, 30)), budget=5_000, per_round=5)).warnings == ()


def test_a_quote_is_the_same_each_time() -> None:
    rules = rules_for(offers_at(*range(3, 9)), budget=300, per_round=3)
    assert quote(rules) == quote(rules)


def test_prices_of_all_sizes_and_a_thousand_providers() -> None:
    """Sums are beyond 64 bits, and a run without an end is not played to it."""
    sizes = count(1)
    huge = [
        ProviderTerms(f"p{i}", f"p{i}", min(3 ** (next(sizes) % 40), 10**18), most_accesses=10**12) for i in range(1000)
    ]
    found = quote(rules_for(huge, budget=2**63 - 1, per_round=50))
    assert found.rounds.low >= 1 and found.horizon is not None
    assert len(found.providers) == 1000 and len(repr(found).splitlines()) < 30
    assert all(0 <= p.pay.low <= p.pay.high <= found.budget for p in found.providers)
