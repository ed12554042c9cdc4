"""Federated Shapley: Shapley values of every training round, added up while a model is trained.

In each round K providers are drawn uniformly without replacement and asked for updates of w. The round is a game
between them: a coalition is worth the utility of w with its members' updates. Their Shapley values in that game, exact
over 2^K coalitions or by permutation sampling (FedSV-PS), are added to their values; the others get nothing.
Then the mean of the updates is added to w, and the next round begins (Wang et al. 2020; Section 5.1 of the paper).

Departures from the paper: none in the values. Behind the paper's figures a coalition's model is w plus the *sum* of
its updates ("sum", the default); as FedAvg would have it, w plus their mean ("mean"). A provider whose reply fails, or
whose update alone leaves the model without a finite utility, is no player of that round and no part of the average.
Standard errors are those of sampling permutations, given how the training went.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from torch import Tensor

from databazaar.engines import Ask
from databazaar.errors import BazaarError
from databazaar.learning.utilities import Evaluator
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.randomness import draws_stream
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers import Uniform
from databazaar.valuation.context import Context
from databazaar.valuation.exact import MOST_PLAYERS, shapley_exact
from databazaar.valuation.games import Game
from databazaar.valuation.method import Method, as_function
from databazaar.valuation.monte_carlo import shapley_monte_carlo
from databazaar.valuation.permutations import Shuffle
from databazaar.valuation.result import Trained, ValuationResult
from databazaar.valuation.round_game import Aggregate, Scorer, round_game
from databazaar.valuation.stopping import BackCheck, History, MaxPermutations, Rule

STOP = BackCheck(10, 0.05) | MaxPermutations(1_000)
"""Of one round: Appendix A.1 of the paper, and the cap that it lacks."""


@dataclass(frozen=True, kw_only=True)
class RoundByRound(Method):
    """FedAvg with uniform sampling, in which every round's game is valued and the values add up.

    `stop` ends the sampling of a round and begins anew in each; `limit` may end the whole, after any round. Without
    `rounds` there are as many as the budget pays for. `batch` is how many permutations are worked out at a time.
    """

    batch: int = 10
    stop: Rule = STOP
    limit: Rule | None = None
    rounds: int | None = None
    aggregate: Aggregate = "sum"
    limit_argument: ClassVar[str | None] = "limit"

    def __post_init__(self) -> None:
        if self.aggregate not in ("sum", "mean"):
            raise BazaarError(f'aggregate {self.aggregate!r} is unknown: use "sum" or "mean"')

    def value_round(self, game: Game, t: int) -> ValuationResult:
        """The values of a round's players in the game between them."""
        raise NotImplementedError

    def scorers(self, evaluator: Evaluator) -> Callable[[Tensor, Tensor], Scorer]:
        """What makes a round's scorer from its parameters and updates."""
        return partial(Scorer, evaluator)

    def value(self, context: Context) -> ValuationResult:
        values, variances = np.zeros((2, len(context.providers)))
        w, scorers = context.start(), self.scorers(context.evaluator)
        permutations, round_budget = 0, context.consumer.budget
        t, stopped = 0, None
        while stopped is None:
            asked = _draw(context, self.seed, t)
            price = sum(context.providers[i].price for i in asked)
            if price > round_budget or t == self.rounds:
                stopped = f"{t:,} rounds" if t == self.rounds else f"the budget paid for {t:,} rounds"
                break
            if self.rounds is None:
                round_budget -= price
            (replies,) = context.ask([Ask(w, asked, t, self.seed)])
            played = round_game(context, partial(scorers, w), replies, asked, context.step(t), self.aggregate)
            if played is not None:
                result = self.value_round(played.game, t)
                values[played.members] += result.values
                variances[played.members] += result.standard_errors**2
                permutations += result.cost.permutations
                w = context.moved(w, played.updates, t)
            del replies, played  # and with them the updates, before the next ones are there
            t += 1
            context.progress(t / self.rounds if self.rounds is not None else 1 - round_budget / context.consumer.budget)
            if self.limit is not None:
                history = History((values,), np.sqrt(variances), context.tally.now(permutations))
                reason = self.limit.reason(history)
                stopped = None if reason is None else f"{reason}, after {t:,} rounds"
        context.tally.trainings += 1
        trained = Trained(w.detach().cpu(), float(context.score(w[None])[0]))
        cost = context.tally.now(permutations)
        return ValuationResult(self._name(), context.ids, values, np.sqrt(variances), stopped, cost, trained)

    def _name(self) -> str:
        return self.kind


@dataclass(frozen=True, kw_only=True)
class FedShapley(RoundByRound):
    """Federated Shapley values and the model trained on the way.

    `exact` is over all coalitions of a round; else permutations are sampled. `stop` ends the sampling of a round and
    begins anew in each; `limit` may end the whole, after any round. Without `rounds` there are as many as the budget
    pays for. `batch` permutations are worked out at a time.
    """

    exact: bool = False
    kind: ClassVar[str] = "fedsv"

    def validate(self, consumer: Consumer, providers: Sequence[Provider]) -> None:
        super().validate(consumer, providers)
        players = min(consumer.per_round, len(providers))
        if self.exact and players > MOST_PLAYERS:
            raise BazaarError(
                f"{self._name()} scores every coalition of a round, 2^{players} of them for per_round = "
                f"{consumer.per_round}: it takes at most {MOST_PLAYERS}, so use fedsv instead"
            )

    def value_round(self, game: Game, t: int) -> ValuationResult:
        if self.exact:
            return shapley_exact(game)
        shuffle = Shuffle(len(game.players), self.seed, f"fedsv round {t}")
        return shapley_monte_carlo(game, self.stop, shuffle=shuffle, batch=self.batch)

    def _name(self) -> str:
        return "fedsv-exact" if self.exact else "fedsv"


@dataclass(frozen=True, kw_only=True)
class FedShapleyExact(FedShapley):
    """Federated Shapley over all coalitions of every round."""

    exact: bool = True
    kind: ClassVar[str] = "fedsv-exact"


fed_shapley = as_function(FedShapley, "fed_shapley")
"""`FedShapley` as one call."""


def _draw(context: Context, seed: int, t: int) -> list[int]:
    """K providers without replacement, or all if there are fewer, by the stream that the arbiter's draws come from."""
    sampler, roster = Uniform(replacement=False), Roster.equal(len(context.providers))
    per_round = min(context.consumer.per_round, len(roster))
    state, round_budget = sampler.init(roster, len(roster), per_round), RoundBudget(len(roster), roster.prices)
    draws: list[int] = sampler.draw(state, draws_stream(seed, t), per_round, round_budget).tolist()
    return draws
