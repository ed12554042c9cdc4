"""Federated Shapley: Shapley values of every training round, added up while a model is trained.

In each round K providers are drawn uniformly without replacement and asked for updates of w. The round is a game
between them: a coalition is worth the utility of w with its members' updates. Their Shapley values in that game, exact
over 2^K coalitions or by permutation sampling (FedSV-PS), are added to their values; whoever is not drawn gets nothing.
Then the mean of the updates is added to w, and the next round begins (Wang et al. 2020; Section 5.1 of the paper).

Departures from the paper: none in the values. Behind the paper's figures a coalition's model is w plus the *sum* of
its updates ("sum", the default); as FedAvg would have it, w plus their mean ("mean"). A provider whose reply fails, or
whose update alone leaves the model without a finite utility, is no player of that round and no part of the average.
Standard errors are those of sampling permutations, given the course of the training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from databazaar.consumer import Consumer
from databazaar.engines import Ask, Engine
from databazaar.errors import BazaarError
from databazaar.provider import Provider
from databazaar.randomness import draws_stream
from databazaar.samplers import Uniform
from databazaar.valuation.exact import shapley_exact
from databazaar.valuation.games import Coalitions, Game
from databazaar.valuation.market import Market, Valuing
from databazaar.valuation.monte_carlo import shapley_monte_carlo
from databazaar.valuation.permutations import Shuffle
from databazaar.valuation.result import ValuationResult
from databazaar.valuation.scoring import FirstLayer, PlainScorer, PrefixScorer, Scorer
from databazaar.valuation.stopping import BackCheck, History, MaxPermutations, Rule

Vector = NDArray[np.float64]
Aggregate = Literal["sum", "mean"]

STOP = BackCheck(10, 0.05) | MaxPermutations(1_000)
"""Of one round: Appendix A.1 of the paper, and the cap that it lacks."""


def fed_shapley(
    consumer: Consumer,
    providers: Sequence[Provider],
    *,
    exact: bool = False,
    stop: Rule = STOP,
    limit: Rule | None = None,
    rounds: int | None = None,
    aggregate: Aggregate = "sum",
    seed: int = 0,
    engine: str | Engine = "vectorized",
    device: str = "auto",
    batch: int = 10,
) -> ValuationResult:
    """Federated Shapley values and the model trained on the way.

    `stop` ends the sampling of a round and begins anew in each; `limit` may end the whole, after any round. Without
    `rounds` there are as many as the budget pays for.
    """

    with Market.open(consumer, providers, engine, device) as market:
        return market.answer(
            fed_valuing(
                market, exact=exact, stop=stop, limit=limit, rounds=rounds, aggregate=aggregate, seed=seed, batch=batch
            )
        )


def fed_valuing(
    market: Market,
    *,
    exact: bool = False,
    stop: Rule = STOP,
    limit: Rule | None = None,
    rounds: int | None = None,
    aggregate: Aggregate = "sum",
    seed: int = 0,
    batch: int = 10,
) -> Valuing:
    """`fed_shapley` on a market that is open already, yielding its asks."""

    def value_round(game: Game, t: int) -> ValuationResult:
        if exact:
            return shapley_exact(game)
        shuffle = Shuffle(len(game.players), seed, f"fedsv round {t}")
        return shapley_monte_carlo(game, stop, shuffle=shuffle, batch=batch)

    return value_rounds(market, value_round, "fedsv-exact" if exact else "fedsv", aggregate, rounds, limit, seed)


def value_rounds(
    market: Market,
    value_round: Callable[[Game, int], ValuationResult],
    method: str,
    aggregate: Aggregate,
    rounds: int | None,
    limit: Rule | None,
    seed: int,
) -> Valuing:
    """FedAvg with uniform sampling, in which every round's game is valued and the values add up.

    It yields what it asks of the providers, so that several valuations can be answered in one stack.
    """
    if aggregate not in ("sum", "mean"):
        raise BazaarError(f'aggregate {aggregate!r} is unknown: use "sum" or "mean"')
    values, variances = np.zeros((2, len(market.providers)))
    w, layer = market.start(), FirstLayer.of(market.consumer, market.evaluator)
    permutations, purse = 0, market.consumer.budget
    t, stopped = 0, None
    while stopped is None:
        asked = _draw(market, seed, t)
        price = sum(market.providers[i].price for i in asked)
        if price > purse or t == rounds:
            stopped = f"{t:,} rounds" if t == rounds else f"the budget paid for {t:,} rounds"
            break
        if rounds is None:
            purse -= price
        market.tally.oracle_calls += len(asked)
        replies = yield Ask(w, asked, t, seed)
        round_game = RoundGame.of(market, layer, w, replies.updates, asked, replies.failures, market.step(t), aggregate)
        if round_game is not None:
            result = value_round(round_game.game, t)
            values[round_game.members] += result.values
            variances[round_game.members] += result.standard_errors**2
            permutations += result.cost.permutations
            w = w + (market.step(t) / len(round_game.rows)) * replies.updates[round_game.rows].sum(0)
        t += 1
        if limit is not None:
            spent = market.tally.now()
            history = History(
                (values,), np.sqrt(variances), permutations, spent.seconds, spent.oracle_calls, spent.evaluations
            )
            reason = limit.reason(history)
            stopped = f"{reason}, after {t:,} rounds" if reason is not None else None
    market.tally.trainings += 1
    trained = market.trained(w)
    cost = market.tally.cost(permutations=permutations)
    return ValuationResult(method, market.ids, values, np.sqrt(variances), stopped, cost, trained)


def _draw(market: Market, seed: int, t: int) -> list[int]:
    """K providers without replacement, by the stream that the arbiter's draws come from."""
    n = len(market.providers)
    sampler = Uniform(replacement=False)
    draws: list[int] = sampler.draw(sampler.init(n), draws_stream(seed, t), market.consumer.per_round).tolist()
    return draws


