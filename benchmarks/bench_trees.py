"""Boosted trees beside LightGBM: the same rows, the same settings, one thread each.

    python benchmarks/bench_trees.py loss           # on rows that neither has seen: six tables, ten divisions each
    python benchmarks/bench_trees.py time           # a round of boosting, by processor time, with Numba and without
    python benchmarks/bench_trees.py                # both

Needs `pip install -e '.[bench]'`. Settings: 31 leaves, rate 0.1, 20 rows a leaf, l2 of 1, 255 bins. Time is that of
growing alone, bins made before and Numba's loops compiled; the best of three, because other programs' use of the caches
shows in it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

os.environ["OMP_NUM_THREADS"] = "1"

import lightgbm
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import datasets

from databazaar.learning.trees import kernels
from databazaar.learning.trees.bins import Bins, columns_of
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.grower import grow
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.histograms import Grid, LocalRows
from databazaar.learning.trees.objectives import Objective

Numbers = NDArray[np.float64]
THEIRS = {"binary": "binary", "squared": "regression", "multiclass": "multiclass"}


@dataclass(frozen=True)
class Task:
    """Rows to learn from and rows to judge by."""

    kind: str
    x: Numbers
    y: Numbers
    fresh_x: Numbers
    fresh_y: Numbers
    rounds: int

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1 if self.kind == "multiclass" else 1


def divided(kind: str, load: Callable[..., tuple[Numbers, Numbers]], rounds: int) -> Callable[[int], Task]:
    def task(seed: int) -> Task:
        x, y = load(return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(x))
        test, train = order[: len(x) // 4], order[len(x) // 4 :]
        return Task(kind, x[train], y[train].astype(float), x[test], y[test].astype(float), rounds)

    return task


def made_up(kind: str, rows: int, features: int, rounds: int) -> Callable[[int], Task]:
    """Waves, products and steps of five features, the others noise."""

    def task(seed: int) -> Task:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(rows + 20_000, features))
        clear = 2 * np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + (x[:, 3] > 0.5) * x[:, 4]
        chance = rng.random(len(x)) < 1 / (1 + np.exp(-1.5 * clear))
        y = chance.astype(float) if kind == "binary" else clear + rng.normal(size=len(x))
        return Task(kind, x[:rows], y[:rows], x[rows:], y[rows:], rounds)

    return task


TASKS = {
    "breast cancer": divided("binary", datasets.load_breast_cancer, 60),
    "diabetes": divided("squared", datasets.load_diabetes, 40),
    "digits": divided("multiclass", datasets.load_digits, 60),
    "30,000 × 12, two classes": made_up("binary", 30_000, 12, 100),
    "30,000 × 12, numbers": made_up("squared", 30_000, 12, 100),
    "100,000 × 30, two classes": made_up("binary", 100_000, 30, 100),
}
TIMED = {
    "4,000 × 12": made_up("binary", 4_000, 12, 100),
    "30,000 × 12": made_up("binary", 30_000, 12, 100),
    "100,000 × 30": made_up("binary", 100_000, 30, 50),
    "300,000 × 30": made_up("binary", 300_000, 30, 20),
}


def ours(task: Task) -> tuple[Ensemble, float]:
    """The model, and the seconds of processor time that growing it took."""
    loss, bins = Objective(task.kind, task.classes), Bins.of(task.x)
    binned = bins.apply(task.x)
    columns, growth = columns_of(binned), Growth()
    begin = time.process_time()
    ensemble = Ensemble(bins, loss, loss.start(task.y))
    scores = ensemble.scores(binned)
    for _ in range(task.rounds):
        gradients, hessians = loss.gradients(scores, task.y)
        grid = Grid.of(float(np.abs(gradients).max()), float(hessians.max()), len(task.y))
        trees = []
        for place in range(task.classes):
            source = LocalRows(columns, gradients[:, place], hessians[:, place], grid, bins.width)
            grown = grow(source, growth, bins.categorical)
            for node, value in zip(grown.nodes, grown.tree.value, strict=True):
                scores[source.rows(node), place] += value
            trees.append(grown.tree)
        ensemble = ensemble.appended(trees)
    return ensemble, time.process_time() - begin


def theirs(task: Task) -> tuple[lightgbm.Booster, float]:
    settings = {"objective": THEIRS[task.kind], "num_class": task.classes, "num_leaves": 31, "learning_rate": 0.1}
    settings |= {"min_data_in_leaf": 20, "lambda_l2": 1.0, "max_bin": 255, "num_threads": 1, "verbose": -1}
    data = lightgbm.Dataset(task.x, task.y, params={"max_bin": 255, "verbose": -1, "num_threads": 1}).construct()
    begin = time.process_time()
    booster = lightgbm.train(settings, data, task.rounds)
    return booster, time.process_time() - begin


def losses(task: Task) -> tuple[float, float]:
    """Log loss, or the root of the mean square: ours, LightGBM's."""
    ensemble, _ = ours(task)
    booster, _ = theirs(task)
    scores = np.asarray(booster.predict(task.fresh_x, raw_score=True)).reshape(len(task.fresh_y), -1)
    both = [ensemble.scores(ensemble.bins.apply(task.fresh_x)), scores]
    found = [float(ensemble.objective.loss(each, task.fresh_y).mean()) for each in both]
    return (found[0], found[1]) if task.kind != "squared" else (found[0] ** 0.5, found[1] ** 0.5)


def compare_losses(seeds: int) -> None:
    print(f"loss on fresh rows, mean of {seeds} divisions")
    print(f"{'':28}{'ours':>9}{'LightGBM':>10}{'difference':>12}{'its standard error':>20}")
    for name, task in TASKS.items():
        found = np.array([losses(task(seed)) for seed in range(seeds)])
        mean, other = found.mean(0)
        error = (found[:, 0] - found[:, 1]).std(ddof=1) / seeds**0.5 if seeds > 1 else float("nan")
        print(f"{name:28}{mean:9.4f}{other:10.4f}{mean / other - 1:12.2%}{error / other:20.2%}", flush=True)


@contextmanager
def without_numba() -> Iterator[None]:
    with_it = kernels.compiled
    setattr(kernels, "compiled", lambda: None)  # noqa: B010
    try:
        yield
    finally:
        setattr(kernels, "compiled", with_it)  # noqa: B010


def compare_times() -> None:
    ours(made_up("binary", 1_000, 5, 2)(0))  # compiles
    print("milliseconds a tree, one thread")
    print(f"{'':16}{'LightGBM':>9}{'ours, Numba':>13}{'times':>7}{'ours, arrays':>14}{'times':>7}")
    for name, task_of in TIMED.items():
        task = task_of(0)
        seconds = [min(run(task)[1] for _ in range(3)) for run in (theirs, ours)]
        with without_numba():
            seconds.append(min(ours(task)[1] for _ in range(3)))
        each = [1_000 * second / task.rounds for second in seconds]
        print(
            f"{name:16}{each[0]:9.2f}{each[1]:13.2f}{each[1] / each[0]:7.2f}{each[2]:14.2f}{each[2] / each[0]:7.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["loss", "time"])
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what != "loss":
        compare_times()
    if given.what != "time":
        compare_losses(given.seeds)


if __name__ == "__main__":
    main()
