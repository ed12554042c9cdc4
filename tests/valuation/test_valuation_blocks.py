"""Permutations in blocks, and games in tables: the same as one permutation, and one coalition, at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.valuation import (
    BackCheck,
    Game,
    GhorbaniZou,
    MaxPermutations,
    Rule,
    StandardErrorBelow,
    shapley_monte_carlo,
)
from databazaar.valuation.monte_carlo import Averaging, Shuffle
from databazaar.valuation.result import Cost, Tally
from databazaar.valuation.stopping import History, capped
from valuation_games import Vector, names


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


def one_by_one(marginals: Vector, stop: Rule) -> tuple[Welford, str]:
    """Asks the rule after every permutation, as the text of `Averaging` promises."""
    rule, running, estimates = capped(stop), Welford(marginals.shape[1]), []
    for row in marginals:
        running.add(row)
        estimates.append(running.mean)
        reason = rule.reason(History(estimates, running.errors, Cost(permutations=running.count)))
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
    lambda: Halfway() | MaxPermutations(25),
    lambda: Halfway() & MaxPermutations(5),
]


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    players=st.integers(1, 20),
    batch=st.integers(1, 40),
    make=st.sampled_from(RULES),
    scale=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
)
def test_blocks_stop_where_single_permutations_do(
    seed: int, players: int, batch: int, make: Callable[[], Rule], scale: float
) -> None:
    rng = np.random.default_rng(seed)
    drawn = rng.integers(-1, 2, players) + scale * rng.normal(size=(60, players))  # some are worth exactly nothing
    rule = make() | MaxPermutations(57)
    expected, reason = one_by_one(drawn, rule)
    averaging = Averaging(Shuffle(players, 0), players, rule, Tally(), batch=batch)
    taken = 0
    while averaging.stopped is None:
        size = len(averaging.orders())
        averaging.add(drawn[taken : taken + size])
        taken += size
    assert (averaging.count, averaging.stopped) == (expected.count, reason)
    np.testing.assert_allclose(averaging.mean, expected.mean, rtol=1e-12, atol=1e-12 * max(scale, 1))
    np.testing.assert_allclose(averaging.standard_errors, expected.errors, rtol=1e-6, atol=1e-9 * max(scale, 1))


def test_a_permutation_depends_on_its_seed_and_number_alone() -> None:
    orders = np.stack([Shuffle(6, 3)(t) for t in range(300)])
    np.testing.assert_array_equal(orders[::-1], [Shuffle(6, 3)(t) for t in reversed(range(300))])
    assert (np.sort(orders, axis=1) == np.arange(6)).all() and len(np.unique(orders, axis=0)) > 200
    assert (orders[:128] != orders[128:256]).any()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), players=st.integers(1, 7), truncation=st.sampled_from([None, 0.2]))
def test_no_coalition_is_worked_out_twice(seed: int, players: int, truncation: float | None) -> None:
    weights = np.random.default_rng(seed).normal(size=players)
    asked: set[bytes] = set()

    def worth(coalitions: np.ndarray) -> Vector:
        keys = [row.tobytes() for row in coalitions]
        assert len(set(keys)) == len(keys) and not asked & set(keys), "worked out twice"
        asked.update(keys)
        return np.sin(coalitions @ weights)

    game = Game(names(players), worth)
    result = shapley_monte_carlo(game, MaxPermutations(9), seed, truncation=truncation, batch=4)
    assert game.tally.utility_evaluations == result.cost.utility_evaluations == len(asked)
