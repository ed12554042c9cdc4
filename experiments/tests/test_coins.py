"""The mirror step over shares of money: the paper's to the last bit where told to be, unbiased, without a scale."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import OSMD, BazaarError
from databazaar.config.jobs import from_recipe, market_job
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers import SAMPLERS, Sampler
from databazaar.testing import check_sampler
from databazaar_experiments.samplers.coins import Coins

ALPHAS = [0.0, 1e-9, 0.01, 0.3, 1.0]
WITH_RATE = [Coins(0.0, 0.7), Coins(0.2, 5.0, floor="access"), Coins(1.0, 0.1, baseline=False), Coins(0.0, 2.0, False)]
WITHOUT = [Coins(), Coins(1.0), Coins(1e-6, baseline=False), Coins(floor="access"), Coins(0.5, None, False, "access")]


def roster_of(prices: list[int]) -> Roster:
    return Roster.of((f"p{i}", f"p{i}", price) for i, price in enumerate(prices))


def played(sampler: Sampler, prices: list[int], gains: np.ndarray, per_round: int, seed: int) -> np.ndarray:
    """p after every round of a market with these gains, one row a round, whose draws are the sampler's own."""
    roster, rng = roster_of(prices), np.random.default_rng(seed)
    left = per_round * max(prices) * len(gains)
    state, found = sampler.init(roster, left, per_round), []
    for now in gains:
        round_budget = RoundBudget(left, roster.prices)
        draws = sampler.draw(state, rng, per_round, round_budget)
        state = sampler.update(state, draws, now[draws], round_budget)
        left -= int(roster.prices[draws].sum())
        found.append(sampler.probabilities(state, round_budget))
    return np.array(found)


@pytest.mark.parametrize("sampler", [*WITH_RATE, *WITHOUT], ids=repr)
def test_check_sampler_passes(sampler: Coins) -> None:
    for per_round in (1, 4, 20):
        check_sampler(sampler, per_round=per_round)
    assert SAMPLERS.build(SAMPLERS.settings_of(sampler)) == sampler


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"alpha": -0.1}, "alpha = -0.1 must lie in"),
        ({"alpha": float("nan")}, "alpha = nan must lie in"),
        ({"alpha": True}, "alpha = True must lie in"),
        ({"alpha": 0}, "alpha = 0 needs an eta"),
        ({"eta": 0}, "eta = 0 must be a positive number, or left out"),
        ({"eta": float("inf")}, "eta = inf must be a positive number"),
        ({"eta": "fast"}, "eta = 'fast' must be a positive number"),
        ({"baseline": 1}, "baseline = 1 must be true or false"),
        ({"floor": "low"}, "floor = 'low' must be 'money' or 'access'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(BazaarError, match=words):
        SAMPLERS.build({"kind": "coins", **settings})


@st.composite
def one_price_markets(draw: st.DrawFn) -> tuple[OSMD, int, list[tuple[RoundBudget, np.ndarray]], int, int]:
    """An OSMD, a price, and rounds: their budget, which may be short of money or of accesses, and all gains."""
    n, price = draw(st.integers(1, 6)), draw(st.sampled_from([1, 3, 7, 10**9, 2**62 - 1]))
    sampler = OSMD(draw(st.floats(1e-6, 1e4)), draw(st.sampled_from(ALPHAS) | st.floats(0, 1, allow_subnormal=False)))
    gain = st.floats(-2, 2) | st.sampled_from([0.0, 1e-300, 1e308, -1e308, 1e9])
    rounds = []
    for _ in range(draw(st.integers(1, 12))):
        caps = draw(st.none() | st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any))
        round_budget = RoundBudget(
            price * draw(st.integers(1, 50)), np.full(n, price), None if caps is None else np.array(caps)
        )
        rounds.append((round_budget, np.array(draw(st.lists(gain, min_size=n, max_size=n)))))
    return sampler, price, rounds, draw(st.integers(1, 5)), draw(st.integers(0, 10**6))


