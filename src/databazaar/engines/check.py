"""Whether an engine answers as the reference does: one call, clear complaints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from databazaar.conformance import require
from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Beginning, Engine, Replies, query_all
from databazaar.engines.room import Room
from databazaar.engines.sums import Sought, summed_from
from databazaar.learning.task import Task
from databazaar.learning.utilities import Evaluator
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
    together. `tolerance` is relative to the largest entry of each update. An engine that has `sums` is asked for them
    too, and must come to those of its own updates; providers' rows stand in for a hold-out.
    """
    require(isinstance(engine, Engine), f"{type(engine).__name__} lacks a part of Engine: inherit from it")
    reference = LoopEngine(task, providers, torch.device("cpu"))
    start = params.detach().cpu()
    engine.begin(Beginning("0" * 32))
    everybody = list(range(len(providers)))
    some = [everybody, everybody[::-1], everybody[:1], everybody[::2]]
    asks = [Ask(start, asked, round, seed=5) for round, asked in enumerate(some)]
    for ask in asks:
        _compare(ask, engine.query(_on(engine.device, ask)), reference, providers, tolerance)
    if engine.spares_memory:
        room = Room(torch.full((len(everybody), len(start)), torch.nan))
        got = engine.query(_on(engine.device, replace(asks[0], room=room)))
        _compare(asks[0], got, reference, providers, tolerance)
        same = torch.equal(room.rows(len(everybody)), got.updates.cpu())
        require(same, "an engine that spares memory must put the updates where the ask has room for them")
    together = [Ask(start * (1 + 0.01 * i), ask.providers, 3 - i, seed=5 + i) for i, ask in enumerate(asks)]
    replies = query_all(engine, [_on(engine.device, ask) for ask in together])
    require(len(replies) == len(together), f"{len(together)} asks must get as many replies, not {len(replies)}")
    for ask, got in zip(together, replies, strict=True):
        _compare(ask, got, reference, providers, tolerance)
    rows = next((provider.dataset for provider in providers if provider.data is not None), None)
    if type(engine).sums is not Engine.sums and task.model is not None and rows is not None:
        own = task.copied()
        evaluator = Evaluator(own, (own.inputs(rows[0]), own.targets(rows[1])), "negative-loss", engine.device)
        _compare_sums(engine, [_on(engine.device, ask) for ask in asks], evaluator, tolerance)


def _compare_sums(engine: Engine, asks: Sequence[Ask], evaluator: Evaluator, tolerance: float) -> None:
    """Everybody asked is drawn, and the first of them twice; gains are of another kind in each."""
    sought = [
        Sought(ask, [*ask.providers, ask.providers[0]], 0.5, gains, evaluator, own)
        for ask, gains, own in zip(asks, ("alone", "together", "shapley"), (None, asks[0].params, None), strict=False)
    ]
    for one, got in zip(sought, engine.sums(sought), strict=True):
        if got is None:
            continue  # it may always say so
        right = summed_from(one, engine.query(one.ask))
        require(right is not None, f"round {one.ask.round}: there is a sum, and no update is valid")
        assert right is not None
        require(got.failures == right.failures, f"failures of a sum must be {right.failures}, got {got.failures}")
        require(
            got.utilities.keys() == right.utilities.keys() == got.largest.keys(),
            f"round {one.ask.round}: a sum must score {sorted(right.utilities)}, got {sorted(got.utilities)}",
        )
        for what, ours, theirs in (
            ("the sum", right.total, got.total),
            ("the utility of the sum's model", right.reached.utility, got.reached.utility),
            *((f"largest number {i}", [right.largest[i]], [got.largest[i]]) for i in right.largest),
            *((f"utilities of provider {i}", right.utilities[i], got.utilities[i]) for i in right.utilities),
        ):
            expected, found = (torch.as_tensor(side).cpu().to(torch.float64) for side in (ours, theirs))
            require(expected.shape == found.shape, f"round {one.ask.round}: {what} must have shape {expected.shape}")
            gap, scale = float((expected - found).abs().max()), float(expected.abs().max())
            require(gap <= tolerance * max(scale, 1e-12), f"round {one.ask.round}: {what} is off by {gap:g}")


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
