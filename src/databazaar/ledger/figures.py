"""The figures that verdicts are made of, kept in columns over all rounds: what a replay has seen of every answer."""

from __future__ import annotations

import math
from array import array
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
        self._rounds, self._providers = array("q"), array("q")
        self._columns = {name: array("d") for name in SHOWN}

    def add(self, round: int, asked: Sequence[int], valid: Sequence[bool], findings: Findings) -> None:
        """A round's findings, without those whose answers are void."""
        for place, (provider, counts) in enumerate(zip(asked, valid, strict=True)):
            if not counts:
                continue
            self._rounds.append(round)
            self._providers.append(provider)
            for name, column in self._columns.items():
                figure = findings.at(name, place)
                column.append(math.nan if figure is None else figure)

    def curves(self, providers: int) -> list[Curve]:
        """Everybody's, in the order of the roster."""
        who = np.array(self._providers, dtype=np.int64)
        order, ends = np.argsort(who, kind="stable"), np.cumsum(np.bincount(who, minlength=providers))[:-1]
        columns = [np.array(column)[order] for column in (self._rounds, *self._columns.values())]
        return [Curve(*own) for own in zip(*(np.split(column, ends) for column in columns), strict=True)]