@given(one_price_markets())
def test_with_one_price_a_rate_no_baseline_and_floors_per_access_it_is_the_papers_sampler_bit_for_bit(
    market: tuple[OSMD, int, list[tuple[RoundBudget, np.ndarray]], int, int],
) -> None:
    osmd, price, rounds, per_round, seed = market
    roster = Roster.equal(len(rounds[0][1]), price)
    for floor in ("access", "money"):  # with one price the two floors are one
        coins = Coins(eta=osmd.eta, alpha=osmd.alpha, baseline=False, floor=floor)
        theirs, ours = osmd.init(roster, 100 * price, per_round), coins.init(roster, 100 * price, per_round)
        dice, same_dice = np.random.default_rng(seed), np.random.default_rng(seed)
        for round_budget, gains in rounds:
            assert (
                coins.probabilities(ours, round_budget).tobytes() == osmd.probabilities(theirs, round_budget).tobytes()
            )
            draws = osmd.draw(theirs, dice, per_round, round_budget)
            assert coins.draw(ours, same_dice, per_round, round_budget).tobytes() == draws.tobytes()
            fitting = round_budget.fitting(draws)
            theirs = osmd.update(theirs, fitting, gains[fitting], round_budget)
            ours = coins.update(ours, fitting, gains[fitting], round_budget)
            assert ours.tobytes() == theirs.tobytes()


def all_draws(p: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, float]]:
    """Every outcome of a round of independent draws, and its chance."""
    for draws in itertools.product(range(len(p)), repeat=size):
        yield np.array(draws), math.prod(p[i] for i in draws)


@st.composite
def small_rounds(draw: st.DrawFn) -> tuple[np.ndarray, list[int], np.ndarray, int]:
    n = draw(st.integers(2, 4))
    log_q = np.array(draw(st.lists(st.floats(-4, 0), min_size=n, max_size=n)))
    prices = draw(st.lists(st.integers(1, 30), min_size=n, max_size=n))
    gains = np.array(draw(st.lists(st.floats(-3, 3), min_size=n, max_size=n)))
    return log_q - np.log(np.exp(log_q).sum()), prices, gains, draw(st.integers(1, 4))


def mean_move(sampler: Coins, state: np.ndarray, prices: list[int], gains: np.ndarray, size: int) -> np.ndarray:
    """E[ηẑ] up to a constant: with α = 0 a step adds ηẑ to the log-weights, and the norm to all alike."""
    round_budget, n = RoundBudget(10**9, np.array(prices)), len(prices)
    p, move = sampler.probabilities(state, round_budget), np.zeros(n)
    for draws, chance in all_draws(p, size):
        moved = sampler.update(state, draws, gains[draws], round_budget)[:n] - state[:n]
        move += chance * (moved - moved[0])  # the norm is another for each outcome, so it goes first
    return move


@given(small_rounds())
def test_differences_of_the_estimate_are_those_of_what_money_brings_with_a_baseline_and_without(
    small: tuple[np.ndarray, list[int], np.ndarray, int],
) -> None:
    """λ_k is made of the draws other than k, which are independent of it: E[ẑ_i] = H g_i / c_i − H E[λ] for all i."""
    log_q, prices, gains, size = small
    p = np.exp(log_q) / prices
    p /= p.sum()
    worth = (p @ prices) * gains / prices
    for baseline in (False, True):
        past = np.array([0.0, 0.4, 0.0, 7.0]) if baseline else np.zeros(0)  # a running mean, for rounds of one draw
        state = np.concatenate([log_q, past])
        found = mean_move(Coins(0.0, 0.3, baseline), state, prices, gains, size)
        np.testing.assert_allclose(found / 0.3, worth - worth[0], atol=1e-9)


