"""Exact methods: known games, the definition, and the axioms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from databazaar import BazaarError
from databazaar.valuation import Game, leave_one_out_game, shapley_exact
from valuation_games import Known, known_games, names, shapley_by_definition, table_game

numbers = st.floats(-1e3, 1e3, allow_nan=False)
tables = st.integers(1, 5).flatmap(lambda n: arrays(np.float64, 2**n, elements=numbers))


@pytest.mark.parametrize("known", known_games(), ids=lambda known: known.name)
def test_exact_gives_the_known_answer(known: Known) -> None:
    result = shapley_exact(known.game)
    np.testing.assert_allclose(result.values, known.values, atol=1e-12)
    assert (result.standard_errors == 0).all()
    assert result.cost.utility_evaluations == 2 ** len(known.values)


@given(tables)
def test_exact_equals_the_definition(table: np.ndarray) -> None:
    np.testing.assert_allclose(shapley_exact(table_game(table)).values, shapley_by_definition(table), atol=1e-9)


@given(tables)
def test_efficiency(table: np.ndarray) -> None:
    assert shapley_exact(table_game(table)).values.sum() == pytest.approx(table[-1] - table[0], abs=1e-8)


@given(tables, st.data())
def test_symmetry(table: np.ndarray, data: st.DataObject) -> None:
    """Players that can be exchanged in every coalition are worth the same."""
    n = len(table).bit_length() - 1
    i, j = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    codes = np.arange(2**n)
    swapped = codes & ~(1 << i | 1 << j) | (codes >> i & 1) << j | (codes >> j & 1) << i
    symmetric = (table + table[swapped]) / 2
    values = shapley_exact(table_game(symmetric)).values
    assert values[i] == pytest.approx(values[j], abs=1e-9)


@given(tables, st.data())
def test_null_player(table: np.ndarray, data: st.DataObject) -> None:
    n = len(table).bit_length() - 1
    i = data.draw(st.integers(0, n - 1))
    idle = table[np.arange(2**n) & ~(1 << i)]
    assert shapley_exact(table_game(idle)).values[i] == 0
    assert leave_one_out_game(table_game(idle)).values[i] == 0


@given(st.integers(1, 4), st.data(), numbers, numbers)
def test_linearity(n: int, data: st.DataObject, a: float, b: float) -> None:
    one, two = (data.draw(arrays(np.float64, 2**n, elements=st.floats(-10, 10))) for _ in range(2))
    both = shapley_exact(table_game(a * one + b * two)).values
    parts = a * shapley_exact(table_game(one)).values + b * shapley_exact(table_game(two)).values
    np.testing.assert_allclose(both, parts, atol=1e-8)


@given(tables)
def test_leave_one_out_is_what_the_whole_loses(table: np.ndarray) -> None:
    n = len(table).bit_length() - 1
    expected = [table[-1] - table[(2**n - 1) & ~(1 << i)] for i in range(n)]
    np.testing.assert_array_equal(leave_one_out_game(table_game(table)).values, expected)


def test_a_game_never_works_out_a_coalition_twice() -> None:
    asked: list[bytes] = []

    def worth(coalitions: np.ndarray) -> np.ndarray:
        assert len(coalitions) <= 3
        asked.extend(row.tobytes() for row in coalitions)
        return np.asarray(coalitions.sum(1).astype(float))

    game = Game(names(3), worth, batch=3)
    rows = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1], [0, 0, 0]], dtype=bool)
    np.testing.assert_array_equal(game.value(rows), [1, 1, 2, 3, 0])
    np.testing.assert_array_equal(game.value(rows[::-1]), [0, 3, 2, 1, 1])
    assert len(asked) == len(set(asked)) == game.tally.utility_evaluations == 4


@settings(deadline=None)
@given(st.integers(13, 14))
def test_exact_holds_for_larger_games(n: int) -> None:
    weights = np.arange(1.0, n + 1)
    np.testing.assert_allclose(shapley_exact(Game(names(n), lambda s: s @ weights)).values, weights, rtol=1e-9)


@pytest.mark.parametrize("n", [3, 17])
def test_what_a_game_knows_already_is_not_asked_again(n: int) -> None:
    """Up to sixteen players it remembers in a table, beyond that in a dictionary."""
    weights, calls = np.arange(1.0, n + 1), []

    def worth(coalitions: np.ndarray) -> np.ndarray:
        calls.append(len(coalitions))
        return np.asarray(coalitions @ weights)

    game = Game(names(n), worth, batch=2**n)
    assert game.value(game.everybody).tolist() == [weights.sum()]
    np.testing.assert_allclose(shapley_exact(game).values, weights)
    assert calls == [1, 2**n - 1] and game.tally.utility_evaluations == 2**n


def test_worths_from_elsewhere_are_known() -> None:
    game = Game(names(2), lambda s: s.sum(1) * 10.0)
    game.know(np.array([[True, False]]), np.array([3.0]))
    assert game.value(np.array([[True, False], [False, True]])).tolist() == [3.0, 10.0]
    assert game.tally.utility_evaluations == 1


def test_too_many_players_and_worths_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(BazaarError, match="at most 20"):
        shapley_exact(Game(names(21), lambda s: s.sum(1)))
    with pytest.raises(BazaarError, match="coalition of p1 has no finite utility"):
        shapley_exact(Game(names(2), lambda s: np.where(s[:, 1], np.nan, 0.0)))
    with pytest.raises(BazaarError, match=r"one number per coalition, not of shape \(4, 2\)"):
        shapley_exact(Game(names(2), lambda s: s.astype(float)))
    with pytest.raises(BazaarError, match="at least one player"):
        Game([], lambda s: s.sum(1))
