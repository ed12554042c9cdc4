"""Bins of features, from the buyer's rows alone: numbers by quantiles, categories by code, one bin for what is missing.

A row becomes one byte a feature. Bin 0 is for missing values and for categories that the buyer's rows do not have; the
values lie in bins 1 to 255. Numbers up to an edge, and equal to it, lie below it, as in LightGBM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from databazaar.errors import BazaarError

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
Binned = NDArray[np.uint8]

MISSING = 0
MOST = 255
"""Bins for values; with that of missing values they fill a byte."""
HIGHEST_CODE = 2**20
"""A category's code is a place in a bit set of LightGBM's file."""


@dataclass(frozen=True)
class Bins:
    """What divides each feature: rising edges between its bins, or the codes of its categories.

    >>> bins = Bins.of([[1.0, 7], [2.0, 9], [4.0, 7]], categorical=[1])
    >>> bins.apply([[1.5, 9], [3.5, 8], [float("nan"), 7]]).tolist()
    [[1, 2], [3, 0], [0, 1]]
    """

    edges: tuple[Numbers, ...]
    """Of a number with m + 1 bins, m edges; of a category none."""
    codes: tuple[Codes | None, ...]
    """Of a category its codes in rising order: the first has bin 1; of a number None."""
    lowest: Numbers
    highest: Numbers

    @classmethod
    def of(cls, x: ArrayLike, categorical: Sequence[int] = (), most: int = MOST) -> Bins:
        """Bins for rows like these [rows, features]: NaN is missing, categories are codes 0, 1, 2, …"""
        rows = _rows(x)
        if not 2 <= most <= MOST:
            raise BazaarError(f"{most} bins for a feature: use 2 to {MOST}")
        if not len(rows):
            raise BazaarError("bins need one row at least")
        unknown = [feature for feature in categorical if not 0 <= feature < rows.shape[1]]
        if unknown:
            raise BazaarError(
                f"feature {unknown[0]} is none of {rows.shape[1]}: name categories by their place, from 0"
            )
        named = set(categorical)
        edges, codes, ends = [], [], []
        for feature, column in enumerate(rows.T):
            known = column[np.isfinite(column)]
            edges.append(np.empty(0) if feature in named else _edges(known, most))
            codes.append(_codes(known, most, feature) if feature in named else None)
            ends.append((known.min(), known.max()) if len(known) else (0.0, 0.0))
        low, high = np.array(ends, dtype=np.float64).reshape(-1, 2).T
        return cls(tuple(edges), tuple(codes), low, high)

    @property
    def features(self) -> int:
        return len(self.edges)

    @property
    def categorical(self) -> NDArray[np.bool_]:
        """Which features are categories."""
        return np.array([codes is not None for codes in self.codes], dtype=np.bool_)

    @property
    def width(self) -> int:
        """The bins that the widest feature has, that of missing values among them."""
        of_each = [
            len(edges) + 2 if codes is None else len(codes) + 1
            for edges, codes in zip(self.edges, self.codes, strict=True)
        ]
        return max(of_each, default=1)

    def apply(self, x: ArrayLike) -> Binned:
        """Rows [rows, features] as bins. Infinities count as the largest and the smallest numbers."""
        rows = _rows(x)
        if rows.shape[1] != self.features:
            raise BazaarError(f"rows have {rows.shape[1]} features, and the bins are of {self.features}")
        binned = np.empty(rows.shape, dtype=np.uint8)
        for feature, column in enumerate(rows.T):
            codes = self.codes[feature]
            if codes is None:
                binned[:, feature] = np.where(
                    np.isnan(column), MISSING, np.searchsorted(self.edges[feature], column) + 1
                )
            else:
                place = np.searchsorted(codes, column)
                known = np.append(codes.astype(np.float64), np.nan)[place] == np.trunc(column)
                binned[:, feature] = np.where(known, place + 1, MISSING)
        return binned

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that the bins are, as arrays: for a snapshot, and its hash."""
        none = np.empty(0, dtype=np.int64)
        return {
            "edges": np.concatenate([*self.edges, np.empty(0)]),
            "edge_counts": np.array([len(edges) for edges in self.edges], dtype=np.int64),
            "codes": np.concatenate([none, *(codes for codes in self.codes if codes is not None)]),
            "code_counts": np.array([-1 if codes is None else len(codes) for codes in self.codes], dtype=np.int64),
            "lowest": self.lowest,
            "highest": self.highest,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Bins:
        edges = _cut(arrays["edges"], arrays["edge_counts"])
        counts = arrays["code_counts"]
        codes = _cut(arrays["codes"], np.maximum(counts, 0))
        found = tuple(None if count < 0 else each for count, each in zip(counts, codes, strict=True))
        return cls(tuple(edges), found, arrays["lowest"], arrays["highest"])


def columns_of(binned: Binned) -> Binned:
    """Binned rows [rows, features] feature by feature [features, rows]: as sums are taken."""
    return np.ascontiguousarray(binned.T)


def _rows(x: ArrayLike) -> Numbers:
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2:
        raise BazaarError(f"rows of shape {list(rows.shape)} have no features: give [rows, features]")
    return rows


def _cut(joined: NDArray[Any], counts: NDArray[np.int64]) -> list[NDArray[Any]]:
    return np.split(joined, np.cumsum(counts)[:-1]) if len(counts) else []


def _edges(known: Numbers, most: int) -> Numbers:
    """Edges between distinct values: between all of them, or so that bins hold about as many rows each."""
    values, counts = np.unique(known, return_counts=True)
    if len(values) <= most:
        return _between(values[:-1], values[1:])
    for wanted in range(most, 0, -1):
        last = _last_of_bins(counts, wanted)
        if len(last) < most:
            return _between(values[last], values[last + 1])
    raise AssertionError("one bin holds all")


def _last_of_bins(counts: NDArray[np.int64], wanted: int) -> NDArray[np.int64]:
    """The last value of each bin but the last bin. A value as frequent as a bin gets a bin of its own."""
    frequent = counts * wanted >= counts.sum()
    others = np.where(frequent, 0, counts)
    size = others.sum() / max(wanted - int(frequent.sum()), 1)
    bin_of = np.floor((np.cumsum(others) - others / 2) / max(size, 1))
    ends = (bin_of[1:] != bin_of[:-1]) | frequent[1:] | frequent[:-1]
    return np.flatnonzero(ends)


def _between(below: Numbers, above: Numbers) -> Numbers:
    """A number from each pair's lower up to, and without, its upper."""
    middle = below / 2 + above / 2
    return np.where((middle >= below) & (middle < above), middle, below)


def _codes(known: Numbers, most: int, feature: int) -> Codes:
    """The codes of a category, the most frequent where there are more than bins."""
    values, counts = np.unique(known, return_counts=True)
    if len(values) and (values[0] < 0 or values[-1] > HIGHEST_CODE or (values != np.trunc(values)).any()):
        raise BazaarError(f"feature {feature} is a category: give codes 0, 1, 2, … up to {HIGHEST_CODE}")
    kept = np.argsort(-counts, kind="stable")[:most]
    return np.sort(values[kept]).astype(np.int64)