def test_a_baseline_lessens_the_noise_of_what_all_gain_alike() -> None:
    """The same differences in the mean, and nobody is preferred for having been drawn."""
    prices, gains = [1, 1, 1], np.array([5.0, 5.0, 5.0])
    state, round_budget = np.full(3, -math.log(3)), RoundBudget(100, np.array(prices))
    draws = np.array([0, 0, 1])
    plain = Coins(0.0, 0.3, False).update(state, draws, gains[draws], round_budget)
    level = Coins(0.0, 0.3).update(np.concatenate([state, np.zeros(4)]), draws, gains[draws], round_budget)[:3]
    assert np.ptp(plain) > 1 and np.ptp(level) < 1e-12


def slow_reference(sampler: Coins, rounds: list[tuple[list[int], list[float], int]], prices: list[int]) -> np.ndarray:
    """The formulas of the docstring for floors in money, one provider and one draw at a time."""
    n, alpha = len(prices), sampler.alpha
    q = [1 / n] * n
    unit2, coin, spreads = 0.0, 0.0, list[float]()

    def chances() -> list[float]:
        H = 1 / sum(share / c for share, c in zip(q, prices, strict=True))
        p = [max(share * H / c, alpha / n * min(1, H / c)) for share, c in zip(q, prices, strict=True)]
        return [chance / sum(p) for chance in p]

    for number, (draws, g, left) in enumerate(rounds, start=1):
        p, K = chances(), len(draws)
        H = sum(chance * c for chance, c in zip(p, prices, strict=True))
        c = [prices[i] for i in draws]
        square = sum((H * g[k] / c[k]) ** 2 for k in range(K)) / K
        unit2 = square if number == 1 else 0.9 * unit2 + 0.1 * min(square, 9 * unit2)
        unit, z = math.sqrt(unit2), [0.0] * n
        for k, i in enumerate(draws):
            a = H * g[k] / c[k] / unit
            if sampler.baseline and K == 1:
                a -= coin
            elif sampler.baseline:
                others = H / unit * sum(g[j] for j in range(K) if j != k) / sum(c[j] for j in range(K) if j != k)
                a = 0.0 if math.isclose(a, others, rel_tol=1e-12) else a - others
            z[i] += min(3.0, max(-3.0, a)) / (K * p[i])
        coin += max(0.1, 1 / number) * min(3.0, max(-3.0, H * sum(g) / sum(c) / unit - coin))
        shares = [chance * price / H for chance, price in zip(p, prices, strict=True)]
        centre = sum(share * value for share, value in zip(shares, z, strict=True))
        v = sum(share * (value - centre) ** 2 for share, value in zip(shares, z, strict=True))
        spreads.append(v)
        past = spreads[:-1] if any(spreads[:-1]) else spreads
        mean = sum(past) / len(past)
        T = max(1.0, left / (K * H))
        eta = math.sqrt(math.log(n / alpha) / (T * mean)) if mean else 0.0
        y = [share * math.exp(min(1.0, max(-1.0, eta * value))) for share, value in zip(q, z, strict=True)]
        floors = [alpha / n * min(1, price / H) for price in prices]
        fixed: set[int] = set()
        while True:  # whoever falls below its floor stays at it, and the others share the rest
            rest = 1 - sum(floors[i] for i in fixed)
            total = sum(y[i] for i in range(n) if i not in fixed)
            q = [floors[i] if i in fixed else rest * y[i] / total for i in range(n)]
            below = {i for i in range(n) if q[i] < floors[i]}
            if not below:
                break
            fixed |= below
    return np.array(chances())


@given(
    prices=st.lists(st.sampled_from([1, 1, 2, 7, 100]), min_size=2, max_size=6),
    per_round=st.integers(1, 6),
    rounds=st.integers(1, 30),
    sampler=st.sampled_from([Coins(), Coins(0.3), Coins(baseline=False)]),
    seed=st.integers(0, 10**6),
)
def test_the_update_is_that_of_the_formulas(
    prices: list[int], per_round: int, rounds: int, sampler: Coins, seed: int
) -> None:
    rng, roster = np.random.default_rng(seed), roster_of(prices)
    state, history = sampler.init(roster, 10**4, per_round), []
    worth = rng.normal(size=len(prices))
    for number in range(rounds):
        draws = rng.integers(0, len(prices), per_round)
        gains = (worth + rng.normal(size=len(prices)))[draws]
        left = 10**4 - 30 * number
        state = sampler.update(state, draws, gains, RoundBudget(left, roster.prices))
        history.append((draws.tolist(), gains.tolist(), left))
    fast = sampler.probabilities(state, RoundBudget(10**4, roster.prices))
    np.testing.assert_allclose(fast, slow_reference(sampler, history, prices), rtol=1e-7)


