"""Who stands how in a market: the part of the rules' state that verdicts are about, one row for each provider."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from databazaar.roster import Roster

Vector = NDArray[np.float64]
Places = NDArray[np.int64]

OPEN, CLEARED, LEAK, NO_DATA = 0.0, 1.0, 2.0, 3.0
"""Standings. Pay beyond the floor is held back of who is open; who has a leak or no data is flagged."""
UNKNOWN = float("inf")
"""What a provider has shown while nobody has looked."""
COLUMNS = 8


@dataclass(frozen=True, eq=False)
class DetectorState:
    """What is known of every provider: its standing; its `owner`, as the place of the first provider of that owner; its
    `arm`, as the place of the first that shares it; how many valid answers it has given; what its arm was asked for, in
    money (kept at the arm's place); what of its floor is below a whole coin; what its owner has shown, in standard
    errors, when it was last looked at; and how far its owner's gains on the two parts of the hold-out were apart, in
    standard errors, when the owner last answered.

    Evidence is counted by declared owner: standing, `shown` and `apart` are equal for all providers of an owner, else
    each new id would begin with the benefit of the doubt. Providers that were merged because they are alike share an
    arm, and no evidence: else a copy could have the original flagged.
    """

    standing: Vector
    owner: Places
    arm: Places
    answers: Vector
    asked: Vector
    rest: Vector
    shown: Vector
    apart: Vector

    @classmethod
    def new(cls, roster: Roster, owners: bool) -> DetectorState:
        """Everybody is open. Where owners are arms, an owner's providers share one from the start; else every provider
        counts as an owner."""
        n, first = len(roster), dict[str, int]()
        owner = np.arange(n)
        if owners:
            owner = np.array([first.setdefault(name, place) for place, name in enumerate(roster.owners)])
        return cls(np.zeros(n), owner, owner, np.zeros(n), np.zeros(n), np.zeros(n), np.full(n, UNKNOWN), np.zeros(n))

    @classmethod
    def of(cls, vector: Vector) -> DetectorState:
        """From the vector that `vector` gives."""
        standing, owner, arm, *numbers = vector.reshape(COLUMNS, -1)
        return cls(standing, owner.astype(np.int64), arm.astype(np.int64), *numbers)

    def vector(self) -> Vector:
        places = self.owner.astype(np.float64), self.arm.astype(np.float64)
        return np.concatenate([self.standing, *places, self.answers, self.asked, self.rest, self.shown, self.apart])

    @property
    def flagged(self) -> NDArray[np.bool_]:
        return self.standing >= LEAK

    @property
    def owner_answers(self) -> Vector:
        """How many valid answers the owner of each has given."""
        sums: Vector = np.zeros(len(self.owner))
        np.add.at(sums, self.owner, self.answers)
        return sums[self.owner]

    @property
    def arms(self) -> Places:
        """The places that stand for an arm."""
        return np.flatnonzero(self.arm == np.arange(len(self.arm)))

    @property
    def sharing(self) -> Places:
        """How many providers share the arm of each."""
        return np.bincount(self.arm, minlength=len(self.arm))[self.arm]

    @property
    def plain(self) -> bool:
        """Whether everybody is its own arm, and nobody is flagged."""
        return bool((self.arm == np.arange(len(self.arm))).all()) and not bool(self.flagged.any())
