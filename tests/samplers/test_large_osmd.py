"""OSMD over a tree against OSMD over a vector: the same chances, the same draws, the same step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.roster import Purse, Roster
from databazaar.samplers import OSMD, sum_tree
from databazaar.samplers import osmd as module
from databazaar.samplers.check import check_sampler
from databazaar.samplers.large_osmd import Chances
from databazaar.samplers.protocol import State, Vector


def play(n: int, alpha: float, eta: float, steps: int, seed: int, per_round: int = 5) -> tuple[float, int, int]:
    """How far the two came apart at the most, how often somebody reached the floor, and how often it left it."""
    sampler, rng = OSMD(eta=eta, alpha=alpha), np.random.default_rng(seed)
    purse = Purse(10**9, np.ones(n, dtype=np.int64))
    dense: Vector = np.full(n, -np.log(n))
    tree: State = Chances(n, alpha)
    worst, reached, left = 0.0, 0, 0
    for step in range(steps):
        stream = int(rng.integers(2**32))
        draws = sampler.draw(dense, np.random.default_rng(stream), per_round, purse)
        np.testing.assert_array_equal(sampler.draw(tree, np.random.default_rng(stream), per_round, purse), draws)
        gains = rng.integers(-2, 3, n)[draws] / 2  # of few values, so that there are ties
        if step % 50 == 0:
            gains = gains * 10.0 ** rng.integers(-3, 7)  # now and then something out of all proportion
        before = np.exp(dense) <= alpha / n * (1 + 1e-12)
        dense, tree = sampler.update(dense, draws, gains, purse), sampler.update(tree, draws, gains, purse)
        p, q = np.exp(dense), sampler.probabilities(tree, purse)
        now = p <= alpha / n * (1 + 1e-12)
        reached, left = reached + int((now & ~before).sum()), left + int((before & ~now).sum())
        worst = max(worst, float(np.abs(p - q).max()), float((np.abs(p - q) / p).max()))
        np.testing.assert_allclose(sampler.chances(tree, draws, purse), p[draws], rtol=1e-10)
    return worst, reached, left


@pytest.mark.parametrize(
    ("n", "alpha", "eta"), [(12, 0.1, 0.05), (130, 0.3, 0.01), (700, 0.01, 0.001), (40, 0.9, 0.02)]
)
def test_ten_thousand_steps_end_where_the_vector_ends(n: int, alpha: float, eta: float) -> None:
    worst, reached, left = play(n, alpha, eta, 2_500, seed=n)
    assert worst < 1e-10
    assert reached > 50 and left > 50


def test_a_deep_tree_ends_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight levels, as one of very many providers would have them if its rows were short."""
    for name, value in {"LEAF_BITS": 2, "NODE_BITS": 1, "LEAVES": 4, "NODES": 2, "TOP": 2}.items():
        monkeypatch.setattr(sum_tree, name, value)
    worst, reached, left = play(700, 0.01, 0.001, 1_000, seed=1)
    assert worst < 1e-10
    assert reached > 50 and left > 50


@given(
    n=st.integers(2, 300),
    alpha=st.floats(1e-6, 0.999),
    eta=st.floats(1e-6, 1e3),
    seed=st.integers(0, 2**16),
    per_round=st.integers(1, 8),
)
@settings(max_examples=60, deadline=None)
def test_any_market_is_the_same_on_both(n: int, alpha: float, eta: float, seed: int, per_round: int) -> None:
    assert play(n, alpha, eta, 12, seed, per_round)[0] < 1e-10


def test_a_step_can_be_taken_twice_from_the_same_chances() -> None:
    sampler, purse = OSMD(eta=0.05, alpha=0.3), Purse(10**9, np.ones(200, dtype=np.int64))
    state: State = Chances(200, 0.3)
    for round in range(30):
        draws = sampler.draw(state, np.random.default_rng(round), 6, purse)
        gains = np.random.default_rng(1000 + round).normal(size=6)
        once = sampler.probabilities(sampler.update(state, draws, gains, purse), purse)
        after = sampler.update(state, draws, gains, purse)
        np.testing.assert_array_equal(sampler.probabilities(after, purse), once)
        state = after


