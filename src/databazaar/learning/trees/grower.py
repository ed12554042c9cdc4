"""Grows a tree from a source of sums, the best split first.

Whether a leaf is among the best is known only when its rivals' gains are. Waiting for each split would ask a distant
source once a leaf. So nodes are split in waves: all that would be split if their children brought nothing better. Some
of these are not in the tree in the end. The tree is the same as if splits had been made one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.histograms import ROOT, Source, Split
from databazaar.learning.trees.splits import Candidate, H, N, Search
from databazaar.learning.trees.tree import Grown, Tree

Numbers = NDArray[np.float64]


@dataclass
class _Node:
    number: int
    total: Numbers
    bounds: tuple[float, float]
    depth: int
    sums: Numbers
    """When it is split, those of its larger child take their place."""
    best: Candidate | None
    children: tuple[_Node, _Node] | None = field(default=None)


def grow(source: Source, growth: Growth, categorical: NDArray[np.bool_], *, eager: bool = False) -> Grown:
    """One tree on the rows of a source; `categorical` says of each feature whether it is a category.

    `eager` makes the fewest waves, for a source far away; else a wave is half as many splits, of which few are in vain.
    """
    sums = source.root()
    search = Search(growth, categorical, sums)
    free = (-np.inf, np.inf)
    total = sums[:, 0].sum(-1)
    root = _Node(ROOT, total, free, 0, sums, search.best([sums], total[None], [free])[0])
    count = 1
    while True:
        made = _best_first(root, growth.leaves)
        wave = [node for node in made if node.children is None]
        if not wave:
            return _grown(source, growth, search, root, made)
        wave = wave if eager else wave[: (len(wave) + 1) // 2]
        _split(wave, source, growth, search, count)
        count += 2 * len(wave)


def _best_first(root: _Node, leaves: int) -> list[_Node]:
    """Which nodes are split, in order, as far as their children are known."""
    made: list[_Node] = []
    met = 0
    waiting: list[tuple[float, int, _Node]] = []
    _wait(waiting, root, met)
    while waiting and len(made) < leaves - 1:
        node = heapq.heappop(waiting)[-1]
        made.append(node)
        for child in node.children or ():
            met += 1
            _wait(waiting, child, met)
    return made


def _wait(waiting: list[tuple[float, int, _Node]], node: _Node, met: int) -> None:
    if node.best is not None:
        heapq.heappush(waiting, (-node.best.gain, met, node))


def _split(wave: Sequence[_Node], source: Source, growth: Growth, search: Search, count: int) -> None:
    """Gives the nodes children. Only the smaller child's sums are asked for: the other's are the difference."""
    splits = [_as_split(node, count + 2 * place) for place, node in enumerate(wave)]
    smaller = [int(right[N] < left[N]) for left, right in (_found(node).sums for node in wave)]
    asked = source.divide(splits, [split.children[side] for split, side in zip(splits, smaller, strict=True)])
    sums: list[Numbers] = []
    for node, side, of_smaller in zip(wave, smaller, asked, strict=True):
        node.sums -= of_smaller
        sums += (node.sums, of_smaller) if side else (of_smaller, node.sums)
    totals = np.concatenate([np.stack(_found(node).sums) for node in wave])
    bounds = [each for node in wave for each in search.child_bounds(_found(node), node.bounds)]
    best = search.best(sums, totals, bounds)
    for place, (node, split) in enumerate(zip(wave, splits, strict=True)):
        depth = node.depth + 1
        ends = depth == growth.depth
        left, right = (
            _Node(number, totals[at], bounds[at], depth, sums[at], None if ends else best[at])
            for at, number in enumerate(split.children, 2 * place)
        )
        node.children = (left, right)


def _as_split(node: _Node, number: int) -> Split:
    best = _found(node)
    return Split(node.number, best.feature, best.bin, best.left, (number, number + 1))


def _found(node: _Node) -> Candidate:
    assert node.best is not None
    return node.best


def _grown(source: Source, growth: Growth, search: Search, root: _Node, made: Sequence[_Node]) -> Grown:
    place_of = {node.number: place for place, node in enumerate(made)}
    leaves: list[_Node] = []
    children = np.empty((len(made), 2), dtype=np.int32)
    for place, node in enumerate(made):
        for side, child in enumerate(node.children or ()):
            if child.number in place_of:
                children[place, side] = place_of[child.number]
            else:
                leaves.append(child)
                children[place, side] = -len(leaves)
    leaves = leaves or [root]
    splits = [_found(node) for node in made]
    values = np.array([search.value(leaf.total, leaf.bounds) for leaf in leaves])
    tree = Tree(
        np.array([split.feature for split in splits], dtype=np.int32),
        np.array([split.bin for split in splits], dtype=np.int32),
        np.packbits(
            np.array([split.left for split in splits], dtype=np.bool_).reshape(-1, 256), axis=1, bitorder="little"
        ),
        children,
        np.array([split.gain for split in splits]),
        np.array([node.total for node in made]).reshape(-1, 3),
        np.array([leaf.total for leaf in leaves]),
        growth.rate * values,
    )
    numbers = tuple(leaf.number for leaf in leaves)
    each = source.totals(numbers)
    counts = each[..., N].sum(0)
    return Grown(tree, _parts(each[..., 0], each[..., N], counts, tree.leaf_sums, values, growth), numbers)


def row_parts(tree: Tree, leaves: NDArray[np.intp], gradients: Numbers, counts: Numbers, growth: Growth) -> Numbers:
    """The part of each row, with its gradient and in its leaf, of the leaf's value; `counts` are the rows of a leaf."""
    sums, values = tree.leaf_sums[leaves], tree.value[leaves] / growth.rate
    return _parts(gradients, 1.0, counts[leaves], sums, values, growth)


def _parts(
    gradients: Numbers, rows: Numbers | float, counts: Numbers, sums: Numbers, values: Numbers, growth: Growth
) -> Numbers:
    """Each party's part of the leaves' values [parties, leaves]: rate · G of the party / (H + l2 of all).

    What a monotone constraint takes from a leaf it takes from each party by its rows there.
    """
    weight = sums[:, H] + growth.l2
    free = sums[:, 0] / weight
    taken = np.where(values == free, 0.0, values - free)
    share = rows / np.maximum(counts, 1)
    parts: Numbers = growth.rate * (gradients / weight + taken * share)
    return parts
