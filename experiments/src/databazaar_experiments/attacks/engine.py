"""A market in which most providers are ordinary: those are computed as one stack, and attackers one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from databazaar.codes import Code
from databazaar.engines import Ask, Engine, LoopEngine, Replies, make_engine
from databazaar.learning.oracles import Oracle
from databazaar.learning.task import Task
from databazaar.parties import Provider


class MixedEngine(Engine):
    """Providers with an oracle of ours go to the vectorized engine, those that answer by a callable to the loop."""

    name = "mixed"

    def __init__(self, task: Task, providers: Sequence[Provider], device: str = "cpu") -> None:
        ours = [isinstance(provider.oracle, Oracle) for provider in providers]
        self._place = [sum(part == ours[i] for part in ours[:i]) for i in range(len(ours))]
        self._ours = ours
        stacked = [provider for provider, own in zip(providers, ours, strict=True) if own]
        self._stack = make_engine("vectorized", task, stacked, device) if stacked else None
        self.device = torch.device("cpu") if self._stack is None else self._stack.device
        self._loop = LoopEngine(task, [p for p, own in zip(providers, ours, strict=True) if not own], self.device)

    def query(self, ask: Ask) -> Replies:
        updates = ask.params.new_zeros(len(ask.providers), len(ask.params))
        failures: dict[int, Code] = {}
        for engine, ours in ((self._stack, True), (self._loop, False)):
            rows = [row for row, i in enumerate(ask.providers) if self._ours[i] == ours]
            if not rows or engine is None:
                continue
            places = [self._place[ask.providers[row]] for row in rows]
            replies = engine.query(replace(ask, providers=places))
            updates[rows] = replies.updates
            failures |= {
                ask.providers[row]: replies.failures[place]
                for row, place in zip(rows, places, strict=True)
                if place in replies.failures
            }
        return Replies(updates, failures)

    def close(self) -> None:
        for engine in (self._stack, self._loop):
            if engine is not None:
                engine.close()
