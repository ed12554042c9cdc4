"""What somebody outside of databazaar writes: one rule of each sort, each a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from databazaar.codes import Code
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers.protocol import Wants, among_affordable
from databazaar.stops import History


@dataclass(frozen=True)
class Bargain:
    """Asks the provider that gave most for the money so far, and all others now and then. It sees prices and budget.

    The state is [sum of gains, times drawn] of each provider, end to end.
    """

    curiosity: float = 0.2
    kind: ClassVar[str] = "acme-bargain"
    wants: ClassVar[Wants] = Wants()

    def init(self, roster: Roster, budget: int, per_round: int) -> np.ndarray:
        return np.zeros(2 * len(roster))

    def probabilities(self, state: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        gains, times = np.split(state, 2)
        worth = gains / np.maximum(times, 1) / round_budget.quotes
        best = worth == worth[round_budget.available].max()
        p = self.curiosity / len(best) + (1 - self.curiosity) * best / best.sum()
        return among_affordable(p, round_budget)

    def draw(self, state: np.ndarray, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> np.ndarray:
        return np.asarray(rng.choice(len(round_budget.quotes), size, p=self.probabilities(state, round_budget)))

    def update(self, state: np.ndarray, draws: np.ndarray, gains: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        if not np.isfinite(gains).all():
            raise ValueError("gains must be finite")
        moved = state.copy()
        np.add.at(moved, draws, np.clip(gains, -1, 1))
        np.add.at(moved, draws + len(round_budget.quotes), 1.0)
        return moved


@dataclass(frozen=True)
class Median:
    """The coordinate-wise median of the updates."""

    kind: ClassVar[str] = "acme-median"

    def init(self, params: torch.Tensor) -> torch.Tensor:
        return params.new_empty(0)

    def combine(self, state: torch.Tensor, updates: torch.Tensor, step: float) -> tuple[torch.Tensor, torch.Tensor]:
        return state, step * updates.median(0).values


@dataclass(frozen=True)
class HalfForHarm:
    """The price where a reply helped, and half of it, rounded down, where it did not."""

    kind: ClassVar[str] = "acme-half-for-harm"

    def quote(self, roster: Roster) -> np.ndarray:
        return roster.prices

    def settle(self, quotes: Sequence[int], gains: Sequence[float | None]) -> Sequence[int]:
        return [
            0 if gain is None else quote if gain > 0 else quote // 2 for quote, gain in zip(quotes, gains, strict=True)
        ]


@dataclass(frozen=True)
class Reserve:
    """Stops while there is still so much in the round's budget."""

    keep: int
    kind: ClassVar[str] = "acme-reserve"

    def reason(self, history: History) -> Code | None:
        if history.round_budget.left >= self.keep:
            return None
        return Code.of("own-words", text=f"{self.keep} were to be kept, and {history.round_budget.left} are left")
