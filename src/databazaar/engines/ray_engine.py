"""Many machines: the providers' updates are computed by workers of a Ray cluster.

Every worker holds the data of all providers. With a share of them each, a round that draws K of n would leave workers
idle whenever those drawn lie with few of them, and markets come to prefer a few; and a lost worker's share would have
to be sent before anybody could go on. What is drawn goes to whoever is free, one provider at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from databazaar import __version__
from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Engine, Replies
from databazaar.engines.ray_cluster import Cluster, here, refuse_without_ray
from databazaar.engines.ray_pool import Call, Shared, WorkerPool
from databazaar.engines.ray_worker import RayWorker
from databazaar.errors import BazaarError
from databazaar.learning.inputs import NamedInputs
from databazaar.learning.task import Task
from databazaar.parties.provider import Provider


class RayEngine(Engine):
    """Answers by the workers of a Ray cluster, to the same bits however many there are and whichever die.

    Without an `address`, a cluster of its own starts on this machine with the first ask and ends with `close`; else it
    is "auto", "host:6379" or "ray://host:10001". `workers` are at most as many as the cluster has processors, and that
    many where nothing is said. `wait` are the seconds that a lost cluster has to come back, or to find room for workers,
    before the run stops. A callable oracle must be a function of the parameters alone: each worker has its own copy.
    """

    name = "ray"

    def __init__(
        self,
        task: Task,
        providers: Sequence[Provider],
        *,
        address: str | None = None,
        workers: int | None = None,
        wait: float = 60.0,
    ) -> None:
        refuse_without_ray()
        self.device = torch.device("cpu")
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise BazaarError(f"workers = {workers!r} must be a whole number of at least 1, or left out")
        if address is None and workers is not None and workers > here():
            raise BazaarError(
                f"engine.workers = {workers} and this machine has {here()} processors: lower workers, or give the "
                "address of a cluster"
            )
        LoopEngine(task, providers, self.device)  # refuses providers that cannot answer
        self._work = (task, list(providers))
        self._settings = address, workers, wait
        self._cluster: Cluster | None = None
        self._pool: WorkerPool | None = None
        self._closed = False

    def query(self, ask: Ask) -> Replies:
        return self.query_many([ask])[0]

    def query_many(self, asks: Sequence[Ask]) -> list[Replies]:
        """All providers of all asks are one heap of work, that whoever is free takes from."""
        updates = [ask.params.new_zeros(len(ask.providers), len(ask.params)) for ask in asks]
        failures: list[dict[int, str]] = [{} for _ in asks]
        sent: dict[int, Shared] = {}
        calls, rows = [], []
        for place, ask in enumerate(asks):
            params = sent.setdefault(id(ask.params), Shared(ask.params.detach().numpy()))
            for row, provider in enumerate(ask.providers):
                calls.append(Call("update", (params, provider, ask.round, ask.seed)))
                rows.append((place, row, provider))

        def take(call: int, answer: Any) -> None:
            place, row, provider = rows[call]
            if isinstance(answer, str):
                failures[place][provider] = answer
            else:
                np.copyto(updates[place][row].numpy(), answer)

        if calls:
            self._started(asks[0].params).map(calls, take)
        ordered = [
            {provider: failed[provider] for provider in ask.providers if provider in failed}
            for ask, failed in zip(asks, failures, strict=True)
        ]
        return [Replies(rows_of, failed) for rows_of, failed in zip(updates, ordered, strict=True)]

    def _started(self, params: Tensor) -> WorkerPool:
        """The workers, which are started with the first ask: whoever only quotes a market needs none."""
        if self._closed:
            raise BazaarError("this engine is closed: make a new one")
        address, workers, wait = self._settings
        if self._cluster is None:
            self._cluster = Cluster.shared(address, wait)
        if self._pool is None:
            in_flight = 2 * (workers or here()) + 4
            vector = params.numel() * params.element_size()
            self._cluster.connect(2 * _size_of(self._work[1]) + in_flight * vector)
            self._pool = WorkerPool(self._cluster, RayWorker, self._work, workers, _refuse_other_versions)
        return self._pool

    def close(self) -> None:
        self._closed = True
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._cluster is not None:
            self._cluster.release()
            self._cluster = None


def _refuse_other_versions(theirs: dict[str, str]) -> None:
    """Other versions compute other bits, or do not understand us."""
    for name, ours in (("databazaar", __version__), ("torch", torch.__version__)):
        if theirs[name] != ours:
            raise BazaarError(
                f"the Ray cluster's machines have {name} {theirs[name]} and this one has {ours}: install the same"
            )


def _size_of(providers: Sequence[Provider]) -> int:
    """Bytes of all providers' data."""
    total = 0
    for provider in providers:
        if provider.data is not None:
            x, y = provider.dataset
            for part in (*(x.tensors.values() if isinstance(x, NamedInputs) else (x,)), y):
                total += part.numel() * part.element_size()
    return total
