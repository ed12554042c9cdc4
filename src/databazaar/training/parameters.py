"""Models that are a vector of parameters: what learners of networks, and of anything that callables move, share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Inputs
from databazaar.learning.models import caller
from databazaar.learning.own_rows import fit_own_rows, refit
from databazaar.learning.split import split_rows
from databazaar.learning.utilities import Evaluator, Scores
from databazaar.parties import Consumer
from databazaar.training.protocol import Model
from databazaar.vectors import HashedArray


@dataclass(frozen=True, eq=False)
class Parameters:
    """A vector of parameters."""

    vector: Tensor

    @cached_property
    def stored(self) -> HashedArray:
        """The vector on the host: its own memory, where that is the host's. Hashed once."""
        vector = self.vector.detach() if self.vector.requires_grad else self.vector
        array: NDArray[Any] = vector.numpy() if vector.is_cpu else vector.cpu().numpy()
        return HashedArray(array if array.flags.c_contiguous else np.ascontiguousarray(array))

    @property
    def size(self) -> int:
        return self.vector.numel()


def vector_of(model: Model) -> Tensor:
    """The parameters of a model that is a vector."""
    if not isinstance(model, Parameters):
        raise BazaarError("this model is no vector of parameters: use the model itself")
    return model.vector


@dataclass(frozen=True, eq=False)
class ParameterTraining:
    """All of a training but `init` and `learn`."""

    consumer: Consumer
    evaluator: Evaluator
    device: torch.device

    def restored(self, stored: NDArray[Any]) -> Model:
        return Parameters(torch.from_numpy(stored).to(self.device))

    def score(self, model: Model) -> Scores:
        return self.evaluator.score(vector_of(model)[None])

    def question(self, model: Model) -> Tensor:
        return vector_of(model)

    @torch.no_grad()
    def outputs(self, model: Model, x: Inputs) -> NDArray[np.float64]:
        task = self.consumer.task.copied()
        assert task.model is not None
        run = caller(task.model.cpu().eval())
        outputs = run(task.layout.unflatten(vector_of(model).cpu()), x.to(torch.device("cpu")))
        return outputs.double().numpy().reshape(len(outputs), -1)

    def own_rows_alone(self) -> Model:
        """How long to train, and how fast, is found with a part of the rows kept apart; then it is trained on all."""
        consumer = self.consumer
        assert consumer.holdout is not None
        task, start = consumer.task.copied(), consumer.untrained_parameters()
        found, train, judge = consumer.own_fit, consumer.train, consumer.holdout
        if found is None or train is None:
            parts = split_rows(consumer.holdout[1].cpu().numpy(), (0.75, 0.25), "the hold-out")
            train, judge = (
                (consumer.holdout[0][part], consumer.holdout[1][part]) for part in map(torch.from_numpy, parts)
            )
            found = fit_own_rows(task, start, train, judge)
        return Parameters(refit(task, start, train, judge, found))
