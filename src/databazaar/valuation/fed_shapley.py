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

import numpy as np

from databazaar.engines import Ask, Engine
from databazaar.errors import BazaarError
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.randomness import draws_stream
from databazaar.roster import Purse, Roster
from databazaar.samplers import Uniform
from databazaar.valuation.exact import asking_exact, few_enough
from databazaar.valuation.games import Asking, Coalitions, Game, all_coalitions
from databazaar.valuation.history import History
from databazaar.valuation.market import Market, Valuing
from databazaar.valuation.monte_carlo import asking_permutations
from databazaar.valuation.permutations import Shuffle, first_block
from databazaar.valuation.result import ValuationResult
from databazaar.valuation.round_game import Aggregate, Opening, all_are_cheap, along, singles
from databazaar.valuation.scoring import FirstLayer
from databazaar.valuation.stopping import BackCheck, MaxPermutations, Rule

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
    tell: Callable[[float], None] = lambda share: None,
) -> Valuing:
    """`fed_shapley` on a market that is open already, yielding its wishes. `tell` hears which share is done.

    Permutations before the rule can stop are worked out at once, and `batch` at a time after them.
    """
    lead = first_block(stop, batch)

    def orders_of(players: int, t: int) -> Shuffle:
        return Shuffle(players, seed, f"fedsv round {t}")

    def ahead(players: int, cost: float, t: int) -> Coalitions:
        """All coalitions where they are needed or cost next to nothing, else those of the first permutations."""
        if exact:
            few_enough(players)
        if exact or all_are_cheap(players, cost):
            return all_coalitions(players)
        return along(orders_of(players, t).block(0, lead))

    def value_round(game: Game, t: int) -> Asking[ValuationResult]:
        if exact:
            return asking_exact(game)
        return asking_permutations(game, stop, orders_of(len(game.players), t), batch=batch, lead=lead)

    method = "fedsv-exact" if exact else "fedsv"
    return value_rounds(market, value_round, method, aggregate, rounds, limit, seed, ahead, tell)


def value_rounds(
    market: Market,
    value_round: Callable[[Game, int], Asking[ValuationResult]],
    method: str,
    aggregate: Aggregate,
    rounds: int | None,
    limit: Rule | None,
    seed: int,
    ahead: Callable[[int, float, int], Coalitions] = lambda players, cost, t: singles(players),
    tell: Callable[[float], None] = lambda share: None,
) -> Valuing:
    """FedAvg with uniform sampling, in which every round's game is valued and the values add up.

    It yields what it asks of the providers and which models it wants scored, so that several valuations can be
    answered in one stack. `ahead(players, floats per model, t)` are coalitions to be scored as soon as the updates are
    there, with the providers one by one.
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
        opening = Opening.of(market, layer, w, replies, asked, market.step(t), aggregate)
        round_game = None
        if opening is not None:
            coalitions = ahead(len(opening.rows), opening.scorer.cost, t)
            round_game = opening.game((yield opening.wish(coalitions)), coalitions)
        if round_game is not None:
            result = yield from round_game.answered(value_round(round_game.game, t))
            values[round_game.members] += result.values
            variances[round_game.members] += result.standard_errors**2
            permutations += result.cost.permutations
            w = w + (market.step(t) / len(round_game.members)) * round_game.updates.sum(0)
        t += 1
        tell(t / rounds if rounds is not None else 1 - purse / market.consumer.budget)
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
    sampler, roster = Uniform(replacement=False), Roster.equal(len(market.providers))
    state = sampler.init(roster, len(roster), market.consumer.per_round)
    purse = Purse(len(roster), roster.prices)
    draws: list[int] = sampler.draw(state, draws_stream(seed, t), market.consumer.per_round, purse).tolist()
    return draws