@dataclass(frozen=True, eq=False)
class RoundGame:
    """The game between the providers of one round, who they are in the market, and which replies are theirs."""

    game: Game
    members: list[int]
    rows: list[int]

    @classmethod
    def of(
        cls,
        market: Market,
        layer: FirstLayer | None,
        w: Tensor,
        updates: Tensor,
        asked: Sequence[int],
        failures: dict[int, str],
        step: float,
        aggregate: Aggregate,
    ) -> RoundGame | None:
        """None where nobody gave a usable update. Scoring the updates one by one shows who did."""
        rows = [row for row, provider in enumerate(asked) if provider not in failures]
        if not rows:
            return None
        updates = updates[rows]
        scorer: Scorer = PlainScorer(market.evaluator, w, updates)
        if layer is not None and layer.fits(len(rows)):
            scorer = PrefixScorer(layer, w, updates)
        alone = scorer(np.concatenate([np.zeros((1, len(rows))), step * np.eye(len(rows))]))
        if not np.isfinite(alone[0]):
            raise BazaarError(f"the model's own utility is {alone[0]}: lower the steps, or begin elsewhere")
        finite = np.flatnonzero(np.isfinite(alone[1:]))
        if not len(finite):
            market.tally.evaluations += len(alone)
            return None

        def worth(coalitions: Coalitions) -> Vector:
            coefficients = np.zeros((len(coalitions), len(rows)))
            coefficients[:, finite] = step * coalitions
            if aggregate == "mean":
                coefficients /= np.maximum(coalitions.sum(1, keepdims=True), 1)
            return scorer(coefficients)

        game = Game([market.ids[asked[rows[i]]] for i in finite], worth, tally=market.tally)
        game.know(np.concatenate([game.nobody, np.eye(len(finite), dtype=bool)]), alone[[0, *(finite + 1)]])
        players = [rows[i] for i in finite]
        return cls(game, [asked[row] for row in players], players)
