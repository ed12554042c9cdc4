"""A consumer's fit to its own rows is computed once for the same model and rows, not in each test of one market."""

from __future__ import annotations

import hashlib
from typing import Any

from torch import Tensor

from databazaar.learning.inputs import Examples
from databazaar.learning.own_rows import OwnFit, fit_own_rows
from databazaar.learning.task import Task
from databazaar.parties import consumer

_known: dict[Any, OwnFit] = {}


def known_fit(task: Task, start: Tensor, train: Examples, judge: Examples) -> OwnFit:
    """What fit_own_rows gives, which depends on nothing else."""
    given = [start, *train, *judge]
    if task.model is None or not all(isinstance(one, Tensor) for one in given):
        return fit_own_rows(task, start, train, judge)
    digest = hashlib.sha256()
    for one in [*given, *task.model.state_dict().values()]:
        assert isinstance(one, Tensor)
        digest.update(f"{one.dtype} {one.shape}".encode() + one.detach().cpu().contiguous().numpy().tobytes())
    kinds = tuple(type(module) for module in task.model.modules())
    key = digest.digest(), repr(task.model), kinds, task.loss, str(task.precision)
    if key not in _known:
        _known[key] = fit_own_rows(task, start, train, judge)
    return _known[key]


def remember_fits() -> None:
    consumer.fit_own_rows = known_fit  # type: ignore[attr-defined]
