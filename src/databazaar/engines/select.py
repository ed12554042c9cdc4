"""Chooses an engine and a device by name."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Engine
from databazaar.engines.vectorized import NotVectorizableError, VectorizedEngine
from databazaar.errors import BazaarError
from databazaar.learning.fit import outputs_on, refuse_targets
from databazaar.learning.oracles import Oracle
from databazaar.learning.task import Task
from databazaar.parties.provider import Provider


def pick_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise BazaarError(f"device {name!r} is not here: use auto, cpu, or a GPU that torch can see") from None
    return device


def make_engine(
    name: str,
    task: Task,
    providers: Sequence[Provider],
    device: str = "auto",
    *,
    address: str | None = None,
    workers: int | None = None,
    wait: float = 60.0,
) -> Engine:
    """`loop`, or `vectorized`, which falls back to `loop` with a warning where the work cannot be stacked; or `ray`,
    which `address`, `workers` and `wait` are for: see `RayEngine`."""
    if name == "ray":
        from databazaar.engines.ray_engine import RayEngine

        if device not in ("auto", "cpu"):
            raise BazaarError(f"device {device!r}: the workers of engine ray compute on processors: use auto or cpu")
        _refuse_misfits(task, providers)
        return RayEngine(task, providers, address=address, workers=workers, wait=wait)
    where = pick_device(device)
    _refuse_misfits(task, providers)
    if name == "loop":
        return LoopEngine(task, providers, where)
    if name != "vectorized":
        raise BazaarError(f"engine {name!r} is unknown: use loop, vectorized or ray, or pass an engine of your own")
    try:
        return VectorizedEngine(task, providers, where)
    except NotVectorizableError as reason:
        warnings.warn(f"engine falls back from vectorized to loop: {reason}", stacklevel=2)
        return LoopEngine(task, providers, where)


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
