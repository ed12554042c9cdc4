"""The sampler without a rate: draws that any scale leaves alone, pay that follows p, and the formulas it is told by."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, BazaarError
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers import SAMPLERS
from databazaar.testing import check_sampler
from databazaar_experiments.samplers.memory import Memory
from small_markets import closeness, vector_market

Gains = list[tuple[np.ndarray, np.ndarray]]


def roster_of(prices: list[int]) -> Roster:
    return Roster.of((f"p{i}", f"p{i}", price) for i, price in enumerate(prices))


def some_rounds(prices: list[int], per_round: int, rounds: int, seed: int) -> Gains:
    """Draws and gains such as a market has: providers of different worth, with noise."""
    rng, n = np.random.default_rng(seed), len(prices)
    worth = rng.normal(size=n)
    found = []
    for _ in range(rounds):
        draws = rng.integers(0, n, per_round)
        found.append((draws, (worth + rng.normal(size=n))[draws]))
    return found


def after(rounds: Gains, prices: list[int], *, times: float = 1.0, sampler: Memory | None = None) -> np.ndarray:
    sampler, roster = sampler or Memory(), roster_of(prices)
    round_budget, state = RoundBudget(10**18, roster.prices), (sampler or Memory()).init(roster, 10**18, 3)
    for draws, gains in rounds:
        state = sampler.update(state, draws, gains * times, round_budget)
    return sampler.probabilities(state, round_budget)


@pytest.mark.parametrize("sampler", [Memory(), Memory(1.0), Memory(1e-6)], ids=repr)
def test_check_sampler_passes(sampler: Memory) -> None:
    for per_round in (1, 4, 20):
        check_sampler(sampler, per_round=per_round)
    assert SAMPLERS.build(SAMPLERS.settings_of(sampler)) == sampler


@pytest.mark.parametrize("alpha", [0, -0.1, 1.01, float("nan"), True, "0.1"])
def test_a_floor_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(BazaarError, match=r"0\.01 is a fair start"):
        Memory(alpha)


@given(
    exponent=st.integers(-300, 290),
    prices=st.lists(st.integers(1, 50), min_size=2, max_size=5),
    per_round=st.integers(1, 5),
    seed=st.integers(0, 20),
)
def test_draws_do_not_depend_on_the_scale_of_the_utility(
    exponent: int, prices: list[int], per_round: int, seed: int
) -> None:
    rounds = some_rounds(prices, per_round, 25, seed)
    plain = after(rounds, prices)
    np.testing.assert_allclose(after(rounds, prices, times=10.0**exponent), plain, rtol=1e-6)


def test_what_all_gain_alike_favours_nobody_for_having_been_drawn() -> None:
    """The first rounds of a market gain much, whoever is asked: those who happened to be asked are not preferred."""
    same = [(np.array([0, 1]), np.array([0.13, 0.13]))] * 20
    np.testing.assert_allclose(after(same, [1, 1, 1, 1]), 0.25)
    rng = np.random.default_rng(3)
    shrinking = [(rng.integers(0, 4, 3), np.full(3, 0.5**t)) for t in range(30)]
    np.testing.assert_allclose(after(shrinking, [1, 1, 1, 1]), 0.25)


def test_an_offset_to_all_gains_changes_how_surely_but_not_whom() -> None:
    rounds = some_rounds([1] * 4, 4, 40, seed=5)
    plain = after(rounds, [1] * 4)
    raised = after([(draws, gains + 3.0) for draws, gains in rounds], [1] * 4)
    assert np.argsort(raised).tolist() == np.argsort(plain).tolist()
    assert 0.25 < raised.max() < plain.max()


def state_with(log_q: list[float]) -> np.ndarray:
    n = len(log_q)
    return np.concatenate([log_q, np.zeros(2 * n + 2)])


@given(
    log_q=st.lists(st.floats(-6, 0), min_size=1, max_size=6),
    size=st.integers(1, 12),
    seed=st.integers(0, 1000),
    prices=st.integers(1, 9),
)
def test_a_provider_is_drawn_as_often_as_its_share_says_up_to_one(
    log_q: list[float], size: int, seed: int, prices: int
) -> None:
    state, round_budget = state_with(log_q), RoundBudget(10**9, np.arange(len(log_q)) % prices + 1)
    wanted = size * Memory().probabilities(state, round_budget)
    counts = np.bincount(Memory().draw(state, np.random.default_rng(seed), size, round_budget), minlength=len(log_q))
    assert counts.sum() == size
    assert (counts >= np.floor(wanted - 1e-9)).all() and (counts <= np.ceil(wanted + 1e-9)).all()


def test_draws_are_unbiased_and_no_place_in_the_round_is_anybodys() -> None:
    state, round_budget, size = state_with([0.0, -1.0, -2.5, -0.3]), RoundBudget(10**9, np.array([1, 2, 1, 3])), 3
    drawn = np.array([Memory().draw(state, np.random.default_rng(seed), size, round_budget) for seed in range(4000)])
    p = Memory().probabilities(state, round_budget)
    for place in range(size):  # a standard error is at most 0.5 / √4000 = 0.008
        np.testing.assert_allclose(np.bincount(drawn[:, place], minlength=4) / 4000, p, atol=0.035)
    np.testing.assert_allclose(np.bincount(drawn.ravel(), minlength=4) / 4000, size * p, atol=0.035)


def test_whom_the_rest_does_not_pay_is_not_drawn() -> None:
    state, round_budget = state_with([-1.0, 0.0, -1.0]), RoundBudget(5, np.array([5, 6, 1]))
    for seed in range(200):
        assert 1 not in Memory().draw(state, np.random.default_rng(seed), 3, round_budget).tolist()


@pytest.mark.parametrize("price", [10, 10**9])
def test_no_share_of_the_money_falls_below_the_floor_and_a_dear_provider_costs_no_more_to_explore(price: int) -> None:
    prices, alpha = np.array([1, 1, price]), 0.03
    for log_q in ([0.0, 0.0, -60.0], [0.0, -60.0, -60.0], [-60.0, -60.0, 0.0]):
        p = Memory(alpha).probabilities(state_with(log_q), RoundBudget(10**12, prices))
        money = p * prices / (p @ prices)
        q = np.exp(log_q) / np.exp(log_q).sum()
        per_draw = 1 / (q / prices).sum()
        floor = alpha / 3 * np.minimum(1, prices / per_draw)
        assert (money >= floor / (1 + alpha) * (1 - 1e-9)).all()
        assert (money[np.array(log_q) < -50] <= alpha / 3 * (1 + 1e-9)).all()


def test_prices_of_1_and_of_a_billion_stand_side_by_side() -> None:
    """Gains for a coin decide: the dear one brings a thousand times more, and that is too little for its price."""
    rng, prices = np.random.default_rng(0), [1, 1, 10**9]
    rounds = []
    for _ in range(60):
        draws = np.array([0, 1, 2])
        rounds.append((draws, np.array([1.0, 0.5, 1000.0]) + 0.1 * rng.normal(size=3)))
    p = after(rounds, prices)
    assert np.isfinite(p).all() and p[0] > p[1] > p[2] > 0
    assert p[2] * 10**9 / (p @ np.array(prices)) < 0.05


def test_a_single_draw_a_round_is_compared_with_what_a_coin_has_brought_so_far() -> None:
    rng, sampler, roster = np.random.default_rng(1), Memory(), Roster.equal(3)
    round_budget, state = RoundBudget(10**6, roster.prices), sampler.init(roster, 10**6, 1)
    for round in range(200):
        draws = sampler.draw(state, np.random.default_rng(round), 1, round_budget)
        state = sampler.update(state, draws, np.array([1.0, 0.2, -0.5])[draws] + 0.1 * rng.normal(size=1), round_budget)
    p = sampler.probabilities(state, round_budget)
    assert p[0] > 0.6 and p[0] > p[1] > p[2]


def test_rounds_without_any_gain_change_nothing() -> None:
    sampler, roster = Memory(), Roster.equal(3)
    round_budget, state = RoundBudget(100, roster.prices), sampler.init(roster, 100, 2)
    state = sampler.update(state, np.array([0, 1]), np.array([1.0, -1.0]), round_budget)
    for draws in (np.array([0, 2]), np.array([], dtype=np.int64)):
        np.testing.assert_array_equal(sampler.update(state, draws, np.zeros(len(draws)), round_budget), state)


def slow_reference(rounds: Gains, prices: list[int], alpha: float) -> np.ndarray:
    """The formulas of the docstring, one provider and one draw at a time."""
    n = len(prices)
    log_q, r, seen = [0.0] * n, [0.0] * n, [0] * n
    unit2: float | None = None
    coin = 0.0

    def chances() -> list[float]:
        q = [math.exp(value) for value in log_q]
        q = [share / sum(q) for share in q]
        mean_price = 1 / sum(share / c for share, c in zip(q, prices, strict=True))
        q = [max(share, alpha / n * min(1.0, c / mean_price)) for share, c in zip(q, prices, strict=True)]
        p = [share / c for share, c in zip(q, prices, strict=True)]
        return [share / sum(p) for share in p]

    for draws, gains in rounds:
        p, K = chances(), len(draws)
        H = sum(chance * c for chance, c in zip(p, prices, strict=True))
        c = [prices[i] for i in draws]
        g = [float(gain) for gain in gains]
        square = sum((H * g[k] / c[k]) ** 2 for k in range(K)) / K
        unit2 = square if unit2 is None else 0.9 * unit2 + 0.1 * min(square, 9 * unit2)
        unit = math.sqrt(unit2)
        advantages = []
        for k in range(K):
            if K == 1:
                a = H * g[k] / c[k] / unit - coin
                coin += max(0.1, 1 / (1 + sum(seen))) * a
            else:
                others = sum(g[j] for j in range(K) if j != k) / sum(c[j] for j in range(K) if j != k)
                a = H * (g[k] / c[k] - others) / unit
            advantages.append(min(3.0, max(-3.0, a)))
        z = list(r)
        for k, i in enumerate(draws):
            z[i] += (advantages[k] - r[i]) / (K * p[i] + 0.5)
        for k, i in enumerate(draws):
            seen[i] += 1
            r[i] += max(0.1, 1 / seen[i]) * (advantages[k] - r[i])
        log_q = [0.9 * old + min(2.0, max(-2.0, 0.25 * estimate)) for old, estimate in zip(log_q, z, strict=True)]
    return np.array(chances())


@given(
    prices=st.lists(st.sampled_from([1, 1, 2, 7, 100]), min_size=2, max_size=6),
    per_round=st.integers(1, 6),
    rounds=st.integers(1, 40),
    alpha=st.sampled_from([0.01, 0.3]),
    seed=st.integers(0, 10**6),
)
def test_the_update_is_that_of_the_formulas(
    prices: list[int], per_round: int, rounds: int, alpha: float, seed: int
) -> None:
    history = some_rounds(prices, per_round, rounds, seed)
    fast = after(history, prices, sampler=Memory(alpha))
    np.testing.assert_allclose(fast, slow_reference(history, prices, alpha), rtol=1e-8)


def test_more_draws_than_providers_are_no_trouble() -> None:
    consumer, providers = vector_market((0.0,), budget=30, per_round=5)
    report = Arbiter(consumer, providers, Memory(), engine="loop").run()
    assert report.payouts[0].accesses == 30


def scaled(scale: float, w: np.ndarray) -> float:
    return scale * closeness(np.array([1.0, -1.0, 0.5]))(w)


def test_who_helps_earns_more_than_who_harms_at_any_scale_of_the_utility() -> None:
    target = np.array([1.0, -1.0, 0.5])
    paid = []
    for scale in (1e-4, 1.0, 1e2):
        consumer, providers = vector_market(
            (0.0, 0.4, 0.0),
            budget=90,
            step=0.05,
            oracles={2: lambda w: w - target},
            utility=partial(scaled, scale),
        )
        paid.append(
            [payout.pay for payout in Arbiter(consumer, providers, Memory(), engine="loop", seed=2).run().payouts]
        )
    assert paid[0] == paid[1] == paid[2]
    helps, _, harms = paid[0]
    assert helps > 2 * harms
