"""GTG-Shapley: Federated Shapley with truncation between and within rounds, and guided sampling.

As Federated Shapley (see fed_shapley.py), with three savings (Liu et al. 2022, Algorithm 1). A round that hardly moves
the utility is skipped: everybody's value in it is zero. Within a permutation, whoever joins when the utility of those
before it is already within a tolerance of the round's final one gets zero, unscored. And permutations come in sweeps in
which every provider leads once, because the first position is where marginal contributions differ most.

Departures from the paper: a coalition's updates are averaged with equal weights, as this market's arbiter averages
them, not by sample counts that providers would report. The tolerance between rounds is in units of the utility; the one
within a round is a share of that round's change. Rules are asked after whole sweeps, so that everybody has led equally
often. Standard errors treat the permutations of a sweep as independent, which overstates them a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from databazaar.engines import Engine
from databazaar.errors import BazaarError
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.randomness import stream
from databazaar.valuation.fed_shapley import value_rounds
from databazaar.valuation.games import Asking, Game
from databazaar.valuation.market import Market
from databazaar.valuation.monte_carlo import asking_permutations
from databazaar.valuation.result import Cost, ValuationResult
from databazaar.valuation.round_game import Aggregate
from databazaar.valuation.stopping import BackCheck, MaxPermutations, Rule

STOP = BackCheck(10, 0.05) | MaxPermutations(1_000)


def gtg_shapley(
    consumer: Consumer,
    providers: Sequence[Provider],
    *,
    stop: Rule = STOP,
    limit: Rule | None = None,
    rounds: int | None = None,
    between_rounds: float = 0.0,
    within_round: float = 0.01,
    aggregate: Aggregate = "mean",
    seed: int = 0,
    engine: str | Engine = "vectorized",
    device: str = "auto",
    batch: int = 10,
) -> ValuationResult:
    """GTG-Shapley values and the model trained on the way; arguments as of `fed_shapley`."""
    for name, tolerance in (("between_rounds", between_rounds), ("within_round", within_round)):
        if not tolerance >= 0:
            raise BazaarError(f"{name} = {tolerance} must be zero or more: zero turns that truncation off")

    def value_round(game: Game, t: int) -> Asking[ValuationResult]:
        before, after = yield from game.asking(np.concatenate([game.nobody, game.everybody]))
        if abs(after - before) < between_rounds:
            zeros = np.zeros(len(game.players))
            return ValuationResult("gtg", game.players, zeros, zeros, "the round moved nothing", Cost())
        shuffle = GuidedShuffle(len(game.players), seed, f"gtg round {t}")
        return (
            yield from asking_permutations(
                game, stop, shuffle, within_round, batch=batch, check_every=len(game.players)
            )
        )

    with Market.open(consumer, providers, engine, device) as market:
        return market.answer(value_rounds(market, value_round, "gtg", aggregate, rounds, limit, seed))


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
