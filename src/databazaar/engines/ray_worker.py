"""What a worker of a Ray cluster does: it holds all providers' data and answers for one of them at a time.

The rows of a stack are not independent of each other to the last bit: matrix products of other shapes are summed in
another order. So a worker computes every provider's update by itself, on one thread. Then the bits are the same
whichever worker computes them, with whatever else, and however many workers there are.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar import __version__
from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Engine
from databazaar.engines.vectorized import NotVectorizableError, VectorizedEngine
from databazaar.learning.task import Task
from databazaar.parties.provider import Provider

Floats = NDArray[Any]


class RayWorker:
    """Lives in a process of the cluster, as a Ray actor. Data and model are sent once, when it starts."""

    def __init__(self, work: tuple[Task, Sequence[Provider]]) -> None:
        torch.set_num_threads(1)
        self._engine = one_by_one(*work)

    def versions(self) -> dict[str, str]:
        """Of what its bits depend on."""
        return {"databazaar": __version__, "torch": torch.__version__}

    def update(self, params: Floats, provider: int, round: int, seed: int) -> Floats | str:
        """One provider's update of these parameters, or why there is none."""
        vector = torch.from_numpy(np.array(params))  # a copy: what Ray shares cannot be written to
        replies = self._engine.query(Ask(vector, [provider], round, seed))
        reason = replies.failures.get(provider)
        return reason if reason is not None else replies.updates[0].numpy()


def one_by_one(task: Task, providers: Sequence[Provider]) -> Engine:
    """The engine inside a worker, with a fast path where the model has one."""
    cpu = torch.device("cpu")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return VectorizedEngine(task, providers, cpu)
    except NotVectorizableError:
        return LoopEngine(task, providers, cpu)
