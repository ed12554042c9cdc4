"""What a worker of a Ray cluster does: it holds all providers' data and answers for one of them at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Engine
from databazaar.engines.vectorized import NotVectorizableError, VectorizedEngine
from databazaar.learning.task import Task
from databazaar.parties.provider import Provider


class RayWorker:
    """Lives in a process of the cluster. Data and model are sent once, when it starts."""

    def __init__(self, task: Task, providers: Sequence[Provider]) -> None:
        torch.set_num_threads(1)
        self._engine = one_by_one(task, providers)

    def update(self, params: NDArray[Any], provider: int, round: int, seed: int) -> NDArray[Any] | str:
        """One provider's update of these parameters, or why there is none."""
        vector = torch.from_numpy(np.array(params))  # a copy: what Ray shares cannot be written to
        replies = self._engine.query(Ask(vector, [provider], round, seed))
        reason = replies.failures.get(provider)
        return reason if reason is not None else replies.updates[0].numpy()


def one_by_one(task: Task, providers: Sequence[Provider]) -> Engine:
    """The engine inside a worker: stacks of one row where a model can be stacked, because these are fast."""
    cpu = torch.device("cpu")
    try:
        return VectorizedEngine(task, providers, cpu)
    except NotVectorizableError:
        return LoopEngine(task, providers, cpu)
