"""Engines turn parameters and a list of providers into updates: in process, stacked, or over a network."""

from collections.abc import Sequence
from typing import Any

from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Beginning, Ended, Engine, Remote, Replies, pick_device, query_all
from databazaar.engines.rows import RowsEngine
from databazaar.engines.vectorized import VectorizedEngine
from databazaar.errors import BazaarError
from databazaar.learning.fit import outputs_on, refuse_targets
from databazaar.learning.inputs import refuse_missing
from databazaar.learning.oracles import Oracle
from databazaar.learning.task import Task
from databazaar.parties.provider import Provider
from databazaar.registry import ENGINES

__all__ = [
    "Ask",
    "Beginning",
    "Ended",
    "Engine",
    "LoopEngine",
    "Remote",
    "Replies",
    "RowsEngine",
    "VectorizedEngine",
    "make_engine",
    "query_all",
]


def make_engine(
    kind: str,
    task: Task,
    providers: Sequence[Provider],
    device: str = "auto",
    rows: int | None = None,
    **settings: Any,
) -> Engine:
    """The engine of this kind, such as `loop` or `vectorized`. `settings` are its own: `RayEngine` has some. For a
    learner that asks for rows, and no updates, it is the one that has them here."""
    engine = ENGINES.find(kind)
    _refuse_misfits(task, providers)
    if rows is not None:
        return RowsEngine(task, providers, pick_device(device), rows)
    made: Engine = engine.make(task, providers, device, **settings)
    return made


def _refuse_misfits(task: Task, providers: Sequence[Provider]) -> None:
    """Targets that the model has no output for are named before anything is paid. Inputs that it cannot take fail when
    they are asked for, as replies do."""
    outputs = None
    for provider in providers:
        if provider.data is not None and not task.takes_missing:
            refuse_missing(provider.dataset[0], f"provider {provider.id}")
        if task.model is None or not isinstance(provider.oracle, Oracle) or provider.data is None:
            continue
        x, y = provider.dataset
        if outputs is None:
            try:
                outputs = outputs_on(task.model, task.inputs(x), f"provider {provider.id}")
            except BazaarError:
                continue
        refuse_targets(task, task.targets(y), outputs, f"provider {provider.id}")
