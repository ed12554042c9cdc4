"""Loops for Numba and array operations: the same to the bit. Numba changes the time and nothing else."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.learning.trees import kernels
from databazaar.learning.trees.bins import Bins, columns_of
from databazaar.learning.trees.grower import grow
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.histograms import LocalRows
from databazaar.learning.trees.kernels import Kernels, add_up, best_number, divide, find_leaves
from databazaar.learning.trees.tree import Tree
from slow_trees import rounded
from tree_rounds import KINDS, objective, table, trained

PLAIN = Kernels(add_up, divide, best_number, find_leaves)


@contextmanager
def loops(found: Kernels | None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compiled", lambda: found)
        yield


@settings(max_examples=60)
@given(
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([(), (0, 2)]),
    st.builds(Growth, leaves=st.integers(2, 9), min_rows=st.integers(1, 5), l2=st.sampled_from([0.0, 1.0])),
    st.booleans(),
)
def test_a_tree_is_the_same_by_either(
    rows: int, features: int, seed: int, missing: float, categorical: tuple[int, ...], growth: Growth, half: bool
) -> None:
    """Also where only the first `half` of the rows counts."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, (rows, features)).astype(float)
    x[rng.random(x.shape) < missing] = np.nan
    bins = Bins.of(x, categorical=[each for each in categorical if each < features])
    binned = bins.apply(x)
    g, h, grid = rounded(rng.integers(-3, 4, rows).astype(float), rng.integers(1, 3, rows).astype(float))
    found = []
    for each in (None, PLAIN, kernels.compiled()):
        with loops(each):
            sizes = [rows - rows // 2, rows // 2]
            source = LocalRows(columns_of(binned), g, h, grid, bins.width, sizes, counted=sizes[0] if half else None)
            grown = grow(source, growth, bins.categorical)
            leaves = grown.tree.leaf_of(binned)
            counted = np.bincount(leaves[: sizes[0] if half else rows], minlength=grown.tree.leaves)
            assert grown.tree.leaf_sums[:, 2].tolist() == counted.tolist()
            assert grown.tree.leaves == 1 or counted.min() >= growth.min_rows
            found.append([grown.parts.tobytes(), leaves.tolist(), *(a.tobytes() for a in grown.tree.arrays().values())])
            at = [sorted(source.rows(node).tolist()) for node in grown.nodes]
            assert at == [np.flatnonzero(leaves == leaf).tolist() for leaf in range(grown.tree.leaves)]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", KINDS)
def test_an_ensemble_is_the_same_by_either(kind: str) -> None:
    given_table = table(kind, 5_000)
    digests = []
    for each in (None, kernels.compiled()):
        with loops(each):
            digests.append(trained(kind, given_table, 3).stored.hash)
    assert digests[0] == digests[1]
    assert objective(kind, given_table.y).kind == kind


def test_numba_is_what_compiles() -> None:
    found = kernels.compiled()
    assert found is not None and isinstance(found.add_up, numba.core.dispatcher.Dispatcher)


def test_without_numba_arrays_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert kernels.compiled.__wrapped__() is None


def test_a_folder_that_cannot_be_written_to_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba refuses to cache where it finds no place."""
    asked: list[bool] = []

    def njit(function: object, *, cache: bool = False, **_: object) -> object:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    monkeypatch.setattr(numba, "njit", njit)
    assert kernels.compiled.__wrapped__() == PLAIN
    assert asked == [True, False] * 4


def test_few_rows_and_many_find_the_same_leaves() -> None:
    given_table = table("squared", 9_000)
    with loops(None):
        ensemble = trained("squared", given_table, 1)
        tree: Tree = ensemble.rounds[0][0]
        binned = ensemble.bins.apply(given_table.x)
        assert (tree.leaf_of(binned)[:100] == tree.leaf_of(binned[:100])).all()
        assert (tree.leaf_of(binned)[-100:] == tree.leaf_of(binned[-100:])).all()


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_make_no_bit_of_difference(threads: int) -> None:
    given_table = table("binary", 20_000)
    digests = []
    with loops(None):
        for number in (1, threads):
            before = torch.get_num_threads()
            torch.set_num_threads(number)
            try:
                digests.append(trained("binary", given_table, 2).stored.hash)
            finally:
                torch.set_num_threads(before)
    assert digests[0] == digests[1]
