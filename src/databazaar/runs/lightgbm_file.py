"""Bought trees as the file that LightGBM opens, for places where databazaar is not, and for SHAP values."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np

from databazaar.data.tree_features import TreeFeatures
from databazaar.errors import BazaarError
from databazaar.files import write_whole
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.lightgbm_text import lightgbm_text
from databazaar.runs.trained import TrainedModel

ROWS = 256
"""Random rows that the written file is asked, to compare its answers with our own."""
TOLERANCE = 1e-9


def export_lightgbm(trained: TrainedModel, path: Path) -> float | None:
    """Writes the trees as LightGBM's text file: columns as `TreeFeatures` has them go in, probabilities or numbers in
    the target's units come out. Where LightGBM is installed, the file's answers are compared with the model's own
    before it is written, and the largest difference is returned."""
    ensemble, units = trained.trees, trained.card.units
    if not isinstance(ensemble, Ensemble):
        raise BazaarError(
            f"{trained.path} holds no boosted trees alone, and LightGBM's file holds nothing else: buy with model.kind "
            '= "trees", or use `bazaar predict`'
        )
    if units is not None:
        ensemble = ensemble.scaled(units.scale, units.mean)
    names = TreeFeatures(trained.schema).names if trained.schema is not None else ()
    text = lightgbm_text(ensemble, _plain(names))
    difference = _checked(text, ensemble)
    write_whole(path, text.encode())
    return difference


def _plain(names: tuple[str, ...]) -> list[str]:
    """Names that LightGBM's file can hold, all different.

    >>> _plain(("day (days)", "day  days", "sum"))
    ['day_(days)', 'day_days', 'sum']
    """
    plain: list[str] = []
    for name in (re.sub(r'[\s",:\[\]{}]+', "_", name) for name in names):
        plain.append(name if name not in plain else f"{name}_{len(plain)}")
    return plain


def _checked(text: str, ensemble: Ensemble) -> float | None:
    if importlib.util.find_spec("lightgbm") is None:
        return None
    import lightgbm

    rng, bins = np.random.default_rng(0), ensemble.bins
    rows = rng.uniform(bins.lowest, bins.highest, (ROWS, bins.features))
    rows = np.where(bins.categorical, np.rint(rows), rows)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    theirs = np.asarray(lightgbm.Booster(model_str=text).predict(rows))
    difference = float(np.abs(theirs - ensemble.predict(rows)).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(theirs).max())):
        raise BazaarError(f"LightGBM answers otherwise than our trees (by {difference:.2g}): nothing was written")
    return difference
