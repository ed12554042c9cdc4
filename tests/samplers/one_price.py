"""Samplers in a market where everybody asks one coin and money is no object."""

from __future__ import annotations

import numpy as np

from databazaar.roster import Roster, RoundBudget
from databazaar.samplers import Sampler


class OnePrice:
    """A sampler's functions with the roster and the round's budget filled in."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def init(self, providers: int) -> np.ndarray:
        return np.asarray(self._sampler.init(Roster.equal(providers), 10**6, 1))

    def probabilities(self, state: np.ndarray) -> np.ndarray:
        return self._sampler.probabilities(state, _purse(state))

    def draw(self, state: np.ndarray, rng: np.random.Generator, size: int) -> np.ndarray:
        return self._sampler.draw(state, rng, size, _purse(state))

    def update(self, state: np.ndarray, draws: np.ndarray, gains: np.ndarray) -> np.ndarray:
        return np.asarray(self._sampler.update(state, draws, gains, _purse(state)))


def _purse(state: np.ndarray) -> RoundBudget:
    return RoundBudget(10**6, Roster.equal(len(state)).prices)
