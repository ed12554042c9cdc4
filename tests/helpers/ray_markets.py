"""Markets for Ray's workers, and what the workers compute, in one process."""

from __future__ import annotations

import torch

from databazaar import LocalSGD, Provider, build_model
from databazaar.engines import Ask, Engine, Replies
from databazaar.engines.ray_engine import engine_of_one
from databazaar.learning.oracles import StochasticGradient
from databazaar.learning.task import Task


class OneByOne(Engine):
    """What the workers compute, in this process."""

    device = torch.device("cpu")

    def __init__(self, task: Task, providers: list[Provider]) -> None:
        self._engines = [engine_of_one(task, provider) for provider in providers]

    def query(self, ask: Ask) -> Replies:
        each = [self._engines[i].query(Ask(ask.params, [0], ask.round, ask.seed)) for i in ask.providers]
        failures = {i: replies.failures[0] for i, replies in zip(ask.providers, each, strict=True) if replies.failures}
        return Replies(torch.cat([replies.updates for replies in each]), failures)


def sellers(count: int = 5) -> list[Provider]:
    generator = torch.Generator().manual_seed(3)
    oracles: list[LocalSGD | StochasticGradient] = [
        LocalSGD(step=0.1, batch_size=8, epochs=2),
        StochasticGradient(batch_size=7),
    ]
    rows = [20 + 13 * i for i in range(count)]
    return [
        Provider(
            f"p{i}",
            (torch.randn(n, 12, generator=generator), torch.randint(0, 3, (n,), generator=generator)),
            oracles[i % 2],
        )
        for i, n in enumerate(rows)
    ]


def model() -> torch.nn.Module:
    return build_model("mlp", [12], 3, hidden=[16], seed=1)
