"""The engine of learners that train on rows themselves: an access is answered by some of the provider's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

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
        places = {index: self._drawn(ask, index) for index in ask.providers}
        rows = {index: self._rows_at(index, drawn) for index, drawn in places.items()}
        return Replies(ask.params.new_empty(len(ask.providers), 0), {}, rows=rows, places=places)

    def _drawn(self, ask: Ask, index: int) -> NDArray[np.int64]:
        count = len(self._tables[index][1])
        return sample_order(oracle_key(ask.seed, ask.round, self._ids[index]), count, first=min(self._rows, count))

    def _rows_at(self, index: int, drawn: NDArray[np.int64]) -> Examples:
        x, y = self._tables[index]
        places = torch.from_numpy(drawn).to(self.device)
        return x[places], y[places]

    def close(self) -> None:
        self._tables.clear()