@given(
    exponent=st.integers(-300, 290),
    prices=st.lists(st.integers(1, 50), min_size=2, max_size=5),
    per_round=st.integers(1, 5),
    sampler=st.sampled_from(WITHOUT),
    seed=st.integers(0, 20),
)
def test_draws_do_not_depend_on_the_scale_of_the_utility(
    exponent: int, prices: list[int], per_round: int, sampler: Coins, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    gains = rng.normal(size=len(prices)) + rng.normal(size=(25, len(prices)))
    plain = played(sampler, prices, gains, per_round, seed)
    scaled = played(sampler, prices, gains * 10.0**exponent, per_round, seed)
    np.testing.assert_allclose(scaled, plain, rtol=1e-6)


@pytest.mark.parametrize(
    "sampler", [Coins(), Coins(floor="access"), Coins(0.01, 0.1), Coins(0.01, 0.1, False)], ids=repr
)
def test_prices_of_1_and_of_a_billion_stand_side_by_side(sampler: Coins) -> None:
    """Shares of money, not chances, start even: nobody pays a billion to find out what the dear one is worth, unless
    floors are per access."""
    prices, rng = [1, 1, 10**9], np.random.default_rng(0)
    round_budget, state = RoundBudget(10**11, np.array(prices)), sampler.init(roster_of(prices), 10**11, 3)
    round_budget = (
        RoundBudget(3000, np.array(prices), most_per_access=10**10) if sampler.floor == "money" else round_budget
    )
    for _ in range(300):
        draws = sampler.draw(state, rng, 3, round_budget)
        state = sampler.update(
            state, draws, (np.array([1.0, 0.2, 1000.0]) + 0.1 * rng.normal(size=3))[draws], round_budget
        )
        assert np.isfinite(state).all()
    p = sampler.probabilities(state, RoundBudget(10**11, np.array(prices)))
    share = p[2] * 10**9 / (p @ np.array(prices))
    if sampler.floor == "money":
        assert p[0] > 0.9 and p[0] > p[1] > p[2] > 0 and p[2] < 1e-8
    else:  # what the paper's floor costs: nearly all money goes to exploring the dear one
        assert p[2] >= sampler.alpha / 3 / (1 + sampler.alpha) and share > 0.99


@pytest.mark.parametrize("sampler", [Coins(), Coins(0.01, 0.1)], ids=repr)
def test_who_asks_a_billion_for_a_thousandfold_gain_loses_money_and_keeps_the_floor(sampler: Coins) -> None:
    prices = np.array([1, 1, 10**9])
    round_budget, state = RoundBudget(2 * 10**9, prices), sampler.init(roster_of(prices.tolist()), 2 * 10**9, 3)
    for _ in range(5):
        moved = sampler.update(state, np.array([0, 1, 2]), np.array([1.0, 0.2, 1000.0]), round_budget)
        q, H = np.exp(moved[:3]), sampler.probabilities(state, round_budget) @ prices
        assert q[2] < np.exp(state[2]) or q[2] == pytest.approx(0.01 / 3)
        assert q.sum() == pytest.approx(1) and q[2] >= 0.01 / 3 * min(1, 10**9 / H) * (1 - 1e-12)
        state = moved


@pytest.mark.parametrize("price", [1, 10, 10**9])
@pytest.mark.parametrize("floor", ["money", "access"])
def test_no_share_falls_below_its_floor(price: int, floor: str) -> None:
    sampler = Coins(0.3, 1e6, False, floor)  # type: ignore[arg-type]
    prices = np.array([1, 2, price])
    round_budget, state = RoundBudget(10**12, prices), sampler.init(roster_of(prices.tolist()), 10**12, 3)
    for number in range(40):
        gains = np.eye(3)[number // 10 % 3]
        before = sampler.probabilities(state, round_budget)
        state = sampler.update(state, np.array([0, 1, 2]), gains, round_budget)
        q, H = np.exp(state), before @ prices
        least = np.minimum(1, prices / H) if floor == "money" else prices / max(H, 0.1 * prices.sum())
        assert q.sum() == pytest.approx(1) and (q >= 0.1 * least * (1 - 1e-12)).all()
        p = sampler.probabilities(state, round_budget)
        money = p * prices / (p @ prices)
        slack = 1.3 * (1 + 1e-12)  # floors are raised to the prices' of now, and all shares fall a little
        if floor == "access":
            assert (p * slack >= 0.1).all()
        else:
            assert (money * slack**2 >= 0.1 * np.minimum(1, prices / (p @ prices))).all()


@pytest.mark.parametrize("sampler", [*WITH_RATE, *WITHOUT], ids=repr)
@pytest.mark.parametrize("prices", [[1, 1, 1], [1, 5, 10**9]], ids=str)
def test_a_finite_gain_never_makes_p_infinite_or_nan(sampler: Coins, prices: list[int]) -> None:
    roster, largest = roster_of(prices), 1.7e308
    round_budget, state = RoundBudget(10**12, roster.prices), sampler.init(roster, 10**12, 3)
    for gains in ([largest, -largest, largest], [largest] * 3, [1.0, 2.0, 3.0], [5e-324, -5e-324, 0.0], [-largest] * 3):
        for draws in (np.array([0, 1, 2]), np.array([1]), np.array([2, 2, 2])):
            draws = draws[sampler.probabilities(state, round_budget)[draws] > 0]  # as all draws are
            state = sampler.update(state, draws, np.array(gains)[draws], round_budget)
            p = sampler.probabilities(state, round_budget)
            assert np.isfinite(state).all() and p.sum() == pytest.approx(1)


def test_a_single_outlier_moves_no_log_weight_by_more_than_one() -> None:
    sampler, roster, rng = Coins(), Roster.equal(4), np.random.default_rng(0)
    round_budget, state = RoundBudget(400, roster.prices), sampler.init(roster, 400, 2)
    for number in range(30):
        draws = sampler.draw(state, rng, 2, round_budget)
        gains = rng.normal(size=2) * (1e12 if number % 7 == 3 else 1.0)
        moved = sampler.update(state, draws, gains, round_budget)
        odds = (moved[:4] - state[:4])[:, None] - (moved[:4] - state[:4])
        assert np.abs(odds).max() <= 2 + 1e-9  # one up, another down
        state = moved


@pytest.mark.parametrize("per_round", [1, 5])
def test_it_finds_the_best_of_nine_whatever_all_gain_in_common(per_round: int) -> None:
    worth = np.linspace(0, 1, 9)
    for offset in (0.0, 5.0):
        gains = worth + offset + 0.2 * np.random.default_rng(1).normal(size=(600 // per_round, 9))
        p = played(Coins(), [1] * 9, gains, per_round, seed=2)
        assert p[-1] @ worth > 0.8 and p.mean(0) @ worth > 0.65


def test_fewer_rounds_to_go_make_larger_steps() -> None:
    sampler, roster, moves = Coins(), Roster.equal(3), []
    for left in (10**6, 10**4, 10**2):
        state = sampler.init(roster, left, 2)
        moved = sampler.update(state, np.array([0, 1]), np.array([1.0, 0.0]), RoundBudget(left, roster.prices))
        moves.append(moved[0] - moved[1])
    assert moves[0] == pytest.approx(moves[1] / 10) and moves[1] == pytest.approx(moves[2] / 10)
    paced = RoundBudget(10**4, roster.prices, most_per_round=1)  # a round that may cost 1 and not 2: twice the rounds
    moved = sampler.update(sampler.init(roster, 10**4, 2), np.array([0, 1]), np.array([1.0, 0.0]), paced)
    assert moved[0] - moved[1] == pytest.approx(moves[1] / math.sqrt(2))


def test_rounds_without_any_gain_change_nothing() -> None:
    sampler, roster = Coins(), Roster.equal(3)
    round_budget, state = RoundBudget(100, roster.prices), sampler.init(roster, 100, 2)
    for draws in (np.array([0, 2]), np.array([], dtype=np.int64)):
        np.testing.assert_array_equal(sampler.update(state, draws, np.zeros(len(draws)), round_budget), state)
    alone = np.array([1])
    np.testing.assert_array_equal(sampler.update(state, alone, np.zeros(1), round_budget), state)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=2, max_size=6), st.floats(1e-9, 1e9)), max_size=12),
    st.sampled_from([1, 3]),
)
def test_what_all_gain_alike_favours_nobody_for_having_been_drawn(
    rounds: list[tuple[list[int], float]], price: int
) -> None:
    """Nor does rounding, whatever the rate that is found from it."""
    sampler, roster = Coins(), Roster.equal(4, price)
    round_budget, state = RoundBudget(1000, roster.prices), sampler.init(roster, 1000, 3)
    for draws, gain in rounds:
        state = sampler.update(state, np.array(draws), np.full(len(draws), gain), round_budget)
    np.testing.assert_allclose(sampler.probabilities(state, round_budget), 0.25, rtol=1e-9)


