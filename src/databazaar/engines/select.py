"""Makes an engine by its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from databazaar.engines.protocol import Engine
from databazaar.errors import BazaarError
from databazaar.learning.fit import outputs_on, refuse_targets
from databazaar.learning.oracles import Oracle
from databazaar.learning.task import Task
from databazaar.parties.provider import Provider
from databazaar.registry import ENGINES


def make_engine(kind: str, task: Task, providers: Sequence[Provider], device: str = "auto", **settings: Any) -> Engine:
    """The engine of this kind, such as `loop` or `vectorized`. `settings` are its own: `RayEngine` has some."""
    engine = ENGINES.find(kind)
    _refuse_misfits(task, providers)
    made: Engine = engine.make(task, providers, device, **settings)
    return made


def _refuse_misfits(task: Task, providers: Sequence[Provider]) -> None:
    """Targets that the model has no output for are named before anything is paid. Inputs that it cannot take fail when
    they are asked for, as replies do."""
    outputs = None
    for provider in providers:
        if task.model is None or not isinstance(provider.oracle, Oracle) or provider.data is None:
            continue
        x, y = provider.dataset
        if outputs is None:
            try:
                outputs = outputs_on(task.model, task.inputs(x), f"provider {provider.id}")
            except BazaarError:
                continue
        refuse_targets(task, task.targets(y), outputs, f"provider {provider.id}")
