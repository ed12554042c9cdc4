"""Checks for rules, engines and transports of your own, for a test: AssertionError where a contract is broken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from databazaar.aggregators import AGGREGATORS, Aggregator, Mean
from databazaar.codes import Code
from databazaar.engines import Ask, Beginning, Engine, LoopEngine, Remote, Replies, make_engine, query_all
from databazaar.errors import BazaarError
from databazaar.federation.transport import check_transport
from databazaar.learners import LEARNERS, Learner, Market
from databazaar.learning.task import Task
from databazaar.ledger import Drawn
from databazaar.models import MODELS
from databazaar.parties import Consumer, Provider
from databazaar.payments import PAYMENTS, Payment
from databazaar.registry import Registry
from databazaar.roster import PriceChange, Roster, RoundBudget
from databazaar.samplers import SAMPLERS, Sampler, Wants
from databazaar.samplers.protocol import Draws, State, Vector
from databazaar.stops import STOPS, History, Stop
from databazaar.training import Lesson, Memory

__all__ = [
    "check_aggregator",
    "check_engine",
    "check_learner",
    "check_payment",
    "check_sampler",
    "check_stop",
    "check_transport",
]


def require(holds: bool, complaint: str) -> None:
    """Raises AssertionError with the complaint where something does not hold."""
    if not holds:
        raise AssertionError(complaint)


def require_rebuilt(registry: Registry, rule: Any) -> None:
    """A rule must come back whole from the settings that a ledger holds of it."""
    try:
        registry.adopt(rule)
        registry.refuse_unwritable(rule)
    except BazaarError as reason:
        raise AssertionError(f"the {registry.noun} cannot be kept in a ledger: {reason}") from None


def check_sampler(sampler: Sampler, *, providers: int = 7, per_round: int = 4, rounds: int = 50) -> None:
    """Plays the sampler against random gains and raises AssertionError at the first broken promise.

    It is played with one price for all, with prices that the rest of the budget does not always pay, and with caps, a
    limit and a price that changes in mid-run.

    >>> from databazaar import OSMD
    >>> check_sampler(OSMD(eta=1.0, alpha=0.1))
    """
    require_rebuilt(SAMPLERS, sampler)
    require(isinstance(getattr(sampler, "wants", None), Wants), "the class must say what it wants: wants = Wants()")
    dearer = Roster.of((f"p{i}", f"owner {i // 2}", 1 + 3 * i) for i in range(providers))
    changed = PriceChange(max(1, rounds // 2), 2 + 3 * providers)
    capped = Roster(
        tuple(
            replace(offer, most_accesses=rounds // 2 if i % 2 else None, price_changes=() if i else (changed,))
            for i, offer in enumerate(dearer.offers)
        )
    )
    for roster in (Roster.equal(providers), dearer, capped):
        _play_sampler(sampler, roster, per_round, rounds)


def _play_sampler(sampler: Sampler, roster: Roster, per_round: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    budget = int(roster.prices.sum()) * rounds
    state = sampler.init(roster, budget, per_round)
    vector = isinstance(state, np.ndarray) and state.dtype == np.float64 and state.ndim == 1
    require(vector, "the state must be one float64 vector")
    again = sampler.init(roster, budget, per_round)
    require(
        np.array_equal(state, again),
        "init must depend on nothing but the roster, the budget and the draws",
    )
    used = np.zeros(len(roster), dtype=np.int64)
    for round in range(rounds):
        prices, caps = roster.at(round).prices, roster.most_accesses
        rest = None if caps is None else caps - used
        least, dearest = int((prices if rest is None else prices[rest > 0]).min()), int(prices.max())
        left = budget if round % 2 else int(rng.integers(least, dearest + least + 1))
        round_budget = RoundBudget(left, prices, rest, None if rest is None else max(least, dearest - round % 3))
        draws = round_budget.fitting(_check_draw(sampler, state, round_budget, per_round, round))
        np.add.at(used, draws, 1)
        gains = rng.normal(scale=10.0 ** rng.integers(-3, 6), size=len(roster))[draws]
        state = _check_update(sampler, state, draws, gains, round_budget)
    if sampler.wants.failures:
        _check_update(sampler, state, draws, np.full(len(draws), -np.inf), round_budget)
    for bad in (np.nan, np.inf):
        try:
            sampler.update(state, draws, np.full(len(draws), bad), round_budget)
        except ValueError:
            continue
        raise AssertionError(f"update must refuse a gain of {bad} with a ValueError")


def _check_draw(sampler: Sampler, state: State, round_budget: RoundBudget, per_round: int, round: int) -> Draws:
    p = sampler.probabilities(state, round_budget)
    providers = len(round_budget.quotes)
    require(p.shape == (providers,), f"probabilities must be one per provider, got shape {p.shape}")
    require(bool(np.isfinite(p).all() and (p >= 0).all()), f"probabilities must be finite and ≥ 0, got {p}")
    require(abs(p.sum() - 1) < 1e-9, f"probabilities must sum to 1, got {p.sum()!r}")
    require(
        not p[~round_budget.available].any(),
        "a provider that the round's budget does not let be asked has a probability",
    )
    draws = sampler.draw(state, np.random.default_rng(round), per_round, round_budget)
    again = sampler.draw(state, np.random.default_rng(round), per_round, round_budget)
    full = round_budget.everybody and not sampler.wants.short_rounds
    require(
        draws.ndim == 1 and (len(draws) == per_round if full else 1 <= len(draws) <= per_round),
        f"draw must give {per_round} indices, and at least one where some are too dear, got shape {draws.shape}",
    )
    require(
        np.array_equal(draws, again), "draw must depend on nothing but the state, the generator and the round's budget"
    )
    require(bool((draws >= 0).all() and (draws < providers).all()), f"draws must be indices, got {draws}")
    require(bool((p[draws] > 0).all()), "a provider of probability zero was drawn")
    return draws


def _check_update(sampler: Sampler, state: State, draws: Draws, gains: Vector, round_budget: RoundBudget) -> State:
    before = np.array(state)
    moved = sampler.update(state, draws, gains, round_budget)
    require(np.array_equal(state, before, equal_nan=True), "update must not change the state it is given")
    twice = sampler.update(state, draws, gains, round_budget)
    require(np.array_equal(moved, twice, equal_nan=True), "update must be a pure function")
    restored = np.frombuffer(moved.tobytes(), dtype=np.float64).copy()
    p, again = sampler.probabilities(moved, round_budget), sampler.probabilities(restored, round_budget)
    require(np.array_equal(p, again, equal_nan=True), "the state must survive being stored")
    return moved


def check_aggregator(aggregator: Aggregator, *, width: int = 5, rounds: int = 20) -> None:
    """Combines random updates, from one to ten a round, and raises AssertionError at the first broken promise.

    >>> from databazaar import Mean
    >>> check_aggregator(Mean())
    """
    require_rebuilt(AGGREGATORS, aggregator)
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        params = torch.zeros(width, dtype=dtype)
        state = aggregator.init(params)
        require(state.dim() == 1 and state.dtype == dtype, "the state must be one vector of the parameters' type")
        for round in range(rounds):
            updates = torch.randn(1 + 3 * round % 10, width, generator=generator, dtype=dtype)
            given, kept = updates.clone(), state.clone()
            state_after, move = aggregator.combine(state, updates, 0.5)
            again = aggregator.combine(state, updates, 0.5)
            require(move.shape == (width,) and move.dtype == dtype, f"the move must be like the parameters, got {move}")
            require(bool(torch.isfinite(move).all()), "finite updates must give a finite move")
            require(bool((updates == given).all() and (state == kept).all()), "combine must not change its arguments")
            require(bool((move == again[1]).all()), "combine must be a pure function")
            same = state_after.shape == again[0].shape and bool((state_after == again[0]).all())
            require(same, "combine must be a pure function of the state too")
            require(
                state_after.dtype == dtype and state_after.dim() == 1, "the new state must be a vector like the old"
            )
            state = state_after
        still = aggregator.combine(aggregator.init(params), torch.zeros(3, width, dtype=dtype), 0.5)[1]
        require(not bool(still.any()), "updates of zero must not move the model")


def check_learner(learner: Learner, *, rounds: int = 5, model: str | None = None) -> None:
    """Trains a small model for some rounds, one provider failing now and then, and raises AssertionError at the first
    broken promise. `model` is the kind of the model, where it is not the learner's example.

    >>> from databazaar.learners import Averaging
    >>> check_learner(Averaging())
    """
    require_rebuilt(LEARNERS, learner)
    require(learner.passes >= 1, "a round goes at least once through each of its rows")
    rng, kind = np.random.default_rng(0), model or learner.example
    target = np.int64 if "classification" in MODELS.find(kind).tasks else np.float32
    tables = [(rng.normal(size=(30, 3)).astype(np.float32), rng.integers(0, 2, 30).astype(target)) for _ in range(4)]
    consumer = Consumer(kind, budget=100, holdout=tables[0], per_round=3)
    providers, device = [Provider(f"p{i}", table) for i, table in enumerate(tables[1:])], torch.device("cpu")
    training = learner.training(Market(consumer, Mean(), device, seed=0, rounds=rounds))
    engine = make_engine("loop", consumer.task, providers, "cpu", learner.rows)
    now, budget = learner.begin(consumer), RoundBudget(3, np.ones(3, dtype=np.int64))
    memory, scores = training.init(now), training.score(now)
    for round in range(rounds):
        drawn = Drawn(rng.integers(0, 3, 3), np.ones(3), budget)
        asked = drawn.asked[round % 2 :]  # in every second round the first one is set aside
        replies = engine.query(Ask(training.question(now), asked, round, 0)).among(
            asked, drawn.asked, Code("quarantined")
        )
        utility, loss = float(scores.utility[0]), None if scores.loss is None else float(scores.loss[0])
        lesson = Lesson(now, memory, utility, loss, drawn, replies, round, spent=round / rounds)
        given = now.stored.array.copy(), {name: kept.clone() for name, kept in memory.items()}
        learned = training.learn(lesson)
        again = training.learn(replace(lesson, model=training.restored(given[0].copy()), memory=_stored(memory)))
        require(set(learned.gains) == set(drawn.asked), "everybody who was asked has a gain, None where it failed")
        failed = {i for i, gain in learned.gains.items() if gain is None}
        require(failed == set(learned.failures), "every gain of None has its reason, and no other has one")
        require(set(replies.failures) <= failed, "a reply that failed has no gain")
        require(all(math.isfinite(gain) for gain in learned.gains.values() if gain is not None), "gains must be finite")
        require(bool(np.isfinite(learned.scores.utility).all()), "the next model must have a finite utility")
        valued = training.learn(replace(lesson, values_rows=True))
        for each in (again, valued):
            same = learned.model.stored.hash == each.model.stored.hash and learned.gains == each.gains
            require(same, "learn must be a pure function, also of a stored model and memory, and where rows are valued")
        whole = all(np.isfinite([one.gains, one.losses]).all() for one in valued.rows.values())
        require(whole and set(valued.rows) <= set(replies.rows), "values must be finite, and of rows that were bought")
        kept = np.array_equal(now.stored.array, given[0])
        kept = kept and all(torch.equal(memory[name], given[1][name]) for name in memory)
        require(kept, "learn must not change what it is given")
        require(set(learned.memory) == set(memory), "what is remembered has the same names in every round")
        now, memory, scores = learned.model, learned.memory, learned.scores


def _stored(memory: Memory) -> Memory:
    """As a snapshot gives it back."""
    return {name: torch.from_numpy(kept.numpy().copy()) for name, kept in memory.items()}


def check_payment(payment: Payment, *, providers: int = 6, rounds: int = 50) -> None:
    """Settles random rounds and raises AssertionError at the first broken promise.

    >>> from databazaar import PricePerAccess
    >>> check_payment(PricePerAccess())
    """
    require_rebuilt(PAYMENTS, payment)
    rng = np.random.default_rng(0)
    for roster in (Roster.equal(providers), Roster.of((f"p{i}", f"p{i}", 10**i) for i in range(providers))):
        quotes = payment.quote(roster)
        require(
            quotes.shape == (providers,) and quotes.dtype == np.int64 and bool((quotes >= 1).all()),
            f"quote must give one whole amount of 1 or more per provider, as int64, got {quotes!r}",
        )
        require(np.array_equal(quotes, payment.quote(roster)), "quote must be a pure function")
        for _ in range(rounds):
            draws = rng.integers(0, providers, 4)
            numbers = rng.normal(scale=10.0 ** rng.integers(-6, 3), size=4).tolist()
            gains = [None if rng.random() < 0.3 else gain for gain in numbers]
            quoted = quotes[draws].tolist()
            paid = payment.settle(quoted, gains)
            require(list(paid) == list(payment.settle(quoted, gains)), "settle must be a pure function")
            require(len(paid) == 4, f"settle must give one amount per draw, got {paid}")
            for amount, quote, gain in zip(paid, quoted, gains, strict=True):
                whole = isinstance(amount, int | np.integer) and not isinstance(amount, bool)
                require(whole, f"a payment must be a whole number, got {amount!r}")
                require(0 <= amount <= quote, f"paid {amount} for a quote of {quote}: it must be 0 ≤ paid ≤ quoted")
                require(gain is not None or amount == 0, f"paid {amount} where there was no valid reply")


def check_stop(stop: Stop, *, rounds: int = 60) -> None:
    """Shows the stop random histories and raises AssertionError at the first broken promise.

    >>> from databazaar import TargetUtility
    >>> check_stop(TargetUtility(0.9))
    """
    require_rebuilt(STOPS, stop)
    rng = np.random.default_rng(0)
    prices = Roster.equal(4, price=3).prices
    for rate in (0.0, 0.01, 0.2):
        utilities: list[float] = []
        for played in range(rounds):
            round_budget = RoundBudget(6 * (rounds - played), prices)
            history = History(played, tuple(utilities), int(rng.integers(0, played + 1)), round_budget, per_round=2)
            reason = stop.reason(history)
            require(reason is None or isinstance(reason, Code), f"a reason is a Code, and not {reason!r}")
            require(reason == stop.reason(history), "reason must be a pure function of the history")
            last = utilities[-1] if utilities else float(rng.random())
            utilities += [] if utilities else [last]
            utilities.append(last + rate * (1 - last) + float(rng.normal(scale=0.01)))


def check_engine(
    engine: Engine,
    task: Task,
    providers: Sequence[Provider],
    params: torch.Tensor,
    *,
    tolerance: float = 1e-4,
) -> None:
    """Begins a run on an engine and compares its answers with the reference's; raises AssertionError.

    Every provider and some subsets are asked, first one ask after the other, then asks of several rounds and seeds
    together. `tolerance` is relative to the largest entry of each update.
    """
    require(isinstance(engine, Engine), f"{type(engine).__name__} lacks a part of Engine: inherit from it")
    reference = LoopEngine(task, providers, torch.device("cpu"))
    start = params.detach().cpu()
    if isinstance(engine, Remote):
        engine.begin(Beginning("0" * 32))
    everybody = list(range(len(providers)))
    some = [everybody, everybody[::-1], everybody[:1], everybody[::2]]
    asks = [Ask(start, asked, round, seed=5) for round, asked in enumerate(some)]
    for ask in asks:
        _compare(ask, engine.query(_on(engine.device, ask)), reference, providers, tolerance)
    together = [Ask(start * (1 + 0.01 * i), ask.providers, 3 - i, seed=5 + i) for i, ask in enumerate(asks)]
    replies = query_all(engine, [_on(engine.device, ask) for ask in together])
    require(len(replies) == len(together), f"{len(together)} asks must get as many replies, not {len(replies)}")
    for ask, got in zip(together, replies, strict=True):
        _compare(ask, got, reference, providers, tolerance)


def _on(device: torch.device, ask: Ask) -> Ask:
    return replace(ask, params=ask.params.to(device))


def _compare(ask: Ask, got: Replies, reference: Engine, providers: Sequence[Provider], tolerance: float) -> None:
    expected = reference.query(ask)
    require(
        got.updates.shape == expected.updates.shape,
        f"updates must be stacked as {list(expected.updates.shape)}, got {list(got.updates.shape)}",
    )
    require(
        set(got.failures) == set(expected.failures),
        f"failures must be {sorted(expected.failures)}, got {sorted(got.failures)}",
    )
    for row, index in enumerate(ask.providers):
        update, right = got.updates[row].cpu(), expected.updates[row]
        gap, scale = float((update - right).abs().max()), float(right.abs().max())
        require(
            gap <= tolerance * max(scale, 1e-12),
            f"round {ask.round}: the update of {providers[index].id} is off by {gap:g} (largest entry {scale:g})",
        )
