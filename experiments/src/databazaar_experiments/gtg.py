"""GTG-Shapley: Federated Shapley with truncation between and within rounds, and guided sampling.

As Federated Shapley (`fed_shapley.py`), with three savings (Liu et al. 2022, Algorithm 1). A round that hardly moves
the utility is skipped: everybody's value in it is zero. Within a permutation, a provider that joins when the utility of
those before it is already within a tolerance of the round's final one gets zero, unscored. And permutations come in
sweeps in which every provider leads once, because the first position is where marginal contributions differ most.

Departures from the paper: a coalition's updates are averaged with equal weights, as this market's arbiter averages
them, not by sample counts that providers would report. The tolerance between rounds is in units of the utility; the one
within a round is a share of that round's change. Rules are asked after whole sweeps, so that everybody has led equally
often. Standard errors treat the permutations of a sweep as independent, which overstates them a little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.randomness import stream
from databazaar.valuation.games import Game
from databazaar.valuation.monte_carlo import shapley_monte_carlo
from databazaar.valuation.result import Cost, ValuationResult
from databazaar.valuation.stopping import History, Rule, capped
from databazaar_experiments.fed_shapley import Aggregate, RoundByRound


@dataclass(frozen=True, kw_only=True)
class GTGShapley(RoundByRound):
    """GTG-Shapley values and the model trained on the way; settings as of `FedShapley`, and the two tolerances."""

    aggregate: Aggregate = "mean"
    between_rounds: float = 0.0
    within_round: float = 0.01
    kind: ClassVar[str] = "gtg"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("between_rounds", "within_round"):
            tolerance = getattr(self, name)
            if not tolerance >= 0:
                raise BazaarError(f"{name} = {tolerance} must be zero or more: zero turns that truncation off")

    def value_round(self, game: Game, t: int) -> ValuationResult:
        n = len(game.players)
        before, after = game.value(np.concatenate([game.nobody, game.everybody]))
        if abs(after - before) < self.between_rounds:
            return ValuationResult("gtg", game.players, np.zeros(n), np.zeros(n), "the round moved nothing", Cost())
        shuffle = GuidedShuffle(n, self.seed, f"gtg round {t}")
        stop = WholeSweeps(capped(self.stop), n)
        return shapley_monte_carlo(game, stop, truncation=self.within_round, shuffle=shuffle, batch=self.batch)


@dataclass(frozen=True)
class WholeSweeps(Rule):
    """Asks a rule that ends only when every player has led equally often."""

    rule: Rule
    players: int
    ends = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", self.rule.memory)

    def reason(self, history: History) -> str | None:
        return None if history.cost.permutations % self.players else self.rule.reason(history)

    def permutations_left(self, history: History) -> float:
        return max(self.rule.permutations_left(history), -history.cost.permutations % self.players)


@dataclass(frozen=True)
class GuidedShuffle:
    """Permutation number t begins with player t mod n; the others follow at random."""

    players: int
    seed: int
    purpose: str

    def __call__(self, number: int) -> NDArray[np.int64]:
        leader = number % self.players
        order = stream(self.seed, number, self.purpose).permutation(self.players)
        return np.concatenate([[leader], order[order != leader]])
