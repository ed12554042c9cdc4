"""Permutations in blocks, and games in tables: the same as one permutation, and one coalition, at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from valuation_games import Vector, names

from databazaar.valuation import (
    BackCheck,
    Game,
    GhorbaniZou,
    MaxEvaluations,
    MaxPermutations,
    Rule,
    StandardErrorBelow,
    games,
    shapley_monte_carlo,
)
from databazaar.valuation.history import History
from databazaar.valuation.permutations import Averaging, Shuffle, first_block
from databazaar.valuation.result import Tally
from databazaar.valuation.stopping import capped


class Welford:
    """The running mean, one row at a time."""

    def __init__(self, players: int) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(players), np.zeros(players)

    def add(self, row: Vector) -> None:
        self.count += 1
        away = row - self.mean
        self.mean = self.mean + away / self.count
        self.squares = self.squares + away * (row - self.mean)

    @property
    def errors(self) -> Vector:
        if self.count < 2:
            return np.full(len(self.mean), np.inf)
        return np.sqrt(self.squares / (self.count - 1) / self.count)


def one_by_one(marginals: Vector, stop: Rule, check_every: int) -> tuple[Welford, str]:
    """Asks the rule after every permutation, as the text of `Averaging` promises. One costs three evaluations."""
    rule, running, estimates = capped(stop), Welford(marginals.shape[1]), []
    for row in marginals:
        running.add(row)
        estimates.append(running.mean)
        if running.count % check_every == 0:
            history = History(estimates, running.errors, running.count, utility_evaluations=3 * running.count)
            reason = rule.reason(history)
            if reason is not None:
                return running, reason
    raise AssertionError("the rule never stopped")


class Halfway(Rule):
    """A rule of the user's own, which knows nothing of blocks."""

    def reason(self, history: History) -> str | None:
        return "the first is worth more" if history.estimates[-1][0] > history.estimates[-1][-1] + 0.3 else None


RULES: list[Callable[[], Rule]] = [
    lambda: BackCheck(3, 0.05),
    lambda: BackCheck(10, 0.2) | MaxPermutations(40),
    lambda: GhorbaniZou(0.3, 5),
    lambda: StandardErrorBelow(0.2),
    lambda: StandardErrorBelow(0.3) & BackCheck(4, 0.3),
    lambda: MaxEvaluations(50),
    lambda: Halfway() | MaxPermutations(25),
    lambda: Halfway() & MaxPermutations(5),
]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    players=st.integers(1, 20),
    batch=st.integers(1, 40),
    lead=st.integers(0, 60),
    check_every=st.sampled_from([1, 1, 3]),
    make=st.sampled_from(RULES),
    scale=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
)
def test_blocks_stop_where_single_permutations_do(
    seed: int, players: int, batch: int, lead: int, check_every: int, make: Callable[[], Rule], scale: float
) -> None:
    rng = np.random.default_rng(seed)
    drawn = rng.integers(-1, 2, players) + scale * rng.normal(size=(60, players))  # some are worth exactly nothing
    rule = make() | MaxPermutations(57)
    expected, reason = one_by_one(drawn, rule, check_every)
    tally = Tally()
    averaging = Averaging(Shuffle(players, 0), players, rule, tally, batch=batch, lead=lead, check_every=check_every)
    taken = 0
    while averaging.stopped is None:
        size = len(averaging.orders())
        tally.utility_evaluations += 3 * size
        averaging.add(drawn[taken : taken + size])
        taken += size
        assert 0 <= averaging.share <= 1
    running = averaging.running
    assert (running.count, averaging.stopped) == (expected.count, reason)
    np.testing.assert_allclose(running.mean, expected.mean, rtol=1e-12, atol=1e-12 * max(scale, 1))
    np.testing.assert_allclose(running.standard_errors, expected.errors, rtol=1e-6, atol=1e-9 * max(scale, 1))


@pytest.mark.parametrize(("first", "count"), [(0, 1), (5, 20), (120, 20), (0, 400), (127, 2), (128, 128)])
def test_a_block_of_permutations_is_what_each_is_by_itself(first: int, count: int) -> None:
    shuffle = Shuffle(6, 3)
    np.testing.assert_array_equal(shuffle.block(first, count), [shuffle(t) for t in range(first, first + count)])
    assert (np.sort(shuffle.block(first, count), axis=1) == np.arange(6)).all()


def test_the_first_block_is_what_is_surely_needed_and_a_little_more() -> None:
    assert first_block(BackCheck(100, 0.1) | MaxPermutations(1000), 10) == 110
    assert first_block(BackCheck(10, 0.1) | MaxPermutations(3), 10) == 3
    assert first_block(StandardErrorBelow(0.1), 7) == 7


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), players=st.integers(1, 7), truncation=st.sampled_from([None, 0.2]))
def test_a_table_of_worths_answers_as_a_dictionary_does(seed: int, players: int, truncation: float | None) -> None:
    weights = np.random.default_rng(seed).normal(size=players)
    asked: list[set[bytes]] = []

    def play(table_players: int) -> tuple[Vector, int]:
        asked.append(set())

        def worth(coalitions: np.ndarray) -> Vector:
            keys = [row.tobytes() for row in coalitions]
            assert len(set(keys)) == len(keys) and not asked[-1] & set(keys), "worked out twice"
            asked[-1].update(keys)
            return np.sin(coalitions @ weights)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(games, "TABLE_PLAYERS", table_players)
            game = Game(names(players), worth)
        result = shapley_monte_carlo(game, MaxPermutations(9), seed, truncation=truncation, batch=4)
        assert game.tally.utility_evaluations == len(asked[-1])
        return result.values, result.cost.utility_evaluations

    table, dictionary = play(16), play(0)
    np.testing.assert_array_equal(table[0], dictionary[0])
    assert table[1] == dictionary[1] and asked[0] == asked[1]


def test_the_guess_at_progress_rises_as_values_settle() -> None:
    rule = BackCheck(1, 0.01)
    shares = [rule.share(History([np.array([1.0]), np.array([1.0 + move])], np.zeros(1), 2)) for move in (1, 0.1, 0)]
    assert 0 < shares[0] < shares[1] < shares[2] == 1.0
    assert rule.share(History([np.array([1.0])], np.zeros(1), 1)) == 0.0
    half = History([np.array([1.0])], np.zeros(1), 5)
    assert (rule | MaxPermutations(10)).share(half) == 0.5 and (rule & MaxPermutations(10)).share(half) == 0.0
    assert math.isclose(MaxPermutations(4).share(half), 1.0)
