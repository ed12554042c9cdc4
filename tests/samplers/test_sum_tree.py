"""The tree of sums against a plain array of the same numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from databazaar.samplers import sum_tree
from databazaar.samplers.sum_tree import LEAF_BITS, LEAVES, NODE_BITS, NODES, TOP, SumTree, Vector, firsts

SIZES = st.sampled_from([1, 2, 63, LEAVES, LEAVES + 1, 3 * LEAVES, LEAVES * NODES, LEAVES * NODES + 5])
NUMBERS = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 1e-3, 7.25])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.lists(st.tuples(st.floats(0, 0.999), NUMBERS), min_size=1, max_size=6)),
        st.tuples(st.just("raise"), NUMBERS),
        st.tuples(st.just("multiply"), st.sampled_from([-3, 2])),
    ),
    max_size=25,
)


def check(tree: SumTree, plain: Vector) -> None:
    apart = np.unique(plain)
    low, count, second = tree.lowest
    assert (low, count) == (apart[0], (plain == apart[0]).sum())
    assert second == apart[1] if len(apart) > 1 else second > 1e300
    assert tree.total == pytest.approx(plain.sum(), rel=1e-13)
    assert tree.above_lowest == pytest.approx(plain[plain > low].sum(), rel=1e-13)
    np.testing.assert_array_equal(tree.dense(), plain)
    places = np.linspace(0, len(plain) - 1, 7).astype(np.int64)
    np.testing.assert_array_equal(tree.get(places), plain[places])
    ladder = plain.cumsum()
    np.testing.assert_allclose(tree.before(places), ladder[places] - plain[places], rtol=1e-12, atol=1e-12 * ladder[-1])
    targets = np.array([0.0, 0.3, 0.7, 0.9999]) * ladder[-1] + 1e-7
    found, there, _ = tree.find(targets)
    np.testing.assert_array_equal(found, np.minimum(ladder.searchsorted(targets, side="right"), len(plain) - 1))
    np.testing.assert_array_equal(there, plain[found])


@pytest.fixture(
    params=[(LEAF_BITS, NODE_BITS, TOP), (LEAF_BITS, NODE_BITS, 4), (2, 1, 2)], ids=["", "short top", "deep"]
)
def shape(request: pytest.FixtureRequest) -> Iterator[None]:
    """Trees of two levels, as most are; of three, as those of more than 262,144 numbers; and of up to fourteen."""
    leaf_bits, node_bits, top = request.param
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"LEAF_BITS": leaf_bits, "NODE_BITS": node_bits, "TOP": top}.items():
            patch.setattr(sum_tree, name, value)
        patch.setattr(sum_tree, "LEAVES", 2**leaf_bits)
        patch.setattr(sum_tree, "NODES", 2**node_bits)
        yield


@pytest.mark.usefixtures("shape")
@given(n=SIZES, steps=STEPS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_is_an_array_whose_sums_are_known(n: int, steps: list[tuple[str, object]]) -> None:
    tree, plain = SumTree(n, 1.0), np.ones(n)
    for kind, given_ in steps:
        if isinstance(given_, list):
            chosen = {int(share * n): value for share, value in given_}
            places = np.array(sorted(chosen))
            plain[places] = [chosen[place] for place in places.tolist()]
            tree.set(places, plain[places])
        elif kind == "raise":
            assert isinstance(given_, float)
            np.maximum(plain, given_, out=plain)
            tree.raise_to(given_)
        else:
            assert isinstance(given_, int)
            plain *= 2.0**given_
            tree.multiply(given_)
        check(tree, plain)


@pytest.mark.usefixtures("shape")
@pytest.mark.parametrize("n", [LEAVES * 4, LEAVES * 4 + 1, LEAVES * 5 - 1])
def test_what_lies_beyond_all_is_found_at_the_last(n: int) -> None:
    """Rounding may lead there: a share of the whole that is next to one."""
    tree = SumTree(n, 1.0)
    tree.set(np.array([n - 2]), np.array([3.0]))
    places, there, way = tree.find(np.array([0.0, tree.total, 2 * tree.total]))
    assert places.tolist() == [0, n - 1, n - 1] and there.tolist() == [1.0, 1.0, 1.0]
    tree.set(places[:2], np.array([2.0, 5.0]), [step.only(np.array([0, 1])) for step in way])
    assert tree.total == n + 2 + 1 + 4 and tree.get(np.array([0, n - 1])).tolist() == [2.0, 5.0]


@pytest.mark.usefixtures("shape")
def test_every_change_can_be_taken_back_and_made_again() -> None:
    rng = np.random.default_rng(0)
    tree, seen, changes = SumTree(LEAVES * NODES + 9, 1.0), [], []
    for step in range(40):
        seen.append(tree.dense().copy())
        places = np.unique(rng.integers(0, tree.n, 5))
        tree.set(places, rng.random(len(places)) * 4)
        tree.raise_to(float(rng.random() * 2))
        if step % 7 == 0:
            tree.multiply(-2)
        changes.append(tree.changes())
    last, again = tree.dense().copy(), []
    for before, change in zip(reversed(seen), reversed(changes), strict=True):
        again.append(tree.undo(change))
        check(tree, before)
    for change in reversed(again):
        tree.undo(change)
    check(tree, last)


@pytest.mark.usefixtures("shape")
def test_setting_on_the_way_that_was_found_is_setting_at_the_places() -> None:
    rng, n = np.random.default_rng(2), 3 * LEAVES + 5
    on_the_way, at_places = SumTree(n, 1.0), SumTree(n, 1.0)
    for step in range(60):
        places, there, way = on_the_way.find(np.sort(rng.random(8)) * on_the_way.total)
        some = firsts(places[1:] == places[:-1])
        values = there[some] * rng.random(len(some)) * 3
        on_the_way.set(places[some], values, [each.only(some) for each in way])
        at_places.set(places[some], values)
        level = float(rng.random())
        for tree in (on_the_way, at_places):
            tree.raise_to(level)
            if step % 9 == 0:
                tree.multiply(-1)
        np.testing.assert_array_equal(on_the_way.dense(), at_places.dense())
        assert (on_the_way.total, on_the_way.lowest) == (at_places.total, at_places.lowest)


def test_a_step_touches_what_it_sets_and_little_else() -> None:
    """Every change of a step is a few rows, however many numbers there are: nothing is proportional to n."""
    rng, tree = np.random.default_rng(1), SumTree(LEAVES * NODES**2, 1.0)
    rows = []
    for _ in range(200):
        places = np.unique(rng.integers(0, tree.n, 4))
        tree.set(places, rng.random(len(places)) * 4)
        tree.raise_to(tree.lowest[0] * 1.01)
        rows.append(sum(len(change.rows) for change in tree.changes()))
    assert np.mean(rows) < 4 * 4 * 8
