"""Whether a sampler keeps its promises: one call, clear complaints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from databazaar.conformance import require, require_rebuilt
from databazaar.roster import PriceChange, Roster, RoundBudget
from databazaar.samplers.protocol import SAMPLERS, Draws, Sampler, State, Vector, Wants


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
        _play(sampler, roster, per_round, rounds)


def _play(sampler: Sampler, roster: Roster, per_round: int, rounds: int) -> None:
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
