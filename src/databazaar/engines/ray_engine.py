"""Many machines: the providers' updates are computed by workers of a Ray cluster.

Every worker holds the data of all providers. With a share of them each, a round that draws K of n would leave workers
idle whenever those drawn lie with few of them, and markets come to prefer a few; and a lost worker's share would have
to be sent before anybody could go on. What is drawn goes to whoever is free, one provider at a time.

The rows of a stack are not independent of each other to the last bit: matrix products of other shapes are summed in
another order. So a worker computes every provider's update by itself, on one thread. Then the bits are the same
whichever worker computes them, with whatever else, and however many workers there are.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from itertools import count
from weakref import WeakKeyDictionary, finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from databazaar.cluster import Call, Link, Settings, processors_here, refuse_without_ray
from databazaar.cluster.host import versions
from databazaar.engines.errands import Errand, Start
from databazaar.engines.loop import LoopEngine
from databazaar.engines.protocol import Ask, Engine, Replies
from databazaar.engines.ray_worker import Judging
from databazaar.errors import BazaarError
from databazaar.learning.inputs import NamedInputs
from databazaar.learning.task import Task
from databazaar.learning.utilities import Evaluator
from databazaar.parties.provider import Provider

WORKER = "databazaar.engines.ray_worker:RayWorker"


class RayEngine(Engine):
    """Answers by the workers of a Ray cluster, to the same bits however many there are and whichever die.

    Without an `address`, a cluster of its own starts on this machine with the first ask and ends with `close`; else it
    is "host:6379" on one of the cluster's machines, or "ray://host:10001" from elsewhere, and goes on living. `workers`
    are at most as many as the cluster has processors, and that many where nothing is said. `wait` are the seconds that
    a lost cluster has to come back, one at ray:// to answer at all, or either to find room for workers, before the run
    stops. A callable oracle must be a function of the parameters alone: each worker has its own copy.
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
        if address is None and workers is not None and workers > processors_here():
            raise BazaarError(
                f"engine.workers = {workers} and this machine has {processors_here()} processors: lower workers, or "
                "give the address of a cluster"
            )
        LoopEngine(task, providers, self.device)  # refuses providers that cannot answer
        self._task, self._work = task, (task, list(providers))
        self._settings = address, workers, wait
        self._judgings: dict[str, bytes] = {}
        self._starts: WeakKeyDictionary[Start, str] = WeakKeyDictionary()
        self._numbers = count(1)
        self._names: WeakKeyDictionary[Evaluator, str | None] = WeakKeyDictionary()
        self._link: Link | None = None
        self._closed = False

    def query(self, ask: Ask) -> Replies:
        return self.query_all([ask])[0]

    def query_all(self, asks: Sequence[Ask]) -> list[Replies]:
        """All providers of all asks are one heap of work, that whoever is free takes from."""
        vectors: dict[int, Tensor] = {id(ask.params): ask.params.detach() for ask in asks}
        places = {key: place for place, key in enumerate(vectors)}
        alive = frozenset(self._starts.values())
        calls = [
            Call((places[id(ask.params)],), (provider, ask.round, ask.seed, alive))
            for ask in asks
            for provider in ask.providers
        ]
        if not calls:
            return [Replies.of(ask, []) for ask in asks]
        params = asks[0].params
        rows, reasons = self._linked(params, len(vectors) + len(calls)).map(
            "update", [vector.numpy() for vector in vectors.values()], calls, tuple(params.shape), _dtype(params)
        )
        replies, first = [], 0
        for ask in asks:
            own = range(first, first := first + len(ask.providers))
            failures = {i: reasons[place] for i, place in zip(ask.providers, own, strict=True) if place in reasons}
            replies.append(Replies(torch.from_numpy(rows[own.start : own.stop]), failures))
        return replies

    def errands(
        self, evaluator: Evaluator, start: Start, errands: Sequence[Errand]
    ) -> list[NDArray[np.float64]] | None:
        """One at a time, by whoever is free. Where they begin is sent once."""
        judging = self._judging(evaluator)
        if judging is None:
            return None
        if not errands:
            return []
        link = self._linked(start.params, start.floats // max(1, len(start.params)))
        length = max(errand.length for errand in errands)
        name = self._sent(start, link)
        alive = frozenset(self._starts.values())
        inputs = f"{name}: parameters", f"{name}: updates", judging
        calls = [Call(inputs, (name, alive, judging, errand, length)) for errand in errands]
        rows, _ = link.map("errand", [], calls, (length,), np.float64)
        return [row[: errand.length] for row, errand in zip(rows, errands, strict=True)]

    def _sent(self, start: Start, link: Link) -> str:
        """The name that workers know it by, until it is no more."""
        if start not in self._starts:
            name = self._starts[start] = f"start {next(self._numbers)}"
            params = start.params.detach()
            updates = params[:0] if start.updates is None else start.updates.detach()
            for what, part in (("parameters", params), ("updates", updates)):
                link.keep(f"{name}: {what}", part.numpy())
                finalize(start, link.forget, f"{name}: {what}")
        return self._starts[start]

    def _judging(self, evaluator: Evaluator) -> str | None:
        """The name that workers know it by, once they have asked for it; None where it cannot be sent."""
        if evaluator not in self._names:
            recipe = evaluator.recipe
            name = None
            if recipe is not None and _alike(recipe[0], self._task):
                name = self._keep(Judging(recipe[0].loss, *recipe[1:]))
            self._names[evaluator] = name
        return self._names[evaluator]

    def _keep(self, judging: Judging) -> str | None:
        import cloudpickle

        try:
            data = cloudpickle.dumps(judging)
        except (TypeError, AttributeError, pickle.PicklingError):  # the next ask says what to do
            return None
        name = hashlib.sha256(data).hexdigest()
        self._judgings[name] = data
        if self._link is not None:
            self._link.keep(name, np.frombuffer(data, dtype=np.uint8))
        return name

    def _linked(self, params: Tensor, lent: int = 0) -> Link:
        """The cluster is started or joined with the first ask: whoever only quotes a market needs none. So many vectors
        like `params` may lie in its store for a round, and those of the round before."""
        if self._closed:
            raise BazaarError("this engine is closed: make a new one")
        if self._link is None:
            address, workers, wait = self._settings
            in_flight = 2 * (workers or processors_here()) + 4 + 2 * lent
            held = _size_of(self._work[1]) + sum(map(len, self._judgings.values()))
            store = 2 * held + in_flight * params.numel() * params.element_size()
            self._link = Link(Settings(address, workers, wait, store, versions()), WORKER, self._work)
            for name, data in self._judgings.items():
                self._link.keep(name, np.frombuffer(data, dtype=np.uint8))
        return self._link

    @property
    def clusters(self) -> int:
        """How often a cluster was started or joined: more than once where one was lost."""
        return 0 if self._link is None else self._link.foremen

    def close(self) -> None:
        self._closed = True
        if self._link is not None:
            self._link.close()


def _alike(one: Task, other: Task) -> bool:
    """Whether the two tasks' models differ at most in the numbers that travel."""
    return (
        one.model is not None
        and other.model is not None
        and repr(one.model) == repr(other.model)
        and one.layout == other.layout
        and one.frozen_digest == other.frozen_digest
    )


def _dtype(params: Tensor) -> np.dtype[np.generic]:
    return params.detach().numpy().dtype


def _size_of(providers: Sequence[Provider]) -> int:
    """Bytes of all providers' data."""
    total = 0
    for provider in providers:
        if provider.data is not None:
            x, y = provider.dataset
            for part in (*(x.tensors.values() if isinstance(x, NamedInputs) else (x,)), y):
                total += part.numel() * part.element_size()
    return total
