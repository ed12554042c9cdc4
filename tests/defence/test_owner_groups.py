"""Owners as arms: with one provider each it is the sampler itself, and whoever registers twice has one arm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar import OSMD, Adaptive, Uniform
from databazaar.defence import Defence, OwnerGroups
from databazaar.defence.detector import LEAK, DetectorState
from databazaar.market.quoting import quote
from databazaar.roster import ProviderTerms, Roster, RoundBudget
from databazaar.samplers import Sampler, Wants
from databazaar.samplers.protocol import Vector
from databazaar.testing import _play_sampler as keeps_its_promises
from defended_markets import EVERY_RULE, play, random_measures, rules_with
from own_samplers import Valued

SAMPLERS: tuple[Sampler, ...] = (Valued(), OSMD(0.6, 0.2), Adaptive(), Uniform())
NAMES = [sampler.kind for sampler in SAMPLERS]
ARMS = Defence(owners=True)


def roster_of(owners: str, prices: list[int] | None = None) -> Roster:
    """One provider for each letter, which is its owner."""
    return Roster(tuple(ProviderTerms(f"p{i}", owner, prices[i] if prices else 4) for i, owner in enumerate(owners)))


def with_detector(arms: OwnerGroups, state: Vector, detector: DetectorState, **changes: Any) -> Vector:
    return arms.with_detector(state, detector, replace(detector, **changes))


@settings(max_examples=40)
@given(
    sampler=st.sampled_from([*SAMPLERS, Uniform(replacement=False)]),
    prices=st.lists(st.integers(1, 9), min_size=3, max_size=7),
    seed=st.integers(0, 10**6),
)
def test_where_everybody_is_its_own_arm_it_is_the_sampler_to_the_last_bit(
    sampler: Sampler, prices: list[int], seed: int
) -> None:
    rng, n = np.random.default_rng(seed), len(prices)
    roster, arms = roster_of("abcdefg"[:n], prices), OwnerGroups(sampler, replace(ARMS, cap=1.0, leak=0.01))
    own, state = sampler.init(roster, 10**6, 3), arms.init(roster, 10**6, 3)
    caps = rng.integers(0, 3, n)
    caps[rng.integers(n)] = 5
    for round in range(8):
        limited = round % 3 == 2 and bool((roster.prices[caps > 0] <= 9).any())
        round_budget = RoundBudget(9 if limited else 10**5, roster.prices, caps if limited else None)
        streams = np.random.default_rng(round), np.random.default_rng(round)
        draws = sampler.draw(own, streams[0], 3, round_budget)
        np.testing.assert_array_equal(arms.probabilities(state, round_budget), sampler.probabilities(own, round_budget))
        np.testing.assert_array_equal(arms.draw(state, streams[1], 3, round_budget), draws)
        assert streams[0].random() == streams[1].random()
        gains = rng.normal(size=n)[draws]
        own, state = sampler.update(own, draws, gains, round_budget), arms.update(state, draws, gains, round_budget)
        np.testing.assert_array_equal(state[: len(own)], own)
    assert (arms.kind, arms.wants.gains) == (sampler.kind, sampler.wants.gains)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=NAMES)
@pytest.mark.parametrize("defence", [ARMS, Defence(owners=True, cap=0.3)], ids=["arms", "cap"])
def test_arms_keep_what_every_sampler_promises(sampler: Sampler, defence: Defence) -> None:
    prices = [4, 1, 7, 2, 2, 9, 3]
    capped = tuple(
        replace(offer, most_accesses=12 if i % 2 else None) for i, offer in enumerate(roster_of("aabbbcd").offers)
    )
    for roster in (roster_of("aabbbcd"), roster_of("aabbbcd", prices), Roster(capped)):
        keeps_its_promises(cast(Sampler, OwnerGroups(sampler, defence)), roster, 3, 24)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=NAMES)
@pytest.mark.parametrize("clones", [2, 5, 10])
def test_who_registers_m_times_has_one_arm(sampler: Sampler, clones: int) -> None:
    """Before anything is known, and with what draws have brought: the clones share what one would have."""
    arms, roster = OwnerGroups(sampler, ARMS), roster_of("a" * clones + "bcd")
    state, round_budget = arms.init(roster, 10**6, 2), RoundBudget(10**6, roster.prices)
    p = arms.probabilities(state, round_budget)
    np.testing.assert_allclose([p[:clones].sum(), *p[clones:]], np.full(4, 0.25), rtol=1e-9)
    np.testing.assert_allclose(p[:clones], p[0], rtol=1e-9)
    rng = np.random.default_rng(0)
    drawn = [arms.draw(state, rng, 2, round_budget) for _ in range(400)]
    assert all(len({i for i in one.tolist() if i < clones}) <= 1 for one in drawn), "one of an arm is asked in a round"
    share = np.mean(np.concatenate(drawn) < clones)
    assert abs(share - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 600)


@pytest.mark.parametrize("clones", [2, 5])
def test_a_market_with_clones_learns_as_the_market_without(clones: int) -> None:
    """Adaptive, which forgets nothing: the same gains for the arm lead to the same chances, up to the floors of α/n."""
    arms, single = OwnerGroups(Adaptive(1e-6), ARMS), OwnerGroups(Adaptive(1e-6), ARMS)
    many, few = roster_of("a" * clones + "bcd"), roster_of("abcd")
    state, own = arms.init(many, 10**6, 4), single.init(few, 10**6, 4)
    round_budget, purse_of_few = RoundBudget(10**6, many.prices), RoundBudget(10**6, few.prices)
    rng = np.random.default_rng(3)
    for round in range(12):
        gains = np.array([0.3, 0.1, -0.1, 0.0]) + 0.2 * rng.normal(size=4)
        draws = np.array([round % clones, clones, clones + 1, clones + 2])
        state = arms.update(state, draws, gains, round_budget)
        own = single.update(own, np.arange(4), gains, purse_of_few)
        p = arms.probabilities(state, round_budget)
        expected = single.probabilities(own, purse_of_few)
        np.testing.assert_allclose([p[:clones].sum(), *p[clones:]], expected, rtol=1e-4)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=NAMES)
def test_flagged_providers_are_asked_when_nobody_else_can_be(sampler: Sampler) -> None:
    arms, roster = OwnerGroups(sampler, Defence(owners=True, leak=0.01)), roster_of("aabc", [4, 4, 4, 9])
    state = arms.init(roster, 1000, 2)
    detector = arms.detector(state, 4)
    flagged = with_detector(arms, state, detector, standing=np.array([LEAK, 0.0, LEAK, 0.0]))
    rich, poor, every = RoundBudget(1000, roster.prices), RoundBudget(5, roster.prices), np.full(4, LEAK)
    assert (arms.probabilities(flagged, rich) > 0).tolist() == [False, True, False, True]
    assert (arms.probabilities(flagged, poor) > 0).tolist() == [False, True, False, False]
    used_up = RoundBudget(
        5, roster.prices, np.array([3, 0, 3, 3])
    )  # p1 is used up, and p3 too dear: flagged ones are left
    p = arms.probabilities(flagged, used_up)
    assert (p > 0).tolist() == [True, False, True, False] and p.sum() == pytest.approx(1)
    p = arms.probabilities(with_detector(arms, state, detector, standing=every), rich)
    assert (p > 0).all() and p.sum() == pytest.approx(1)
    for round_budget in (rich, poor, used_up):
        draws = arms.draw(flagged, np.random.default_rng(1), 2, round_budget)
        assert len(draws) and (arms.probabilities(flagged, round_budget)[draws] > 0).all()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=NAMES)
def test_an_arm_that_has_cost_its_share_rests_while_anybody_else_can_be_asked(sampler: Sampler) -> None:
    arms, roster = OwnerGroups(sampler, Defence(owners=True, cap=0.2)), roster_of("aabcd")
    state = arms.init(roster, 1000, 2)
    detector = arms.detector(state, 5)
    full = with_detector(arms, state, detector, asked=np.array([697.0, 0, 0, 0, 0]))
    almost = with_detector(arms, state, detector, asked=np.array([696.0, 0, 0, 0, 0]))
    rich, alone = RoundBudget(500, roster.prices), RoundBudget(500, roster.prices, np.array([3, 3, 0, 0, 0]))
    assert (arms.probabilities(full, rich) > 0).tolist() == [False, False, True, True, True]
    assert (arms.probabilities(almost, rich) > 0).all()
    assert (arms.probabilities(full, alone) > 0).tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("owners", "share"), [("abcdefghijklmno", 0.25), ("abcdefghij", 0.35), ("abcde", 0.7), ("ab", 1.0), ("aaaa", 1.0)]
)
def test_a_cap_leaves_a_choice(owners: str, share: float) -> None:
    """However few owners there are, one may earn three and a half even shares by a cap of a quarter."""
    state = OwnerGroups(Adaptive(), Defence(owners=True, cap=0.25)).init(roster_of(owners), 1000, 2)
    assert state[-1] == 1000 * share


def test_arms_that_become_one_keep_what_was_known_of_both() -> None:
    arms, roster = OwnerGroups(Adaptive(), Defence(owners=True, alike=0.7)), roster_of("abcd")
    round_budget, state = RoundBudget(1000, roster.prices), arms.init(roster, 1000, 3)
    for _ in range(6):
        state = arms.update(state, np.array([0, 1, 2]), np.array([0.3, 0.1, -0.2]), round_budget)
    state = arms.update(state, np.array([1, 3]), np.array([0.1, 0.0]), round_budget)
    detector = arms.detector(state, 4)
    merged = with_detector(arms, state, detector, arm=np.array([0, 0, 2, 2]))
    memory, seen = merged[:4], merged[4:8]
    assert seen.tolist() == [13, 0, 7, 0]
    assert memory[0] == pytest.approx((6 * state[0] + 7 * state[1]) / 13)
    assert memory[2] == pytest.approx((6 * state[2] + 1 * state[3]) / 7)
    p = arms.probabilities(merged, round_budget)
    assert p.sum() == pytest.approx(1) and (p > 0).all()
    np.testing.assert_array_equal(arms.detector(merged, 4).arm, [0, 0, 2, 2])
    at_once = with_detector(arms, state, detector, arm=np.array([0, 0, 0, 0]))
    assert at_once[4:8].tolist() == [20, 0, 0, 0]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=NAMES)
def test_a_merged_pair_has_the_chance_of_one(sampler: Sampler) -> None:
    arms, roster = OwnerGroups(sampler, Defence(alike=0.7)), roster_of("abc")
    state, round_budget = arms.init(roster, 1000, 2), RoundBudget(1000, roster.prices)
    merged = with_detector(arms, state, arms.detector(state, 3), arm=np.array([0, 1, 1]))
    p = arms.probabilities(merged, round_budget)
    np.testing.assert_allclose([p[0], p[1] + p[2]], [0.5, 0.5], rtol=1e-9)


@pytest.mark.parametrize("sampler", [*SAMPLERS, Uniform(replacement=False)], ids=[*NAMES, "without replacement"])
@pytest.mark.parametrize("prices", [[3, 3, 3, 3], [2, 6, 8, 2]])
def test_a_defended_market_can_be_quoted_and_keeps_to_its_budget(sampler: Sampler, prices: list[int]) -> None:
    """Also where there are fewer arms than draws, because nobody is drawn twice."""
    offers = roster_of("aabb", prices).offers
    rules = rules_with(EVERY_RULE, offers, budget=90, per_round=3, sampler=sampler)
    quoted, book = quote(rules), play(rules, random_measures(5)).book
    for spent in (quoted.budget - quoted.unspent.low, quoted.budget - book.left):
        assert 90 - 3 * max(prices) < spent <= 90
    assert quoted.rounds.low >= 90 // (3 * max(prices)) and book.spent <= 90


def test_what_a_sampler_says_of_itself_its_arms_say() -> None:
    arms, roster = OwnerGroups(Adaptive(0.02), ARMS), roster_of("aab")
    round_budget = RoundBudget(100, roster.prices)
    assert (arms.alpha, arms.wants) == (0.02, Adaptive.wants)
    np.testing.assert_array_equal(arms.exploration(round_budget), Adaptive(0.02).exploration(round_budget))
    plain = OwnerGroups(Uniform(), ARMS)
    assert (plain.alpha, plain.wants) == (0.01, Wants())
    assert OwnerGroups(Uniform(replacement=False), ARMS).wants == Wants(short_rounds=True, no_repeats=True)
    assert not plain.exploration(round_budget).any()
