"""Whether an engine answers as the reference does: one call, clear complaints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from databazaar.conformance import require
from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Beginning, Engine, Remote, Replies, query_all
from databazaar.learning.task import Task
from databazaar.parties.provider import Provider


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
