"""The engine of learners that train on rows themselves: an access is answered by some of the provider's rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from databazaar.engines.protocol import Ask, Engine, Replies
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples
from databazaar.learning.task import Task
from databazaar.parties.provider import Provider
from databazaar.randomness import oracle_key, sample_order


class RowsEngine(Engine):
    """Answers an access by at most `rows` rows of the provider, drawn anew for every round without replacement.

    The rows lie here, as they do where one's own files are the market or a hub holds the tables.
    """

    kind = "rows"

    def __init__(self, task: Task, providers: Sequence[Provider], device: torch.device, rows: int) -> None:
        self.device, self._rows = device, rows
        self._ids = [provider.id for provider in providers]
        self._tables: list[Examples] = []
        for provider in providers:
            if provider.data is None:
                raise BazaarError(
                    f"provider {provider.id} gives no rows, and this learner trains on rows: give it data = (x, y), or "
                    'use learner "averaging"'
                )
            x, y = provider.dataset
            self._tables.append((task.inputs(x).to(device), task.targets(y).to(device)))

    def query(self, ask: Ask) -> Replies:
        rows = {index: self._drawn(ask, index) for index in ask.providers}
        return Replies(ask.params.new_empty(len(ask.providers), 0), {}, rows=rows)

    def _drawn(self, ask: Ask, index: int) -> Examples:
        x, y = self._tables[index]
        order = sample_order(oracle_key(ask.seed, ask.round, self._ids[index]), len(y), first=min(self._rows, len(y)))
        places = torch.from_numpy(order).to(self.device)
        return x[places], y[places]

    def close(self) -> None:
        self._tables.clear()
