"""The grower: as a slow one does it, level with constraints, and the same to the bit however rows are divided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.errors import BazaarError
from databazaar.learning.trees.bins import Bins, columns_of
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.grower import grow
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.histograms import Grid, LocalRows, Together
from databazaar.learning.trees.objectives import Objective
from databazaar.learning.trees.tree import Grown
from slow_trees import SlowTree, rounded, values
from tree_rounds import grown_round, table, trained

GROWTHS = st.builds(
    Growth,
    leaves=st.integers(2, 9),
    depth=st.integers(0, 4),
    min_rows=st.integers(1, 8),
    min_hessian=st.sampled_from([1e-3, 1.0]),
    l2=st.sampled_from([0.0, 1.0, 5.0]),
    monotone=st.sampled_from([(), (1, 0, 0, 0), (1, -1, 0, 0)]),
    category_rows=st.integers(1, 12),
    few_categories=st.integers(1, 4),
)


def same(one: Grown, other: Grown) -> bool:
    """Two trees are the same to the bit."""
    here, there = one.tree.arrays(), other.tree.arrays()
    return all(here[name].tobytes() == there[name].tobytes() for name in here)


@settings(max_examples=60)
@given(GROWTHS, st.integers(5, 60), st.integers(0, 10_000), st.booleans(), st.sampled_from([0.0, 0.3]))
def test_the_tree_is_that_of_a_slow_grower(growth: Growth, rows: int, seed: int, eager: bool, missing: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, (rows, 4)).astype(float)
    x[rng.random(x.shape) < missing] = np.nan
    bins = Bins.of(x, categorical=[2, 3])
    binned = bins.apply(x)
    g, h, grid = rounded(rng.normal(size=rows), rng.random(rows) + 0.1)
    fast = grow(LocalRows(columns_of(binned), g, h, grid, bins.width), growth, bins.categorical, eager=eager).tree
    slow = SlowTree(binned, g, h, growth, bins.categorical)
    root = slow.grown()
    assert (fast.value[fast.leaf_of(binned)] == values(slow, root)).all()
    if root.halves:
        assert (fast.gain[0], fast.feature[0]) == (root.gain, root.feature)
    assert fast.leaf_sums[:, 2].sum() == rows
    assert (fast.leaf_sums[:, 2] >= min(growth.min_rows, rows)).all()


@settings(max_examples=40)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=6), st.integers(0, 1000), st.data())
def test_parties_may_come_in_any_order_and_be_divided(sizes: list[int], seed: int, data: st.DataObject) -> None:
    """Sums are exact: order, division and who adds up make no bit of difference; parts move with their party."""
    rows = sum(sizes) + 1
    given_table = table("binary", rows, seed)
    bins = Bins.of(given_table.x, given_table.categorical)
    binned = bins.apply(given_table.x)
    rng = np.random.default_rng(seed)
    g, h = rng.normal(size=rows), rng.random(rows)
    grid = Grid.of(float(np.abs(g).max()), 1.0, rows)
    growth = Growth(leaves=8, min_rows=2)
    whole = grow(LocalRows(columns_of(binned), g, h, grid, bins.width), growth, bins.categorical)
    parties = [*np.split(np.arange(rows), np.cumsum(sizes))]
    order = data.draw(st.permutations(range(len(parties))))
    there = [
        LocalRows(columns_of(binned[parties[place]]), g[parties[place]], h[parties[place]], grid, bins.width)
        for place in order
    ]
    apart = grow(Together(there), growth, bins.categorical, eager=True)
    assert same(whole, apart)
    joined = np.concatenate([parties[place] for place in order])
    together = LocalRows(
        columns_of(binned[joined]), g[joined], h[joined], grid, bins.width, [len(parties[place]) for place in order]
    )
    here = grow(together, growth, bins.categorical)
    assert same(whole, here) and here.parts.tobytes() == apart.parts.tobytes()
    assert np.allclose(here.parts.sum(0), whole.tree.value, rtol=1e-12, atol=1e-15)


def test_sums_of_more_rows_than_fit_a_block_are_exact() -> None:
    """A block counts its rows in 16 bits; the root has three blocks here."""
    rng = np.random.default_rng(0)
    rows, width = 150_000, 20
    binned = rng.integers(0, width, (rows, 3)).astype(np.uint8)
    g, h, grid = rounded(rng.normal(size=rows), rng.random(rows))
    source = LocalRows(columns_of(binned), g, h, grid, width)
    for feature, sums in enumerate(source.root().transpose(1, 0, 2)):
        expected = [np.bincount(binned[:, feature], weight, width) for weight in (g, h, np.ones(rows))]
        assert (sums == expected).all()


def test_the_grid_holds_what_is_summed() -> None:
    grid = Grid.of(3.0, 0.25, 1_000_000)
    assert grid.gradient * 2**53 >= 3.0 * 1_000_000 and grid.gradient < 1e-8
    assert Grid.of(0.0, 0.0, 5).round(np.zeros(5), np.zeros(5))[0].tolist() == [0.0] * 5
    with pytest.raises(BazaarError, match="not a finite number"):
        Grid.of(float("nan"), 1.0, 5)


def test_leaves_without_limit_of_depth_are_best_first() -> None:
    given_table = table("squared", 2_000)
    ensemble = trained("squared", given_table, 3, Growth(leaves=12))
    deep = trained("squared", given_table, 3, Growth(leaves=12, depth=2))
    assert [tree.leaves for (tree,) in ensemble.rounds] == [12] * 3
    assert [tree.leaves for (tree,) in deep.rounds] == [4] * 3
    assert all((np.diff(tree.gain[:1]) <= 0).all() for (tree,) in ensemble.rounds)


@pytest.mark.parametrize("sign", [1, -1])
def test_monotone_constraints_hold(sign: int) -> None:
    """Whatever else a row has, the answer never moves the wrong way along a monotone feature."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3_000, 3))
    x[rng.random(3_000) < 0.1, 1] = np.nan
    y = sign * (np.sin(3 * x[:, 0]) + x[:, 0] / 2) + np.nan_to_num(x[:, 1]) * x[:, 2] + rng.normal(size=3_000) / 5
    loss = Objective("squared")
    bins = Bins.of(x)
    free = bound = Ensemble(bins, loss, loss.start(y))
    for _ in range(30):
        bound = bound.appended([each.tree for each in grown_round(bound, x, y, Growth(monotone=(sign, 0, 0)))])
        free = free.appended([each.tree for each in grown_round(free, x, y, Growth())])
    line = np.linspace(-3, 3, 200)
    steps, free_steps = [], []
    for at in range(50):
        rows = np.tile(x[at], (200, 1))
        rows[:, 0] = line
        steps.append(sign * np.diff(bound.predict(rows)))
        free_steps.append(sign * np.diff(free.predict(rows)))
    assert np.min(steps) >= 0 and np.max(steps) > 0.05
    assert np.min(free_steps) < -0.1
    assert float(loss.loss(bound.scores(bins.apply(x)), y).mean()) < 0.8 * np.var(y)


