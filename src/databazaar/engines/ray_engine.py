"""Many machines: the providers' updates are computed by tasks of a Ray cluster.

Rows of a stack are not independent of each other to the last bit: matrix products of other shapes are summed in another
order. So a task computes the update of one provider by itself, on one thread. Then the bits are the same whichever
worker computes it, and however many workers there are.

A worker keeps the data of the providers that it was asked for. It reads a table itself where the provider has a
`source`; rows that are only in the memory of the run are sent to it.
"""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.codes import Code
from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Engine, Replies
from databazaar.engines.ray_cluster import Cluster, brief, processors_here, refuse_without_ray, versions
from databazaar.engines.vectorized import NotVectorizableError, VectorizedEngine
from databazaar.errors import BazaarError
from databazaar.learning.task import Task
from databazaar.parties.provider import Provider

CPU = torch.device("cpu")
RETRIES = 5
"""So often Ray gives an ask to another worker because one has died."""


class RayEngine(Engine):
    """Answers by tasks of a Ray cluster, to the same bits however many workers there are and whichever die.

    Without an `address`, which may also stand in the environment as RAY_ADDRESS, a cluster of its own starts on this
    machine with the first ask and ends with `close`; else it is "host:6379" on one of the cluster's machines, or
    "ray://host:10001" from elsewhere, and goes on living. `workers`
    are at most as many as the cluster has processors, and that many where nothing is said. `wait` are the seconds that
    a cluster at ray:// has to answer. A callable oracle must be a function of the parameters alone: each worker has its
    own copy.
    """

    kind = "ray"
    device = CPU

    @classmethod
    def make(cls, task: Task, providers: Sequence[Provider], device: str, **settings: Any) -> RayEngine:
        if device not in ("auto", "cpu"):
            raise BazaarError(f"device {device!r}: the workers of engine ray compute on processors: use auto or cpu")
        return cls(task, providers, **settings)

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
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise BazaarError(f"workers = {workers!r} must be a whole number of at least 1, or left out")
        address = address or os.environ.get("RAY_ADDRESS") or None
        if address is None and workers is not None and workers > processors_here():
            raise BazaarError(
                f"workers = {workers} and this machine has {processors_here()} processors: lower workers, or "
                "set RAY_ADDRESS to that of a cluster"
            )
        LoopEngine(task, providers, CPU)  # refuses providers that cannot answer
        self._task, self._providers = task, list(providers)
        self._settings = address, workers, wait
        self._cluster: Cluster | None = None
        self._key = uuid.uuid4().hex
        self._lent: dict[int, Any] = {}
        self._closed = False

    def query(self, ask: Ask) -> Replies:
        return self.query_all([ask])[0]

    def query_all(self, asks: Sequence[Ask]) -> list[Replies]:
        """The providers of all asks share the workers."""
        calls = [(ask, provider) for ask in asks for provider in ask.providers]
        answers = iter(self._computed(calls)) if calls else iter(())
        return [Replies.of(ask, (next(answers) for _ in ask.providers)) for ask in asks]

    def _computed(self, calls: Sequence[tuple[Ask, int]]) -> list[Tensor | Code]:
        """The answer to each call. There are as many tasks at a time as there are workers."""
        cluster = self._connected()
        ray, params = cluster.ray, dict[int, Any]()
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(compute_update)
        waiting, running, found = deque(enumerate(calls)), dict[Any, int](), dict[int, Tensor | Code]()
        while waiting or running:
            while waiting and len(running) < cluster.workers:
                place, (ask, provider) = waiting.popleft()
                if id(ask.params) not in params:
                    params[id(ask.params)] = ray.put(ask.params.detach().numpy())
                given = self._reference(-1), self._reference(provider)
                call = remote.remote(self._key, given, params[id(ask.params)], provider, ask.round, ask.seed)
                running[call] = place
            (done, *_), _ = ray.wait(list(running), num_returns=1)
            answer = self._answer(done)
            found[running.pop(done)] = answer if isinstance(answer, Code) else torch.from_numpy(np.array(answer))
        return [found[place] for place in range(len(calls))]

    def _answer(self, done: Any) -> NDArray[Any] | Code:
        assert self._cluster is not None
        errors = self._cluster.ray.exceptions
        try:
            answer: NDArray[Any] | Code = self._cluster.ray.get(done)
            return answer
        except errors.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, BazaarError):
                raise BazaarError(str(cause)) from None
            raise BazaarError(
                f"a worker of the Ray cluster failed ({brief(cause or error)}): what models and oracles are made of "
                "must be installed on every machine of the cluster"
            ) from None
        except (errors.RayError, ConnectionError) as error:
            raise BazaarError(
                f"the Ray cluster did not answer one ask after {RETRIES} retries ({brief(error)}): see whether it is "
                "there, and has memory for the providers' data; then go on with the run"
            ) from None

    def _reference(self, place: int) -> Any:
        """What stands for a provider in the cluster, or for the task at −1. It is sent when it is first needed."""
        assert self._cluster is not None
        if place not in self._lent:
            if place < 0:
                given: Any = self._task, versions()
            else:
                provider = self._providers[place]
                given = provider.id, provider.oracle, provider.source or provider.data
            try:
                self._lent[place] = self._cluster.ray.put(given)
            except (TypeError, AttributeError) as reason:
                raise BazaarError(
                    f"models, losses and oracles go to other processes, and one of them cannot ({brief(reason)}): "
                    "leave out what belongs to this process alone, such as locks and open files"
                ) from None
        return self._lent[place]

    def _connected(self) -> Cluster:
        """The cluster is started or joined with the first ask: to quote a market needs none."""
        if self._closed:
            raise BazaarError("this engine is closed: make a new one")
        if self._cluster is None:
            self._cluster = Cluster(*self._settings)
        return self._cluster

    def close(self) -> None:
        self._closed = True
        if self._cluster is not None:
            self._lent.clear()
            self._cluster.close()
            self._cluster = None


_engines: dict[str, dict[int, Engine]] = {}
"""In a worker: the engines that have answered, by the engine of the run and the provider."""


def compute_update(
    key: str, given: tuple[Any, Any], params: NDArray[Any], provider: int, round: int, seed: int
) -> NDArray[Any] | Code:
    """The task: one provider's update of these parameters, or why there is none. `given` are references to the task
    and to the provider."""
    if key not in _engines:
        _engines.clear()
        _engines[key] = {}
    if provider not in _engines[key]:
        import ray

        _engines[key][provider] = load_engine(*ray.get(list(given)))
    replies = _engines[key][provider].query(Ask(torch.from_numpy(np.array(params)), [0], round, seed))
    return replies.failures.get(0) or replies.updates[0].numpy()


def load_engine(task: tuple[Task, dict[str, str]], provider: tuple[str, Any, Any]) -> Engine:
    """The engine inside a worker, for one provider: a stack of one row where the model can be stacked."""
    for name, theirs in task[1].items():
        if (here := versions()[name]) != theirs:
            raise BazaarError(
                f"a machine of the Ray cluster has {name} {here}, and the machine of the run has {theirs}: install the "
                "same"
            )
    torch.set_num_threads(1)
    id, oracle, data = provider
    return engine_of_one(task[0], Provider(id, data() if callable(data) else data, oracle))


def engine_of_one(task: Task, provider: Provider) -> Engine:
    try:
        return VectorizedEngine(task, [provider], CPU)
    except NotVectorizableError:
        return LoopEngine(task, [provider], CPU)
