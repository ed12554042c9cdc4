"""The figures that verdicts are made of, by provider: what a replay has seen of every answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from databazaar.defence import Findings
from databazaar.ledger.rounds import Numbers, Places

SHOWN = ("harm", "leak", "signal", "error")


@dataclass(frozen=True, eq=False)
class Curve:
    """What was measured of one provider: a number for each of its valid answers, NaN where a test did not speak."""

    rounds: Places
    harm: Numbers
    leak: Numbers
    signal: Numbers
    error: Numbers

    def __len__(self) -> int:
        return len(self.rounds)


class Figures:
    """A row for everybody who was asked in a market with a defence, and has given a valid answer.

    >>> figures = Figures()
    >>> figures.add(7, [2, 0], [True, False], Findings(leak=[1.5, None]))
    >>> [curve.leak.tolist() for curve in figures.curves(3)]
    [[], [], [1.5]]
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[tuple[float, ...]]] = {}

    def add(self, round: int, asked: Sequence[int], valid: Sequence[bool], findings: Findings) -> None:
        """A round's findings, without those whose answers are void."""
        for place, provider in enumerate(asked):
            if valid[place]:
                figures = (findings.at(name, place) for name in SHOWN)
                row = round, *(math.nan if figure is None else figure for figure in figures)
                self._rows.setdefault(provider, []).append(row)

    def curves(self, providers: int) -> list[Curve]:
        """Everybody's, in the order of the roster."""
        tables = (
            np.array(self._rows.get(i, []), dtype=np.float64).reshape(-1, 1 + len(SHOWN)) for i in range(providers)
        )
        return [Curve(table[:, 0].astype(np.int64), *table[:, 1:].T) for table in tables]
