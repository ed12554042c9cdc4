"""The reference engine: one provider at a time, in the order asked. Slow, clear, and good at explaining errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from databazaar.codes import Code
from databazaar.engines.protocol import Ask, Engine, Replies, as_update, out_of_memory, pick_device, raised
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples
from databazaar.learning.oracles import Oracle, compute_update
from databazaar.learning.task import Task
from databazaar.parties.provider import Provider
from databazaar.randomness import oracle_key


class LoopEngine(Engine):
    """Runs each oracle by itself. A failing one is a reply that says why, and the others go on."""

    kind = "loop"

    @classmethod
    def make(cls, task: Task, providers: Sequence[Provider], device: str) -> LoopEngine:
        return cls(task, providers, pick_device(device))

    def __init__(self, task: Task, providers: Sequence[Provider], device: torch.device) -> None:
        self.device = device
        self._task = replace(task, model=task.model.to(device)) if task.model is not None else task
        self._providers = list(providers)
        for provider in providers:
            if provider.oracle is None:
                raise BazaarError(
                    f"provider {provider.id} has neither data nor an oracle: give it one, or run federated"
                )
            if task.model is None and isinstance(provider.oracle, Oracle):
                raise BazaarError(f"provider {provider.id}'s oracle needs a torch model, not a plain vector")
        self._data = [_on(device, task, provider.data) if provider.data is not None else None for provider in providers]

    def query(self, ask: Ask) -> Replies:
        return Replies.of(ask, (self._answer(ask, index) for index in ask.providers))

    def _answer(self, ask: Ask, index: int) -> Tensor | Code:
        provider = self._providers[index]
        key = oracle_key(ask.seed, ask.round, provider.id)
        try:
            if isinstance(provider.oracle, Oracle):
                data = self._data[index]
                assert data is not None
                return compute_update(provider.oracle, self._task, data, ask.params, ask.round, key)
            assert callable(provider.oracle)
            return as_update(provider.oracle(ask.params.cpu().numpy().copy()), ask.params)
        except Exception as reason:
            if isinstance(provider.oracle, Oracle) and out_of_memory(reason):
                raise  # this machine's failure, and not the provider's
            return raised(reason)

    def close(self) -> None:
        pass


def _on(device: torch.device, task: Task, examples: Examples) -> Examples:
    x, y = examples
    return task.inputs(x).to(device), task.targets(y).to(device)