def test_it_is_chosen_where_providers_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(OSMD(0.1, 0.1).init(Roster.equal(100), 10, 2), np.ndarray)
    monkeypatch.setattr(module, "LARGE", 7)
    assert isinstance(OSMD(0.1, 0.1).init(Roster.equal(7), 10, 2), Chances)
    for alpha in (0.0, 1.0):
        assert isinstance(OSMD(0.1, alpha).init(Roster.equal(7), 10, 2), np.ndarray)
    check_sampler(OSMD(eta=1.0, alpha=0.1))


def test_earlier_values_stay_what_they_were() -> None:
    """A state is a value: what was asked of it once is answered the same after any number of others."""
    rng, values = np.random.default_rng(0), [Chances(500, 0.2)]
    for _ in range(30):
        base = values[int(rng.integers(len(values)))]  # a tree of histories, not one line
        values.append(base.moved(rng.integers(0, 500, 3), rng.normal(size=3) * 400))
    seen = [value.dense().copy() for value in values]
    for place in rng.permutation(np.repeat(np.arange(len(values)), 3)).tolist():
        np.testing.assert_array_equal(values[place].dense(), seen[place])
        assert values[place].dense().sum() == pytest.approx(1, abs=1e-12)


@given(
    n=st.sampled_from([64, 300, 700, 20_000]),
    alpha=st.floats(0.01, 0.9),
    seed=st.integers(0, 2**16),
    share=st.floats(0, 1),
)
@settings(max_examples=40, deadline=None)
def test_who_cannot_be_asked_is_left_out_as_of_the_vector(n: int, alpha: float, seed: int, share: float) -> None:
    """Few are too dear or used up; which they are changes all the time."""
    sampler, rng = OSMD(eta=0.1 / n, alpha=alpha), np.random.default_rng(seed)
    dense: Vector = np.full(n, -np.log(n))
    tree: State = Chances(n, alpha)
    for _ in range(8):
        few = int(share * min(module.FEW, n // 64))
        quotes, left = np.ones(n, dtype=np.int64), np.full(n, 3)
        who = rng.permutation(n)[:few]
        quotes[who[::2]], left[who[1::2]] = 9, 0
        purse = Purse(10**9, quotes, left, most_per_access=8)
        stream = int(rng.integers(2**32))
        draws = sampler.draw(dense, np.random.default_rng(stream), 5, purse)
        without = _only_the_tree(sampler)
        found = without.draw(tree, np.random.default_rng(stream), 5, purse)
        np.testing.assert_array_equal(found, draws)
        assert purse.available[draws].all()
        chances = without.chances(tree, draws, purse)
        np.testing.assert_allclose(chances, sampler.probabilities(dense, purse)[draws], rtol=1e-9)
        gains = rng.integers(-2, 3, 5) / 2
        dense, tree = sampler.update(dense, draws, gains, purse), without.update(tree, draws, gains, purse)
        np.testing.assert_allclose(np.exp(dense), tree.dense(), rtol=1e-9)


def _only_the_tree(sampler: OSMD) -> OSMD:
    """The same sampler, which must not work out everybody's chances."""

    class Frugal(OSMD):
        def probabilities(self, state: State, purse: Purse) -> Vector:
            raise AssertionError("everybody was looked at")

    return Frugal(sampler.eta, sampler.alpha)


def test_where_next_to_nothing_is_left_everybody_is_looked_at() -> None:
    n = 700
    sampler, state = OSMD(eta=1.0, alpha=0.001), Chances(n, 0.001)
    for _ in range(60):
        state = state.moved(np.array([5]), np.array([3.0]))
    quotes = np.ones(n, dtype=np.int64)
    quotes[5] = 9
    purse = Purse(8, quotes)
    assert state.left_without(purse.barred) is None and state.draw_without(np.array([0.5]), purse.barred) is None
    drawn = sampler.draw(state, np.random.default_rng(0), 50, purse)
    assert 5 not in drawn and len(set(drawn.tolist())) > 30
    assert sampler.chances(state, drawn, purse).sum() == pytest.approx(50 / (n - 1), rel=1e-6)
