"""Conformance checks for samplers and engines that other people write: one call, clear complaints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Engine
from databazaar.provider import Provider
from databazaar.samplers import Sampler, from_settings, settings_of
from databazaar.task import Task


def check_sampler(sampler: Sampler, *, providers: int = 7, per_round: int = 4, rounds: int = 50) -> None:
    """Plays the sampler against random gains and raises AssertionError at the first broken promise.

    >>> from databazaar import OSMD
    >>> check_sampler(OSMD(eta=1.0, alpha=0.1))
    """
    rng = np.random.default_rng(0)
    state = sampler.init(providers)
    _require(state.dtype == np.float64 and state.ndim == 1, "the state must be one float64 vector")
    rebuilt = from_settings(settings_of(sampler))
    _require(rebuilt == sampler, "the sampler must be rebuilt from its settings: register it under its kind")
    for round in range(rounds):
        p = sampler.probabilities(state)
        _require(p.shape == (providers,), f"probabilities must be one per provider, got shape {p.shape}")
        _require(bool(np.isfinite(p).all() and (p >= 0).all()), f"probabilities must be finite and ≥ 0, got {p}")
        _require(abs(p.sum() - 1) < 1e-9, f"probabilities must sum to 1, got {p.sum()!r}")
        draws = sampler.draw(state, np.random.default_rng(round), per_round)
        again = sampler.draw(state, np.random.default_rng(round), per_round)
        _require(draws.shape == (per_round,), f"draw must give {per_round} indices, got shape {draws.shape}")
        _require(bool((draws == again).all()), "draw must depend on nothing but the state and the generator")
        _require(bool((draws >= 0).all() and (draws < providers).all()), f"draws must be indices, got {draws}")
        _require(bool((p[draws] > 0).all()), "a provider of probability zero was drawn")
        gains = rng.normal(scale=10.0 ** rng.integers(-3, 6), size=providers)[draws]
        before = state.copy()
        moved = sampler.update(state, draws, gains)
        _require(bool((state == before).all()), "update must not change the state it is given")
        twice = sampler.update(state, draws, gains)
        _require(np.array_equal(moved, twice, equal_nan=True), "update must be a pure function")
        restored = np.frombuffer(moved.tobytes(), dtype=np.float64)
        _require(
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


def check_engine(
    engine: Engine,
    task: Task,
    providers: Sequence[Provider],
    params: torch.Tensor,
    *,
    tolerance: float = 1e-4,
) -> None:
    """Compares an engine with the reference on every provider and some subsets; raises AssertionError.

    `tolerance` is relative to the largest entry of each update.
    """
    reference = LoopEngine(task, providers, torch.device("cpu"))
    everybody = list(range(len(providers)))
    for round, asked in enumerate([everybody, everybody[::-1], everybody[:1], everybody[::2]]):
        start = params.detach().cpu()
        expected = reference.query(Ask(start, asked, round, seed=5))
        got = engine.query(Ask(start.to(engine.device), asked, round, seed=5))
        _require(
            got.updates.shape == expected.updates.shape,
            f"updates must be stacked as {list(expected.updates.shape)}, got {list(got.updates.shape)}",
        )
        _require(
            set(got.failures) == set(expected.failures),
            f"failures must be {sorted(expected.failures)}, got {sorted(got.failures)}",
        )
        for row, index in enumerate(asked):
            ours, theirs = got.updates[row].cpu(), expected.updates[row]
            gap, scale = float((ours - theirs).abs().max()), float(theirs.abs().max())
            _require(
                gap <= tolerance * max(scale, 1e-12),
                f"round {round}: the update of {providers[index].id} is off by {gap:g} (largest entry {scale:g})",
            )


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)
