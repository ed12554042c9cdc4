"""Whether an engine answers as the reference does: one call, clear complaints."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from databazaar.conformance import require
from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Engine
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
    """Compares an engine with the reference on every provider and some subsets; raises AssertionError.

    `tolerance` is relative to the largest entry of each update.
    """
    reference = LoopEngine(task, providers, torch.device("cpu"))
    everybody = list(range(len(providers)))
    for round, asked in enumerate([everybody, everybody[::-1], everybody[:1], everybody[::2]]):
        start = params.detach().cpu()
        expected = reference.query(Ask(start, asked, round, seed=5))
        got = engine.query(Ask(start.to(engine.device), asked, round, seed=5))
        require(
            got.updates.shape == expected.updates.shape,
            f"updates must be stacked as {list(expected.updates.shape)}, got {list(got.updates.shape)}",
        )
        require(
            set(got.failures) == set(expected.failures),
            f"failures must be {sorted(expected.failures)}, got {sorted(got.failures)}",
        )
        for row, index in enumerate(asked):
            ours, theirs = got.updates[row].cpu(), expected.updates[row]
            gap, scale = float((ours - theirs).abs().max()), float(theirs.abs().max())
            require(
                gap <= tolerance * max(scale, 1e-12),
                f"round {round}: the update of {providers[index].id} is off by {gap:g} (largest entry {scale:g})",
            )
