"""The default sampler: what its draws do not depend on, whom it asks more often, and what nobody can earn by."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_markets import PLENTY, FixedNumber, Rounds, chances, learned, played, purse_of, some_rounds, start
from databazaar import Adaptive, Arbiter, BazaarError, Consumer, Progress, Provider
from databazaar.ledger import Ledger, audit_entries
from databazaar.market.loop import play
from databazaar.roster import RoundBudget
from databazaar.samplers import SAMPLERS
from databazaar.samplers.adaptive import DECISION, FRESH, OUTLIER, SPREAD, log_weights, worth
from databazaar.testing import check_sampler
from forging import reseal
from small_markets import vector_market


class Market(NamedTuple):
    prices: list[int]
    per_round: int
    seed: int


markets = st.builds(
    Market,
    prices=st.lists(st.one_of(st.integers(1, 50), st.just(10**9)), min_size=2, max_size=6),
    per_round=st.integers(1, 5),
    seed=st.integers(0, 10**6),
)


@pytest.mark.parametrize("sampler", [Adaptive(), Adaptive(1.0), Adaptive(1e-6)], ids=repr)
def test_check_sampler_passes(sampler: Adaptive) -> None:
    for per_round in (1, 4, 20):
        check_sampler(sampler, per_round=per_round)
    check_sampler(sampler, providers=1)
    assert SAMPLERS.build(SAMPLERS.settings_of(sampler)) == sampler


@pytest.mark.parametrize("alpha", [0, -0.1, 1.01, float("nan"), True, "0.1"])
def test_a_floor_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(BazaarError, match=r"sampler adaptive: alpha = .* must be .*: change it"):
        Adaptive(alpha)


@given(markets, st.integers(-900, 900))
def test_gains_times_a_power_of_two_change_no_bit(market: Market, exponent: int) -> None:
    prices, per_round, seed = market
    rounds, size = some_rounds(len(prices), min(per_round, len(prices)), 25, seed), per_round
    plain, scaled = (learned(rounds, prices, size, times=times) for times in (1.0, 2.0**exponent))
    assert chances(scaled, prices).tobytes() == chances(plain, prices).tobytes()
    for number in (0.0, 0.3, 0.999):
        draws = [Adaptive().draw(state, FixedNumber(number), size, purse_of(prices)) for state in (plain, scaled)]
        assert draws[0].tolist() == draws[1].tolist()


@given(markets, st.one_of(st.floats(1e-4, 1e2), st.sampled_from([1e-300, 1e-150, 1e150, 1e290])))
def test_chances_do_not_depend_on_the_scale_of_the_utility(market: Market, times: float) -> None:
    prices, size = market.prices, market.per_round
    rounds = some_rounds(len(prices), min(size, len(prices)), 25, market.seed)
    plain, scaled = (chances(learned(rounds, prices, size, times=by), prices) for by in (1.0, times))
    np.testing.assert_allclose(scaled, plain, rtol=1e-6)


@given(markets, st.floats(-100, 100))
def test_what_all_gains_have_in_common_does_not_count(market: Market, offset: float) -> None:
    prices, size = market.prices, market.per_round + 1
    rounds = some_rounds(len(prices), min(size, len(prices)), 25, market.seed)
    plain, raised = (chances(learned(rounds, prices, size, offset=by), prices) for by in (0.0, offset))
    np.testing.assert_allclose(raised, plain, rtol=1e-4)


def test_what_all_gain_alike_favours_nobody_for_having_been_drawn() -> None:
    """The first rounds of a market gain much, whoever is asked; 0.7^t leaves rounding errors if one is careless."""
    rng = np.random.default_rng(3)
    shrinking = [(rng.permutation(5)[:3], np.full(3, 0.7**t)) for t in range(40)]
    state = learned(shrinking, [1] * 5, 3)
    seen, p = state[5:10], chances(state, [1] * 5)
    assert len(set(seen)) > 2
    worn = (1 + seen / FRESH) ** -DECISION
    np.testing.assert_allclose(p, worn / worn.sum())


def test_good_enough_is_good_enough() -> None:
    """Once three are known to be far better than the rest, the best of them has no higher chance than the others."""
    brings, everybody = np.array([9.0, 6.0, 5.0] + [0.0] * 17), np.arange(20)
    p = chances(learned([(everybody, brings)] * 30, [1] * 20, 20), [1] * 20)
    assert p[0] == p[1] == p[2] > 5 * p[3:].max()


def test_data_that_are_as_good_are_used_alike_in_the_long_run() -> None:
    """Luck at the beginning does not decide a long market: ten that are alike, beside ten that are worse."""
    for seed in range(3):
        _, drawn = played([1.0] * 10 + [0.0] * 10, [1] * 20, 5, 2000, noise=1.0, seed=seed)
        good, bad = drawn[:10], drawn[10:]
        assert good.max() < 2 * good.min() and good.min() > 2 * bad.max(), drawn


@given(markets)
def test_providers_can_be_listed_in_any_order(market: Market) -> None:
    prices, size, seed = market
    n, order = len(prices), np.random.default_rng(seed).permutation(len(prices))
    place = np.argsort(order)  # where provider i stands in the new order
    rounds = some_rounds(n, min(size, n), 25, seed)
    moved = [(place[draws], gains) for draws, gains in rounds]
    there = [prices[i] for i in order]
    plain, other = chances(learned(rounds, prices, size), prices), chances(learned(moved, there, size), there)
    np.testing.assert_allclose(other, plain[order], rtol=1e-9)


@given(markets, st.integers(1, 10**6))
def test_where_all_ask_the_same_prices_have_no_say(market: Market, price: int) -> None:
    n, size = len(market.prices), market.per_round
    state = learned(some_rounds(n, min(size, n), 25, market.seed), [price] * n, size)
    found = chances(state, [price] * n)
    assert found.tobytes() == chances(state, [1] * n).tobytes()
    logs = log_weights(worth(state, n), state[n : 2 * n], np.zeros(n))
    q = np.exp(logs - logs.max())
    q = np.maximum(q / q.sum(), 0.01 / n)
    np.testing.assert_allclose(found, q / q.sum())


@given(markets, st.sampled_from([0.001, 0.01, 0.5, 1.0]), st.integers(0, 63))
def test_everybody_who_can_be_asked_keeps_its_floor_and_nobody_else_has_a_chance(
    market: Market, alpha: float, used_up: int
) -> None:
    prices, size = market.prices, market.per_round
    n, sampler = len(prices), Adaptive(alpha)
    state = learned(some_rounds(n, min(size, n), 25, market.seed), prices, size)
    rest = np.array([0 if used_up >> i & 1 else 3 for i in range(n)], dtype=np.int64)
    dearest = sorted(prices)[n // 2]
    round_budget = RoundBudget(PLENTY, np.array(prices, dtype=np.int64), rest, most_per_access=dearest)
    open_ = (rest > 0) & (round_budget.quotes <= dearest)
    if not open_.any():
        return
    p = sampler.probabilities(state, round_budget)
    assert p.sum() == pytest.approx(1) and (p >= 0).all()
    assert not p[~open_].any()
    paid = p @ round_budget.quotes
    floor = alpha / n * np.minimum(1.0, paid / round_budget.quotes / (1 + alpha))
    assert (p[open_] >= floor[open_] / (1 + alpha) * (1 - 1e-9)).all()
    for number in np.linspace(0, 0.999, 7):
        assert open_[sampler.draw(state, FixedNumber(number), size, round_budget)].all()


@given(markets)
@settings(max_examples=30)
def test_nobody_is_drawn_twice_and_a_draw_is_as_likely_as_its_chance_says(market: Market) -> None:
    """By enumeration over the one random number: a provider is asked with a chance of min(1, K p)."""
    prices, size = market.prices, market.per_round + 1
    n, round_budget, steps = len(prices), purse_of(prices), 400
    state = learned(some_rounds(n, min(size, n), 12, market.seed), prices, size)
    counts = np.zeros(n)
    for number in (np.arange(steps) + 0.5) / steps:
        draws = Adaptive().draw(state, FixedNumber(number), size, round_budget)
        assert 1 <= len(set(draws.tolist())) == len(draws) <= size
        counts[draws] += 1
    wanted = np.minimum(1.0, size * chances(state, prices))
    np.testing.assert_allclose(counts / steps, wanted, atol=2.5 / steps)


def test_no_place_in_a_round_is_anybodys() -> None:
    """A rest that does not pay for all leaves out whom chance says, and not always the last of the list."""
    state, round_budget = start([1] * 3, 3), purse_of([1] * 3)
    last = [int(Adaptive().draw(state, np.random.default_rng(seed), 3, round_budget)[-1]) for seed in range(300)]
    assert (np.bincount(last, minlength=3) > 60).all()


@pytest.mark.parametrize("per_round", [1, 2, 5])
@pytest.mark.parametrize("price", [1, 10**9])
def test_who_never_answers_loses_its_chance(per_round: int, price: int) -> None:
    prices = [price] * 5
    state, drawn = played([1.0] * 5, prices, per_round, 120, silent=(2,))
    p = chances(state, prices)
    assert p[2] == p.min() < 0.02
    assert drawn[2] < 0.5 * np.delete(drawn, 2).min()


@pytest.mark.parametrize("per_round", [1, 2, 4])
def test_who_was_the_best_and_answers_no_more_loses_its_chance_too(per_round: int) -> None:
    brings, prices = [5.0, 1.0, 1.0, 1.0, 1.0], [3] * 5
    state, _ = played(brings, prices, per_round, 100)
    assert chances(state, prices)[0] > 0.3  # an even share is 0.2
    state, _ = played(brings, prices, per_round, 60, silent=(0,), state=state, seed=1)
    p = chances(state, prices)
    assert p[0] < 0.1 and p[0] < 0.2 * p.max()


def test_a_round_in_which_nobody_answers_counts_against_those_who_were_asked() -> None:
    state, round_budget = start([1] * 4, 2), purse_of([1] * 4)
    for _ in range(3):
        state = Adaptive().update(state, np.array([0, 1]), np.full(2, -np.inf), round_budget)
    p = chances(state, [1] * 4)
    assert p[0] == p[1] < p[2] == p[3]


@pytest.mark.parametrize("per_round", [1, 2, 6])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e2])
def test_the_better_a_provider_the_more_often_it_is_asked(per_round: int, scale: float) -> None:
    brings = [scale * value for value in (3.0, 1.0, -1.0, -1.0, -1.0, -3.0)]
    state, drawn = played(brings, [2] * 6, per_round, 300, noise=0.3 * scale)
    p = chances(state, [2] * 6)
    assert p[0] == p.max() and p[5] < 0.02
    assert drawn[0] == drawn.max() and drawn[0] > 2 * drawn[5]


def test_prices_of_1_and_of_a_billion_stand_side_by_side() -> None:
    prices = [1, 1, 10**9, 10**9]
    p = chances(start(prices, 2), prices)
    assert np.isfinite(p).all() and p[0] == pytest.approx(p[1]) and p[2] == pytest.approx(p[3])
    assert 0 < p[2] < 1e-5 * p[0]
    state, _ = played([0.0, 0.0, 9.0, 9.0], prices, 2, 50)  # whoever is far better is worth its price
    for number in (0.0, 0.5, 0.999):
        draws = Adaptive().draw(state, FixedNumber(number), 2, purse_of(prices))
        assert np.isfinite(chances(state, prices)).all() and len(draws)


@given(st.lists(st.sampled_from([0.0, 5e-324, -5e-324, 1e-200, 1.0, -1e200, 1.7976931348623157e308]), min_size=1))
def test_huge_and_tiny_gains_do_not_overflow(gains: list[float]) -> None:
    n, round_budget = len(gains), purse_of([1] * len(gains))
    state = start([1] * n, n)
    everybody = np.arange(n)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        for values in (gains, gains[::-1], [-gain for gain in gains], [0.0] * n, [1e-300] * n, gains):
            state = Adaptive().update(state, everybody, np.array(values), round_budget)
            p = chances(state, [1] * n)
            assert np.isfinite(state).all() and np.isfinite(p).all() and p.sum() == pytest.approx(1)


def test_units_follow_gains_that_shrink_for_long() -> None:
    """Gains that shrink from 1e70 to 1e-64: differences count as much at the end as at the beginning."""
    round_budget, state = purse_of([1] * 3), start([1] * 3, 3)
    for t in range(6000):
        state = Adaptive().update(state, np.arange(3), np.array([3.0, 1.0, -1.0]) * 1e70 * 0.95**t, round_budget)
    p = chances(state, [1] * 3)
    assert p[0] > p[1] > p[2] and np.isfinite(state).all()


@pytest.mark.parametrize("gain", [np.nan, np.inf])
def test_what_is_no_number_is_refused_and_a_failure_is_not(gain: float) -> None:
    state, round_budget = start([1] * 3, 2), purse_of([1] * 3)
    with pytest.raises(ValueError, match="finite"):
        Adaptive().update(state, np.array([0, 1]), np.array([0.0, gain]), round_budget)
    moved = Adaptive().update(state, np.array([0, 1]), np.array([0.0, -np.inf]), round_budget)
    assert moved[:3].tolist() == [0.0, -OUTLIER, 0.0]


@given(markets)
def test_what_exploring_costs_is_what_the_floors_cost_before_anything_is_known(market: Market) -> None:
    prices = market.prices
    round_budget, n = purse_of(prices), len(prices)
    p = chances(start(prices, 3), prices)
    wanted = [0.01 / n * min(price, float(p @ round_budget.quotes)) for price in prices]
    np.testing.assert_allclose(Adaptive().exploration(round_budget), wanted)


def test_nobody_is_explored_where_nobody_can_be_asked() -> None:
    assert Adaptive().exploration(replace(purse_of([5, 7]), most_per_access=4)).tolist() == [0.0, 0.0]


def slow_reference(rounds: Rounds, n: int, per_round: int) -> list[float]:
    """The log worths by the formulas of the docstring, one provider and one draw at a time."""
    r, seen = [0.0] * n, [0] * n
    unit2, v, mean, singles = 0.0, 1.0, 0.0, 0
    for draws, gains in rounds:
        valid = [float(gain) for gain in gains if gain > -math.inf]
        advantages = [-3.0] * len(draws)
        if valid:
            if len(valid) > 1:
                differences = [g - (sum(valid) - g) / (len(valid) - 1) for g in valid]
            else:
                differences = [valid[0] - mean if singles else 0.0]
                singles += 1
                mean += max(0.1, 1 / singles) * (valid[0] - mean)
            square = sum(d * d for d in differences) / len(valid)
            if square:
                unit2 = 0.9 * unit2 + 0.1 * min(square, 9 * unit2) if unit2 else square
            told = iter(min(3.0, max(-3.0, d / math.sqrt(unit2))) if square else 0.0 for d in differences)
            advantages = [next(told) if gain > -math.inf else -3.0 for gain in gains]
        surprises = [(a - r[i]) ** 2 for i, a in zip(draws, advantages, strict=True) if seen[i]]
        v += 0.1 * (sum(surprises) / len(surprises) - v) if surprises else 0.0
        for i, a in zip(draws, advantages, strict=True):
            seen[i] += 1
            r[i] += max(0.1, 1 / seen[i]) * (a - r[i])
    known, worth = [i for i in range(n) if seen[i]], [0.0] * n
    if len(known) > 1:
        error = [v * max(1 / max(1, times), 0.1 / 1.9) for times in seen]
        m, centre = len(known), sum(r[i] for i in known) / len(known)
        spread = sum((r[i] - centre) ** 2 for i in known) / (m - 1) - sum(error[i] for i in known) / m
        square = (m * max(0.0, spread) + per_round * SPREAD**2) / (m + per_round)
        worth = [square / (square + error[i]) * r[i] / math.sqrt(square) if seen[i] else 0.0 for i in range(n)]
    wear = [math.log(1.0 + times / 50.0) for times in seen]
    typical = sum(times * lost for times, lost in zip(seen, wear, strict=True)) / sum(seen)
    for i, x in enumerate(worth):
        if x < 0 and wear[i] < typical:  # to be fresh is no merit of who is worse than the others
            wear[i] += min(1.0, -x) * (typical - wear[i])
    return [min(x, 1.0) - lost for x, lost in zip(worth, wear, strict=True)]


@given(markets, st.integers(1, 40))
def test_the_worth_is_that_of_the_formulas(market: Market, rounds: int) -> None:
    """Where all ask the same."""
    prices, size = market.prices, market.per_round
    n = len(prices)
    history = some_rounds(n, min(size, n), rounds, market.seed)
    state = learned(history, prices, size)
    fast = log_weights(worth(state, n), state[n : 2 * n], np.zeros(n))
    np.testing.assert_allclose(fast, DECISION * np.array(slow_reference(history, n, size)), rtol=1e-6, atol=1e-9)


def unequal_market() -> tuple[Consumer, list[Provider]]:
    """Prices that differ, and one that never answers."""
    return vector_market((0.0, 0.5, 1.0, 2.0, 0.0), budget=300, prices=[3, 2, 5, 1, 2], oracles={4: none_at_all})


def none_at_all(w: np.ndarray) -> np.ndarray:
    raise ValueError("nothing to say")


def test_an_audit_replays_a_run_and_finds_a_forged_gain() -> None:
    arbiter = Arbiter(*unequal_market(), engine="loop", seed=4)
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    entries = list(ledger.store.entries())
    assert audit_entries(entries).ok
    rounds = [i for i, entry in enumerate(entries) if entry.kind == "round"]
    assert any(None in entries[i].body["gains"] for i in rounds), "somebody has failed"
    at = next(i for i in rounds[3:] if len(entries[i].body["gains"]) > 1 and None not in entries[i].body["gains"])
    best = max(entries[at].body["gains"])
    gains = [-9.0 if gain == best else 9.0 for gain in entries[at].body["gains"]]
    forged = entries[at]._replace(body={**entries[at].body, "gains": gains})
    assert not audit_entries(reseal([*entries[:at], forged, *entries[at + 1 :]])).ok


def test_a_run_that_was_stopped_goes_on_to_the_same_end(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.round == 20:
            raise KeyboardInterrupt

    whole = Arbiter(*unequal_market(), engine="loop", seed=4).run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        Arbiter(*unequal_market(), engine="loop", seed=4).run(tmp_path / "stopped", callbacks=[stop])
    again = Arbiter(*unequal_market(), engine="loop", seed=4).run(tmp_path / "stopped")
    assert len(whole.rounds) > 20
    assert [(r.accesses, r.utility) for r in again.rounds] == [(r.accesses, r.utility) for r in whole.rounds]
    assert (again.model_hash, again.ledger_head) == (whole.model_hash, whole.ledger_head)


def test_more_draws_than_providers_spend_all_the_money() -> None:
    consumer, providers = vector_market((0.0, 0.5), budget=31, per_round=7)
    report = Arbiter(consumer, providers, engine="loop").run()
    assert report.spent == 31 and max(len(round.accesses) for round in report.rounds) == 2
