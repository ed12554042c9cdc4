"""The baseline: everybody is asked equally often, whatever they bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from databazaar.roster import Roster, RoundBudget
from databazaar.samplers.protocol import Draws, Vector, Wants, among_affordable, refuse_non_finite, refuse_too_many
from databazaar.settings import check_settings, setting


@dataclass(frozen=True)
class Uniform:
    """Draws providers with equal chances, with or without replacement. The state never changes.

    >>> sampler, roster = Uniform(replacement=False), Roster.equal(3)
    >>> state = sampler.init(roster, budget=30, per_round=3)
    >>> sorted(sampler.draw(state, np.random.default_rng(0), 3, RoundBudget(30, roster.prices)).tolist())
    [0, 1, 2]
    """

    replacement: bool = setting(True, "whether a provider may be drawn twice in a round", in_files=False)
    kind: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        check_settings(self, "sampler uniform")

    @property
    def wants(self) -> Wants:
        return Wants(no_repeats=not self.replacement)

    def init(self, roster: Roster, budget: int, per_round: int) -> Vector:
        if not self.replacement:
            refuse_too_many(per_round, len(roster))
        return np.full(len(roster), 1.0 / len(roster))

    def probabilities(self, state: Vector, round_budget: RoundBudget) -> Vector:
        return among_affordable(state, round_budget)

    def draw(self, state: Vector, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Draws:
        allowed = np.flatnonzero(round_budget.available)
        n = len(allowed)
        if self.replacement:
            picks = np.minimum((rng.random(size) * n).astype(np.int64), n - 1)
        else:
            picks = np.argsort(rng.random(n), kind="stable")[:size].astype(np.int64)
        draws: Draws = allowed[picks]
        return draws

    def update(self, state: Vector, draws: Draws, gains: Vector, round_budget: RoundBudget) -> Vector:
        refuse_non_finite(gains)
        return state
