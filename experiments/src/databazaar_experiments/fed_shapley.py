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
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.engines import Ask, Replies
from databazaar.errors import BazaarError
from databazaar.learning.utilities import Evaluator
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.randomness import draws_stream
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers import Uniform
from databazaar.training.parameters import Parameters
from databazaar.valuation.exact import MOST_PLAYERS, shapley_exact
from databazaar.valuation.games import Coalitions, Game
from databazaar.valuation.method import Context, Method
from databazaar.valuation.monte_carlo import Shuffle, shapley_monte_carlo
from databazaar.valuation.result import Trained, ValuationResult, Vector
from databazaar.valuation.stopping import BackCheck, History, MaxPermutations, Rule
from databazaar_experiments.g_shapley import Progress, ignore_share

Aggregate = Literal["sum", "mean"]

AT_ONCE = 2**31
"""A scorer parts coalitions by itself."""

PLAIN_FLOATS = 2**26
"""Parameters of the models that are formed at a time (256 MiB)."""

Weights = NDArray[np.float64]
"""Coefficients c, one model per row: [m, K]."""

STOP = BackCheck(10, 0.05) | MaxPermutations(1_000)
"""Of one round: Appendix A.1 of the paper, and the cap that it lacks."""


@dataclass(frozen=True, kw_only=True)
class RoundByRound(Method):
    """FedAvg with uniform sampling, in which every round's game is valued and the values add up.

    `stop` ends the sampling of a round and begins anew in each; `limit` may end the whole, after any round. Without
    `rounds` there are as many as the budget pays for. `batch` is how many permutations are worked out at a time.
    `progress` is called after each round with the share of the work that is done, about.
    """

    batch: int = 10
    stop: Rule = STOP
    limit: Rule | None = None
    rounds: int | None = None
    aggregate: Aggregate = "sum"
    progress: Progress = ignore_share
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
            self.progress(t / self.rounds if self.rounds is not None else 1 - round_budget / context.consumer.budget)
            if self.limit is not None:
                history = History((values,), np.sqrt(variances), context.tally.now(permutations))
                reason = self.limit.reason(history)
                stopped = None if reason is None else f"{reason}, after {t:,} rounds"
        context.tally.trainings += 1
        trained = Trained(Parameters(w.detach().cpu()), float(context.score(w[None])[0]))
        cost = context.tally.now(permutations)
        return ValuationResult(self.kind, context.ids, values, np.sqrt(variances), stopped, cost, trained)


@dataclass(frozen=True, kw_only=True)
class FedShapley(RoundByRound):
    """Federated Shapley values by permutation sampling, and the model trained on the way."""

    kind: ClassVar[str] = "fedsv"

    def value_round(self, game: Game, t: int) -> ValuationResult:
        shuffle = Shuffle(len(game.players), self.seed, f"fedsv round {t}")
        return shapley_monte_carlo(game, self.stop, shuffle=shuffle, batch=self.batch)


@dataclass(frozen=True, kw_only=True)
class FedShapleyExact(RoundByRound):
    """Federated Shapley over all coalitions of every round; nothing is sampled, so `stop` and `batch` say nothing."""

    kind: ClassVar[str] = "fedsv-exact"

    def validate(self, consumer: Consumer, providers: Sequence[Provider]) -> None:
        super().validate(consumer, providers)
        players = min(consumer.per_round, len(providers))
        if players > MOST_PLAYERS:
            raise BazaarError(
                f"{self.kind} scores every coalition of a round, 2^{players} of them for per_round = "
                f"{consumer.per_round}: it takes at most {MOST_PLAYERS}, so use fedsv instead"
            )

    def value_round(self, game: Game, t: int) -> ValuationResult:
        return shapley_exact(game)


def _draw(context: Context, seed: int, t: int) -> list[int]:
    """K providers without replacement, or all if there are fewer, by the stream that the arbiter's draws come from."""
    sampler, roster = Uniform(replacement=False), Roster.equal(len(context.providers))
    per_round = min(context.consumer.per_round, len(roster))
    state, round_budget = sampler.init(roster, len(roster), per_round), RoundBudget(len(roster), roster.prices)
    draws: list[int] = sampler.draw(state, draws_stream(seed, t), per_round, round_budget).tolist()
    return draws


@dataclass(frozen=True, eq=False)
class RoundGame:
    """The game between the providers of one round: who they are in the market, and their updates."""

    game: Game
    members: list[int]
    updates: Tensor


def round_game(
    context: Context,
    scorer_of: Callable[[Tensor], Scorer],
    replies: Replies,
    asked: list[int],
    step: float,
    aggregate: Aggregate,
) -> RoundGame | None:
    """The game between those whose update alone leaves a model of finite utility; None where nobody's does."""
    rows = [row for row, provider in enumerate(asked) if provider not in replies.failures]
    if not rows:
        return None
    updates, n = _chosen(replies.updates, rows), len(rows)
    scorer = scorer_of(updates)

    def score(coalitions: Coalitions) -> Vector:
        sizes = np.maximum(coalitions.sum(1, keepdims=True), 1) if aggregate == "mean" else 1
        return scorer(np.asarray(step * coalitions / sizes, dtype=np.float64))  # γ a member, or γ over their number

    singles = np.concatenate([np.zeros((1, n), dtype=bool), np.eye(n, dtype=bool)])
    worths = score(singles)
    context.tally.utility_evaluations += len(worths)
    if not np.isfinite(worths[0]):
        raise BazaarError(f"the model's own utility is {worths[0]}: lower the steps, or begin elsewhere")
    players = np.flatnonzero(np.isfinite(worths[1:]))
    if not len(players):
        return None

    def worth(some: Coalitions) -> Vector:
        everybody = np.zeros((len(some), n), dtype=bool)
        everybody[:, players] = some
        return score(everybody)

    members = [asked[rows[i]] for i in players]
    game = Game([context.ids[i] for i in members], worth, batch=AT_ONCE, tally=context.tally)
    known = [0, *(1 + players)]
    game.know(singles[known][:, players], worths[known])
    return RoundGame(game, members, _chosen(updates, players.tolist()))


def _chosen(updates: Tensor, rows: list[int]) -> Tensor:
    """These rows, without a copy where they are all of them."""
    return updates if len(rows) == len(updates) else updates[rows]


class Scorer:
    """Utilities [m] of the models w + Σ_i c_i g_i for coefficients [m, K]. Forms every model: right for any model and
    any utility."""

    def __init__(self, evaluator: Evaluator, params: Tensor, updates: Tensor) -> None:
        self.evaluator = evaluator
        self._params, self._updates = params, updates

    def __call__(self, coefficients: Weights) -> NDArray[np.float64]:
        weights = torch.from_numpy(coefficients).to(self._updates)
        parts = torch.split(weights, max(1, PLAIN_FLOATS // len(self._params)))
        models = (torch.addmm(self._params, part, self._updates) for part in parts)
        return np.concatenate([self.evaluator.score(stack).utility for stack in models])
