"""The fast engine: all providers of a round as one stacked computation, on the CPU or as a CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from databazaar.codes import Code
from databazaar.engines.graphs import Captured
from databazaar.engines.loop import LoopEngine
from databazaar.engines.orders import ComputeUpdates, Planner, Rows
from databazaar.engines.protocol import LIMIT, Ask, Engine, Replies, pick_device, raised
from databazaar.engines.stacks import Data, Stack, StackedOracle, Workload
from databazaar.errors import BazaarError
from databazaar.learning.inputs import NamedInputs
from databazaar.learning.models import LARGE
from databazaar.learning.oracles import LocalSGD, Oracle
from databazaar.learning.parameter_exchange import StayingBuffers, moving_buffers
from databazaar.learning.task import Task, step_at
from databazaar.parties.provider import Provider
from databazaar.randomness import Words, oracle_keys, provider_tags, words

Whole = NDArray[np.int64]

CHUNK_BYTES = {"cpu": 2**31, "cuda": 2**33}
"""Rows are computed in chunks so that parameters, gradients and batches of a chunk stay under this."""
CACHED_FLOATS = 2**22
"""On a CPU the samples of one step of a chunk stay under this (16 MiB): beyond its caches a stack is no faster than
one row after the other."""
PADDED, PADDED_GRADIENT = 2.0, 1.25
"""How much larger a stack may be than the work in it: fewer, longer stacks pay where there are many small steps, and
not for a single large one."""


class NotVectorizableError(Exception):
    """Why these providers cannot be computed as one stack."""


@dataclass(frozen=True)
class _Group:
    """Providers that share an oracle, the work that each provider would have with it, and how rows are computed: `most`
    of them at once."""

    oracle: Oracle
    work: Whole
    batch: int
    floats_per_sample: int
    compute: ComputeUpdates
    most: int


class VectorizedEngine(Engine):
    """Computes a round's updates side by side. Equal to `LoopEngine` to float tolerance; see `check_engine`.

    Providers are grouped by oracle; each group is one stack. `stacks` are classes of other packages that are tried for
    it before `StackedOracle` (engines/stacks.py), which suits every oracle. On CUDA the whole stack is captured as a
    graph and replayed, unless `graph` is off. The attribute `stacks` names what was chosen for each oracle.
    """

    kind = "vectorized"

    @classmethod
    def make(cls, task: Task, providers: Sequence[Provider], device: str) -> Engine:
        """The reference engine takes its place, with a warning, where the work cannot be stacked."""
        where = pick_device(device)
        try:
            return cls(task, providers, where)
        except NotVectorizableError as reason:
            warnings.warn(f"engine falls back from vectorized to loop: {reason}", stacklevel=3)
            return LoopEngine(task, providers, where)

    def __init__(
        self,
        task: Task,
        providers: Sequence[Provider],
        device: torch.device,
        *,
        stacks: Sequence[type[Stack]] = (),
        graph: bool = True,
    ) -> None:
        self.device = device
        self._providers = list(providers)
        model, oracles = _stackable(task, providers)
        work = Workload(replace(task, model=model.to(device)), _end_to_end(task, providers, device))
        self._sizes = work.data.sizes.cpu().numpy()
        self._tags = provider_tags([provider.id for provider in providers])
        places = {oracle: place for place, oracle in enumerate(dict.fromkeys(oracles))}
        self._group_of = np.array([places[oracle] for oracle in oracles])
        self.stacks: dict[Oracle, str] = {}
        kinds: list[type[Stack]] = [*stacks, StackedOracle]
        self._groups = [self._make_group(work, oracle, place, kinds, graph) for oracle, place in places.items()]

    def _make_group(
        self, work: Workload, oracle: Oracle, place: int, kinds: Sequence[type[Stack]], graph: bool
    ) -> _Group:
        members = np.flatnonzero(self._group_of == place).tolist()
        planner = Planner(oracle, work.data.sizes, int(work.data.sizes[members].max()))
        made = (kind.make(work, oracle, planner.shape) for kind in kinds)
        stack = next(one for one in made if one is not None)
        probe = Rows(torch.tensor(members[:1]), torch.zeros(1, dtype=torch.int64), torch.zeros(1))
        layout = work.task.layout
        assert work.task.model is not None
        staying, before = StayingBuffers(work.task.model), _generators(self.device)
        try:
            stack(layout.flatten(work.task.model)[None].to(self.device), planner(probe.to(self.device)).first_step)
        except (RuntimeError, ValueError) as reason:
            raise NotVectorizableError(" ".join(str(reason).split())[:200]) from None
        if not all(map(torch.equal, before, _generators(self.device))):
            raise NotVectorizableError("the model draws random numbers, which an ask takes from the provider's own key")
        staying.refuse_change()

        def compute(params: Tensor, rows: Rows) -> Tensor:
            return stack(params, planner(rows.to(params.device)))

        on_graph = graph and self.device.type == "cuda"
        self.stacks[oracle] = f"{stack.kind}, CUDA graph" if on_graph else stack.kind
        floats = 5 * layout.width + stack.floats(planner.shape[0] * planner.shape[1])
        work_of = np.array([planner.samples_of(size) for size in self._sizes.tolist()], dtype=np.int64)
        most = 1 if layout.width > LARGE else max(1, CHUNK_BYTES.get(self.device.type, 2**31) // (4 * floats))
        on_device = Captured(compute) if on_graph else compute
        return _Group(oracle, work_of, planner.shape[1], stack.floats_per_sample, on_device, most)

    def _compute(self, params: Tensor, providers: Whole, seeds: Words, rounds: Whole) -> Tensor:
        if not self._groups:
            raise BazaarError("this engine is closed: make a new one")
        keys = oracle_keys(seeds, words(rounds), self._tags[providers])
        result: Tensor | None = None
        for place, group in enumerate(self._groups):
            alone = len(self._groups) == 1
            own = np.arange(len(keys)) if alone else np.flatnonzero(self._group_of[providers] == place)
            steps = _steps(group.oracle, rounds[own])
            for places, largest in self._chunks(group, providers[own]):
                chunk = own[places]
                whose, key, step = map(torch.from_numpy, (providers[chunk], keys[chunk], steps[places]))
                rows = Rows(whose, key, step, largest)
                if len(chunk) == len(params):
                    return group.compute(params, rows)
                result = params.new_empty(params.shape) if result is None else result
                if len(chunk) == 1:
                    row = slice(int(chunk[0]), int(chunk[0]) + 1)
                    result[row] = group.compute(params[row], rows)
                    continue
                where = torch.from_numpy(chunk).to(self.device)
                result[where] = group.compute(params[where], rows)
        return params.new_empty(params.shape) if result is None else result

    def _chunks(self, group: _Group, providers: Whole) -> Iterator[tuple[Whole, int | None]]:
        """The places of the rows that are computed together, and the samples of the largest of them.

        All rows of a stack take as long as its longest. So on a CPU rows are sorted by their work and parted, where
        too much of the stack would be padding; a GPU has a graph for one shape, and time for padding. What is
        together depends on sizes alone, never on a clock: the same market gives the same bits.
        """
        places, work, sizes = np.arange(len(providers)), group.work[providers], self._sizes[providers]
        on_cpu = self.device.type == "cpu"
        room = PADDED if isinstance(group.oracle, LocalSGD) else PADDED_GRADIENT
        uneven = on_cpu and len(places) * int(work.max(initial=0)) > room * int(work.sum())
        if uneven:
            places = (-work).argsort(kind="stable")
        while len(places):
            count, longest = group.most, int(work[places].max())
            if on_cpu:
                count = min(count, max(1, CACHED_FLOATS // (min(longest, group.batch) * group.floats_per_sample)))
            if uneven:
                padded = longest * np.arange(1, len(places) + 1)
                count = min(count, int((padded <= room * work[places].cumsum()).sum()))
            chunk, places = places[:count], places[count:]
            yield chunk, int(sizes[chunk].max()) if on_cpu else None

    def query(self, ask: Ask) -> Replies:
        return self.query_all([ask])[0]

    def query_all(self, asks: Sequence[Ask]) -> list[Replies]:
        """Several asks in one stack."""
        if any(len(ask.params) > LARGE for ask in asks):
            return [self._one_by_one(ask) for ask in asks]
        counts = [len(ask.providers) for ask in asks]
        of_ask = np.repeat(np.arange(len(asks)), counts)
        params = torch.stack([ask.params for ask in asks])
        if any(count != 1 for count in counts):
            params = params[torch.from_numpy(of_ask).to(self.device, non_blocking=True)]
        updates = self._compute(
            params,
            np.array([index for ask in asks for index in ask.providers], dtype=np.int64),
            words([ask.seed for ask in asks])[of_ask],
            np.array([ask.round for ask in asks], dtype=np.int64)[of_ask],
        )
        largest = torch.maximum(updates.amax(1), -updates.amin(1))
        fine = (largest <= LIMIT).cpu().numpy()  # also false for NaN: one look at the device for all
        replies = [Replies(rows, {}) for rows in torch.split(updates, counts)]
        for place in np.unique(of_ask[~fine]).tolist():
            ask, rows = asks[place], replies[place].updates
            found = zip(ask.providers, rows, strict=True)
            replies[place] = Replies.of(ask, [self._why(index, ask) or row for index, row in found])
        return replies

    def _one_by_one(self, ask: Ask) -> Replies:
        """Large models: each from the same memory, and held until it is written where it stays."""
        seed, round = words([ask.seed]), np.array([ask.round])
        answers = (
            self._why(index, ask) or self._compute(ask.params[None], np.array([index]), seed, round)[0]
            for index in ask.providers
        )
        return Replies.of(ask, answers)

    def _why(self, index: int, ask: Ask) -> Code | None:
        """Why the provider has no step in this round, where its schedule fails."""
        oracle = self._providers[index].oracle
        assert isinstance(oracle, Oracle)
        step = _step(oracle, ask.round)
        return step if isinstance(step, Code) else None

    def close(self) -> None:
        self._groups.clear()


def _stackable(task: Task, providers: Sequence[Provider]) -> tuple[nn.Module, list[Oracle]]:
    """The model and every provider's oracle, or why they cannot be computed as one stack."""
    if task.model is None:
        raise NotVectorizableError("the model is a plain vector, not a torch module")
    oracles: list[Oracle] = []
    for provider in providers:
        if not isinstance(provider.oracle, Oracle):
            raise NotVectorizableError(f"provider {provider.id} answers through a callable")
        try:
            hash(provider.oracle)
        except TypeError:
            raise NotVectorizableError(
                f"provider {provider.id}'s step schedule has no hash: a frozen dataclass has one"
            ) from None
        oracles.append(provider.oracle)
    for name, part in task.model.named_modules():
        if isinstance(part, _NormBase):  # under vmap it would count padding among the samples, and say nothing
            raise NotVectorizableError(f"layer {name} ({type(part).__name__}) mixes the samples of a batch")
    for name, _ in moving_buffers(task.model):
        raise NotVectorizableError(f"the model changes its buffer {name} with every batch")
    return task.model, oracles


