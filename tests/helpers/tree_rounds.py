"""Small tables, and trees that are grown on them round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from databazaar.learning.trees.bins import Bins, columns_of
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.grower import grow
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.histograms import Grid, LocalRows
from databazaar.learning.trees.objectives import Objective
from databazaar.learning.trees.tree import Grown

Numbers = NDArray[np.float64]
KINDS = ("binary", "multiclass", "squared", "absolute", "quantile", "poisson")


@dataclass(frozen=True)
class Table:
    x: Numbers
    y: Numbers
    categorical: tuple[int, ...] = (2, 3)


def table(kind: str, rows: int = 600, seed: int = 0, missing: float = 0.15) -> Table:
    """Two numbers and two categories, of which some are missing, and a target for an objective of this kind."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    x[:, 2], x[:, 3] = rng.integers(0, 40, rows), rng.integers(0, 3, rows)
    x[rng.random((rows, 4)) < missing] = np.nan
    clear = np.nan_to_num(x[:, 0], nan=2.0) + 2 * np.isin(x[:, 2], [3, 7, 20, 31]) + (x[:, 3] == 1)
    noisy = clear + rng.normal(size=rows)
    targets = {
        "binary": (noisy > 0.5).astype(float),
        "multiclass": np.digitize(noisy, [0.0, 1.0]).astype(float),
        "poisson": rng.poisson(np.exp(clear / 3)).astype(float),
    }
    return Table(x, targets.get(kind, noisy))


def objective(kind: str, y: Numbers) -> Objective:
    return Objective(kind, 3 if kind == "multiclass" else 1, 0.8 if kind == "quantile" else 0.5).fitted(y)


def grown_round(
    ensemble: Ensemble, x: Numbers, y: Numbers, growth: Growth, sizes: Sequence[int] = (), weight: Numbers | None = None
) -> list[Grown]:
    """One round's trees, one a class, on these rows."""
    binned = ensemble.bins.apply(x)
    gradients, hessians = ensemble.objective.gradients(ensemble.scores(binned), y, weight)
    grid = Grid.of(float(np.abs(gradients).max()), float(hessians.max()), len(x))
    columns = columns_of(binned)
    return [
        grow(
            LocalRows(columns, gradients[:, place], hessians[:, place], grid, ensemble.bins.width, sizes),
            growth,
            ensemble.bins.categorical,
        )
        for place in range(ensemble.objective.classes)
    ]


def trained(kind: str, given: Table, rounds: int = 15, growth: Growth | None = None) -> Ensemble:
    """An ensemble on all rows of a table."""
    bins, loss = Bins.of(given.x, given.categorical), objective(kind, given.y)
    ensemble = Ensemble(bins, loss, loss.start(given.y))
    for _ in range(rounds):
        grown = grown_round(ensemble, given.x, given.y, growth or Growth())
        ensemble = ensemble.appended([each.tree for each in grown])
    return ensemble
