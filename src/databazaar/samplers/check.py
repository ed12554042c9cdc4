"""Whether a sampler keeps its promises: one call, clear complaints."""

from __future__ import annotations

import numpy as np

from databazaar.conformance import require
from databazaar.samplers.protocol import Sampler, from_settings, settings_of


def check_sampler(sampler: Sampler, *, providers: int = 7, per_round: int = 4, rounds: int = 50) -> None:
    """Plays the sampler against random gains and raises AssertionError at the first broken promise.

    >>> from databazaar import OSMD
    >>> check_sampler(OSMD(eta=1.0, alpha=0.1))
    """
    rng = np.random.default_rng(0)
    state = sampler.init(providers)
    require(state.dtype == np.float64 and state.ndim == 1, "the state must be one float64 vector")
    rebuilt = from_settings(settings_of(sampler))
    require(rebuilt == sampler, "the sampler must be rebuilt from its settings: register it under its kind")
    for round in range(rounds):
        p = sampler.probabilities(state)
        require(p.shape == (providers,), f"probabilities must be one per provider, got shape {p.shape}")
        require(bool(np.isfinite(p).all() and (p >= 0).all()), f"probabilities must be finite and ≥ 0, got {p}")
        require(abs(p.sum() - 1) < 1e-9, f"probabilities must sum to 1, got {p.sum()!r}")
        draws = sampler.draw(state, np.random.default_rng(round), per_round)
        again = sampler.draw(state, np.random.default_rng(round), per_round)
        require(draws.shape == (per_round,), f"draw must give {per_round} indices, got shape {draws.shape}")
        require(bool((draws == again).all()), "draw must depend on nothing but the state and the generator")
        require(bool((draws >= 0).all() and (draws < providers).all()), f"draws must be indices, got {draws}")
        require(bool((p[draws] > 0).all()), "a provider of probability zero was drawn")
        gains = rng.normal(scale=10.0 ** rng.integers(-3, 6), size=providers)[draws]
        before = state.copy()
        moved = sampler.update(state, draws, gains)
        require(bool((state == before).all()), "update must not change the state it is given")
        twice = sampler.update(state, draws, gains)
        require(np.array_equal(moved, twice, equal_nan=True), "update must be a pure function")
        restored = np.frombuffer(moved.tobytes(), dtype=np.float64)
        require(
            np.array_equal(sampler.probabilities(restored.copy()), sampler.probabilities(moved), equal_nan=True),
            "the state must survive being stored",
        )
        state = moved
    for bad in (np.nan, np.inf):
        try:
            sampler.update(state, draws, np.full(per_round, bad))
        except ValueError:
            continue
        raise AssertionError(f"update must refuse a gain of {bad} with a ValueError")