def test_parts_add_up_under_a_constraint() -> None:
    given_table = table("squared", 500, missing=0)
    bins, loss = Bins.of(given_table.x, (2, 3)), Objective("squared")
    start = Ensemble(bins, loss, loss.start(given_table.y))
    growth = Growth(monotone=(-1, 1, 0, 0), min_rows=5)
    (grown,) = grown_round(start, given_table.x, given_table.y, growth, [100, 0, 400])
    free = grown.tree.leaf_sums[:, 0] / (grown.tree.leaf_sums[:, 1] + growth.l2) * growth.rate
    assert not np.allclose(free, grown.tree.value)
    assert np.allclose(grown.parts.sum(0), grown.tree.value, rtol=1e-12, atol=1e-15)
    assert not grown.parts[1].any()


@pytest.mark.parametrize("side", ["low", "high"])
def test_missing_values_go_to_the_better_side(side: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((400, 1))
    y = (x[:, 0] > 0.5).astype(float)
    gone = rng.random(400) < 0.3
    x[gone], y[gone] = np.nan, 0.0 if side == "low" else 1.0
    loss = Objective("squared")
    ensemble = Ensemble(Bins.of(x), loss, loss.start(y))
    (grown,) = grown_round(ensemble, x, y, Growth(leaves=2, rate=1.0))
    low, high, missing = ensemble.appended([grown.tree]).predict([[0.1], [0.9], [np.nan]])
    assert missing == (low if side == "low" else high) and low < 0.1 and high > 0.9


def test_a_category_beside_missing_ones_and_unknown_ones() -> None:
    """Codes that the buyer does not have are treated as missing ones are, on either side."""
    codes = np.tile([0.0, 1.0, 2.0, np.nan], 100)[:, None]
    y = np.tile([1.0, 0.0, 1.0, 1.0], 100)
    loss = Objective("squared")
    ensemble = Ensemble(Bins.of(codes, [0]), loss, loss.start(y))
    (grown,) = grown_round(ensemble, codes, y, Growth(leaves=2, rate=1.0, category_l2=0.0))
    answers = ensemble.appended([grown.tree]).predict([[0.0], [1.0], [2.0], [np.nan], [7.0]])
    assert (answers.round(1) == [1.0, 0.0, 1.0, 1.0, 1.0]).all()


def test_no_split_gives_one_leaf() -> None:
    loss = Objective("squared")
    ensemble = Ensemble(Bins.of(np.ones((50, 2))), loss, np.zeros(1))
    (grown,) = grown_round(ensemble, np.ones((50, 2)), np.full(50, 2.0), Growth(rate=0.5), [20, 30])
    assert grown.tree.leaves == 1 and grown.tree.value.tolist() == [0.5 * 100 / 51]
    assert np.allclose(grown.parts[:, 0], [0.5 * 40 / 51, 0.5 * 60 / 51], rtol=1e-15)
    assert ensemble.appended([grown.tree]).predict([[1.0, 1.0]]).tolist() == grown.tree.value.tolist()


@pytest.mark.parametrize(
    ("settings_of", "words"),
    [
        ({"leaves": 1}, "leaves is 1"),
        ({"rate": 0.0}, "above 0"),
        ({"min_rows": 0}, "min_rows"),
        ({"monotone": (2,)}, "1, -1 or 0"),
        ({"l2": -1.0}, "l2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings_of: dict[str, float], words: str) -> None:
    with pytest.raises(BazaarError, match=words):
        Growth(**settings_of)  # type: ignore[arg-type]


@pytest.mark.parametrize(("monotone", "words"), [((1,), "1 numbers for 4"), ((0, 0, 1, 0), "category cannot")])
def test_monotone_must_fit_the_features(monotone: tuple[int, ...], words: str) -> None:
    with pytest.raises(BazaarError, match=words):
        trained("squared", table("squared", 50), 1, Growth(monotone=monotone))