def test_to_gain_nothing_alone_is_less_than_the_others_gained_before() -> None:
    sampler, roster = Coins(), Roster.equal(3)
    round_budget, state = RoundBudget(100, roster.prices), sampler.init(roster, 100, 1)
    state = sampler.update(state, np.array([0]), np.array([1.0]), round_budget)
    moved = sampler.update(state, np.array([1]), np.zeros(1), round_budget)
    assert moved[1] < state[1] and moved[2] > state[2] and moved[3] == state[3]  # the unit does not know of it


def test_what_exploring_costs_a_draw() -> None:
    prices = [1, 4, 100]
    round_budget, even = RoundBudget(1000, np.array(prices)), 3 / (1 + 1 / 4 + 1 / 100)
    by_access, in_money = [0.03, 0.12, 3.0], [0.03, 0.03 * even, 0.03 * even]
    assert OSMD(1.0, 0.09).exploration(round_budget) == pytest.approx(by_access)
    assert Coins(0.09, floor="access").exploration(round_budget) == pytest.approx(by_access)
    sampler = Coins(0.09)
    assert sampler.exploration(round_budget) == pytest.approx(in_money)
    start = sampler.probabilities(sampler.init(roster_of(prices), 1000, 3), round_budget)
    assert start @ np.array(prices) == pytest.approx(even)  # H before anything is known


@pytest.mark.parametrize(
    ("lines", "built"),
    [
        ("", Coins()),
        ("alpha = 0.2\neta = 3.0", Coins(0.2, 3.0)),
        ('alpha = 0.0\neta = 3\nbaseline = false\nfloor = "access"', Coins(0.0, 3.0, False, "access")),
    ],
)
def test_a_job_builds_coins(tmp_path: Path, lines: str, built: Coins) -> None:
    for name in ("holdout", "north", "south"):
        (tmp_path / f"{name}.csv").write_text("a,b,y\n1,x,0\n2,y,1\n3,x,0\n")
    providers = "".join(f'[[providers]]\nid = "{name}"\nfile = "{name}.csv"\n' for name in ("north", "south"))
    data = f'[data]\nholdout = "holdout.csv"\ntarget = "y"\n{providers}'
    path = tmp_path / "market.toml"
    path.write_text(f'[market]\nbudget = 20\n[sampler]\nkind = "coins"\n{lines}\n{data}')
    job = market_job(path)
    assert job.sampler == built == from_recipe(json.loads(json.dumps(job.recipe))).sampler
