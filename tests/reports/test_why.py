"""Why providers were asked: in markets whose truth is known, the rules say it; and where it is chance, they do not."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from report_samples import sample_report

from databazaar import OSMD, BazaarError, Uniform
from databazaar.cli.play import WHY
from databazaar.cli.statements import provider_dict
from databazaar.roster import Roster, RoundBudget
from databazaar.runs.attribution import compare
from databazaar.runs.explanation import CAUSES, TRENDS, Kind
from databazaar.runs.report import Report
from databazaar.runs.trajectory import Trajectory
from databazaar.samplers import Sampler
from databazaar.samplers.protocol import Wants, among_affordable
from known_gains import Seller, played, reasons
from own_samplers import Valued

FOUR = {"good": Seller(3.0), "fair": Seller(1.5), "bad": Seller(-2.0), "silent": Seller(1.0, fails=1.0)}


@pytest.mark.parametrize("sampler", [Valued(), OSMD(3.0, 0.2)], ids=lambda sampler: sampler.kind)
@pytest.mark.parametrize("per_round", [1, 3, 8])
def test_a_market_of_good_bad_and_silent_is_told_as_it_is(sampler: Sampler, per_round: int) -> None:
    report = played(FOUR, sampler, budget=1200, per_round=per_round)
    told = {one.provider: one.why for one in report.brought}
    assert (told["good"].kind, told["silent"].kind) == ("better", "failed")
    few = report.payouts[2].accesses < 20  # a good sampler may have had enough of it soon
    assert told["bad"].kind == "worse" or (few and told["bad"].kind == "few")
    assert re.search("(less often|hardly asked any more)", told["bad"].sentence)
    assert told["good"].sentence == (
        "It brought more for its money than the others, and was asked more often in the end than at the start."
    )
    failed = report.payouts[3].failures
    assert told["silent"].sentence.startswith(f"{failed:,} of its {failed:,} replies failed or were set aside, ")


def test_as_good_as_the_others_but_dearer() -> None:
    sellers = {"a": Seller(2.0), "b": Seller(2.0), "c": Seller(2.0), "dear": Seller(2.0, 8)}
    dear = played(sellers, OSMD(0.1, 0.2), budget=3000).brought[3]
    assert dear.why.kind == "dear"
    assert dear.why.sentence.startswith("An access brought not clearly less than one to the others, but cost more, ")
    assert dear.ahead is not None and dear.ahead_error is not None and dear.ahead < -3 * dear.ahead_error


def test_as_good_as_the_others_but_cheaper() -> None:
    sellers = {"a": Seller(2.0, 8), "b": Seller(2.0, 8), "c": Seller(2.0, 8), "cheap": Seller(2.0, 2)}
    assert played(sellers, OSMD(0.1, 0.2), budget=4000).brought[3].why.sentence == (
        "An access brought not clearly more than one to the others, but cost less, "
        "and it was asked about as often in the end as at the start."
    )


def test_a_sampler_that_ignores_prices_is_not_made_out_to_heed_them() -> None:
    """OSMD asks the best more and more, at any price: it brought less for its money, and the sentence says so."""
    sellers = {"dear": Seller(3.0, 40), "a": Seller(1.5), "b": Seller(1.5), "c": Seller(1.5)}
    dear = played(sellers, OSMD(3.0, 0.2), budget=6000).brought[0]
    assert dear.why.kind == "dear" and dear.share_at_end > dear.share_at_start
    assert dear.why.sentence.endswith("yet it was asked more often in the end than at the start all the same.")


@pytest.mark.parametrize("sampler", [Uniform(), Uniform(replacement=False)])
def test_with_uniform_everybody_is_asked_alike_whatever_they_bring(sampler: Sampler) -> None:
    report = played(FOUR, sampler, per_round=3)
    assert {str(one.why) for one in report.brought} == {"Everybody was asked alike, whatever they brought."}
    assert all(one.share_at_start == one.share_at_end for one in report.brought)
    dearer = played({**FOUR, "dear": Seller(1.0, 700)}, sampler, per_round=3)
    kinds = reasons(dearer)
    assert kinds.pop("dear") == "too-dear" and set(kinds.values()) == {"alike"}, "the last rounds pay for fewer"


@dataclass(frozen=True)
class ByPlace:
    """Somebody else's sampler: chances by place in the market, whatever is brought."""

    kind: ClassVar[str] = "by-place"
    wants: ClassVar[Wants] = Wants()

    def init(self, roster: Roster, budget: int, per_round: int) -> np.ndarray:
        return np.arange(1.0, len(roster) + 1)

    def probabilities(self, state: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        return among_affordable(state / state.sum(), round_budget)

    def draw(self, state: np.ndarray, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> np.ndarray:
        return np.asarray(rng.choice(len(state), size, p=self.probabilities(state, round_budget)))

    def update(self, state: np.ndarray, draws: np.ndarray, gains: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        if not np.isfinite(gains).all():
            raise ValueError("gains must be finite")
        return state


def test_a_sampler_that_does_not_learn_is_said_to_keep_its_chances() -> None:
    report = played(FOUR, ByPlace())
    assert {str(one.why) for one in report.brought} == {
        "Chances stayed as they were at the start, whatever was brought."
    }
    silent = played({"a": Seller(1.0, fails=1.0), "b": Seller(1.0, fails=1.0)}, ByPlace())
    assert set(reasons(silent).values()) == {"failed"}, "where nobody answered, that is no news of the sampler"


def test_the_only_provider_and_who_was_never_drawn() -> None:
    assert str(played({"alone": Seller(1.0)}).brought[0].why) == "It was the only provider."
    never = played({**FOUR, **{f"p{i}": Seller(1.0) for i in range(30)}}, budget=12).brought
    assert "It could have been asked, but was never drawn." in {str(one.why) for one in never}
    seldom = [one.why.kind for one in never if one.gain_per_coin is not None]
    assert set(seldom) == {"few"}, "two rounds tell nothing"


def test_who_costs_more_than_the_consumer_pays() -> None:
    sellers = {"good": Seller(3.0), "fair": Seller(1.0), "dear": Seller(9.0, 30)}
    limits: list[tuple[dict[str, Any], str]] = [
        ({"most_per_access": 29}, "more than the consumer pays for one"),
        ({"most_per_round": 29}, "more than the consumer spends in a round"),
    ]
    for limit, words in limits:
        report = played(sellers, **limit)
        assert str(report.brought[2].why) == f"It was never asked: an access costs 30 credits, {words}."
        assert reasons(report)["good"] == "better"
    poor = played(sellers, budget=29)
    assert (
        str(poor.brought[2].why) == "It was never asked: an access costs 30 credits, more than was left of the budget."
    )


def test_what_is_left_at_the_very_end_explains_nothing() -> None:
    """Every budget is too small for the dearest in its last round; only a long time of that is a reason."""
    sellers = {"good": Seller(3.0, 20), "fair": Seller(1.0, 20), "dear": Seller(60.0, 300)}
    long, short = (played(sellers, OSMD(0.3, 0.3), budget=budget, per_round=2) for budget in (40_000, 599))
    assert not long.purses[len(long.rounds) - 1].available[2], "the last round did not pay for it"
    assert reasons(long)["dear"] in ("better", "unclear")
    kept = Trajectory(long)
    assert kept.full_rounds < kept.rounds and long.brought[2].share_at_end > 0.2
    why = short.brought[2].why
    found = re.fullmatch(r"It was not asked any more after (\d+) rounds?: an access cost 300 credits, (.*)\.", str(why))
    assert why.kind == "too-dear" and found is not None and found[2] == "more than was left of the budget"
    since = int(found[1])
    assert short.purses[since - 1].available[2] and not short.purses[since].available[2]


def test_many_cheap_rounds_at_the_end_of_the_money_explain_nothing_either() -> None:
    sellers = {"good": Seller(3.0, 1), "fair": Seller(1.0, 1), "dear": Seller(60.0, 20)}
    report = played(sellers, OSMD(0.01, 0.9), budget=400, per_round=1)
    barred = [round for round, round_budget in enumerate(report.purses) if not round_budget.available[2]]
    assert len(barred) > 0.1 * len(report.rounds) and report.purses[barred[0]].left < 40
    assert reasons(report)["dear"] != "too-dear"


def test_accesses_that_are_used_up() -> None:
    sellers = {
        "good": Seller(3.0, most_accesses=60),
        "fair": Seller(1.0),
        "bad": Seller(-1.0),
        "once": Seller(1.0, 1, most_accesses=1),
    }
    report = played(sellers, OSMD(1.0, 0.3), per_round=4)
    good, once = report.brought[0], report.brought[3]
    found = re.fullmatch(r"All 60 accesses that it offers were used up after (\d+) rounds?; (.*)\.", str(good.why))
    assert found is not None and found[2] == "until then it brought more for its money than the others"
    since = int(found[1])
    drawn = [sum(a.provider == 0 for a in one.accesses) for one in report.rounds]
    assert sum(drawn[:since]) == 60 > sum(drawn[: since - 1]), "it counts rounds as the report does"
    assert good.why.kind == once.why.kind == "used-up" and good.share_at_end == 0.0
    assert re.fullmatch(r"The one access that it offers was used up after \d+ rounds?\.", str(once.why))


def test_a_cap_of_nothing_in_somebodys_ledger() -> None:
    report = sample_report(["a", "b"], rounds=0)
    round_budget = RoundBudget(100, np.array([1, 1]), np.array([0, 5]))
    assert str(replace(report, purses=(round_budget,)).brought[0].why) == "It was never asked: it offers no access."


class ByPrice(ByPlace):
    """Twice the price, half the chance."""

    kind: ClassVar[str] = "by-price"

    def probabilities(self, state: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        return among_affordable(1 / round_budget.quotes / (1 / round_budget.quotes).sum(), round_budget)


CHANGES = {"a": Seller(2.0), "b": Seller(2.0), "c": Seller(2.0)}


def test_who_became_dearer_was_asked_less_and_who_became_cheaper_more() -> None:
    dearer = played({**CHANGES, "d": Seller(2.0, 2, price_changes=((40, 10),))}, ByPrice(), budget=1500)
    assert str(dearer.brought[3].why) == (
        "It became dearer after 40 rounds, from 2 credits to 10 credits, and was asked less often from then on."
    )
    cheaper = played({**CHANGES, "d": Seller(2.0, 10, price_changes=((40, 2),))}, ByPrice(), budget=1500)
    assert str(cheaper.brought[3].why) == (
        "It became cheaper after 40 rounds, from 10 credits to 2 credits, and was asked more often from then on."
    )


def test_a_change_of_price_that_changed_nothing_is_not_the_reason() -> None:
    """OSMD does not look at prices: who fell behind before its change fell behind for what it brought."""
    sellers = {"good": Seller(3.0), "fair": Seller(1.0), "bad": Seller(-2.0, 2, price_changes=((20, 3), (40, 2)))}
    assert reasons(played(sellers, OSMD(1.0, 0.2), budget=1500))["bad"] == "worse"


def test_a_price_that_rises_beyond_what_the_consumer_pays() -> None:
    sellers = {"good": Seller(3.0), "fair": Seller(1.0), "d": Seller(3.0, 2, price_changes=((20, 10),))}
    assert str(played(sellers, most_per_access=9).brought[2].why) == (
        "It was not asked any more after 20 rounds: an access cost 10 credits, more than the consumer pays for one."
    )


def test_who_is_hardly_asked_any_more() -> None:
    sellers = {"good": Seller(3.0, noise=0.1), "fair": Seller(0.0, noise=0.1), "bad": Seller(-3.0, noise=0.1)}
    less = played(sellers, OSMD(20.0, 0.3), budget=1200)
    assert str(less.brought[2].why).endswith("and was asked less often in the end than at the start.")
    hardly = played(sellers, OSMD(20.0, 0.01), budget=1200)
    assert str(hardly.brought[2].why).endswith("and was hardly asked any more in the end.")


def alike(seed: int, worth: np.ndarray) -> Report:
    """Ten providers asked alike, whose gains shrink; one of them brings `worth` more than the others."""
    rng = np.random.default_rng(seed)
    report = sample_report([f"p{i}" for i in range(10)], rounds=60, per_round=6, failure_rate=0.0, learns=False)
    rounds = []
    for t, one in enumerate(report.rounds):
        who = rng.integers(0, 10, 6)
        gains = rng.normal(worth[who], 1.0) / (1 + t / 5)
        drawn = zip(one.accesses, who.tolist(), gains.tolist(), strict=True)
        rounds.append(replace(one, accesses=tuple(replace(a, provider=i, gain=gain) for a, i, gain in drawn)))
    chances = rng.dirichlet(np.full(10, 50.0), len(rounds) + 1)
    return replace(report, rounds=tuple(rounds), distributions=chances)


def test_what_is_chance_is_not_claimed() -> None:
    """Of 100 markets of ten providers that are all alike, at most a few have anybody called better or worse."""
    wrong = sum(bool({"better", "worse"} & set(reasons(alike(seed, np.zeros(10))).values())) for seed in range(100))
    assert wrong <= 11, "at a level of 5 % more than 11 of 100 have a chance of 1 in 200"


def test_what_is_no_chance_is_claimed() -> None:
    worth = np.zeros(10)
    worth[4] = 2.0
    told = Counter(reasons(alike(seed, worth))["p4"] for seed in range(20))
    assert told["better"] >= 18


def test_a_statement_of_a_provider_says_why_and_names_nobody_else() -> None:
    sellers = {**FOUR, "dear": Seller(2.0, 7), "capped": Seller(2.0, 3, most_accesses=11)}
    report = played(sellers)
    for place, one in enumerate(report.brought):
        statement = provider_dict(report, one.provider)
        assert statement["why"] == str(one.why)
        told = str(statement)
        assert not any(name in told for name in sellers if name != one.provider)
        line, own = report.payouts[place], {11}
        own |= {line.price, line.accesses, line.failures, line.accesses + line.failures, *range(len(report.rounds) + 1)}
        assert {int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", statement["why"])} <= own


def test_every_kind_has_its_words_for_a_terminal() -> None:
    assert set(WHY) == set(Kind.__args__)  # type: ignore[attr-defined]
    assert max(map(len, WHY.values())) <= 20
    assert set(CAUSES) < set(WHY) and len(set(TRENDS.values())) == len(TRENDS)


def test_a_report_knows_which_gains_its_sampler_asks_for() -> None:
    assert played(FOUR).gains == "shapley" and played(FOUR, OSMD(1.0, 0.1)).gains == "alone"
    with pytest.raises(BazaarError):
        played({})
    assert compare(played(FOUR)).per_coin.lines[3] == 0
