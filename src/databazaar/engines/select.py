"""Chooses an engine and a device by name."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Engine
from databazaar.engines.vectorized import NotVectorizableError, VectorizedEngine
from databazaar.errors import BazaarError
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


def make_engine(name: str, task: Task, providers: Sequence[Provider], device: str = "auto") -> Engine:
    """`loop`, or `vectorized`, which falls back to `loop` with a warning where the work cannot be stacked."""
    where = pick_device(device)
    if name == "loop":
        return LoopEngine(task, providers, where)
    if name != "vectorized":
        raise BazaarError(f"engine {name!r} is unknown: use loop or vectorized, or pass an engine of your own")
    try:
        return VectorizedEngine(task, providers, where)
    except NotVectorizableError as reason:
        warnings.warn(f"engine falls back from vectorized to loop: {reason}", stacklevel=2)
        return LoopEngine(task, providers, where)