def _generators(device: torch.device) -> list[Tensor]:
    """The states of torch's generators, which change when a model draws from them."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _step(oracle: Oracle, round: int) -> float | Code:
    """The oracle's step in this round, or why its schedule has none."""
    try:
        return step_at(oracle.step, round) if isinstance(oracle, LocalSGD) else 1.0
    except Exception as reason:
        return raised(reason)


def _steps(oracle: Oracle, rounds: Whole) -> NDArray[np.float32]:
    """Every row's step, with the schedule asked once a round; NaN where it has none: a failed row, and only that."""
    distinct, row_of = np.unique(rounds, return_inverse=True)
    found = [_step(oracle, round) for round in distinct.tolist()]
    return np.array([np.nan if isinstance(step, Code) else step for step in found], dtype=np.float32)[row_of]


def _end_to_end(task: Task, providers: Sequence[Provider], device: torch.device) -> Data:
    sets: list[tuple[Tensor, Tensor]] = []
    for provider in providers:
        x, y = task.inputs(provider.dataset[0]), task.targets(provider.dataset[1])
        if isinstance(x, NamedInputs):
            raise NotVectorizableError(f"provider {provider.id}'s inputs have names, and a stack takes a single tensor")
        sets.append((x, y))
    first = sets[0]
    for provider, (x, y) in zip(providers, sets, strict=True):
        if (
            x.shape[1:] != first[0].shape[1:]
            or x.dtype != first[0].dtype
            or y.dtype != first[1].dtype
            or y.shape[1:] != first[1].shape[1:]
        ):
            raise NotVectorizableError(f"provider {provider.id}'s samples have another shape than {providers[0].id}'s")
    sizes = torch.tensor([len(x) for x, _ in sets], device=device)
    starts = sizes.cumsum(0) - sizes
    return Data(torch.cat([x for x, _ in sets]).to(device), torch.cat([y for _, y in sets]).to(device), starts, sizes)
