"""The fast engine: all providers of a round as one stacked computation, on the CPU or as a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from databazaar.engines import cnn
from databazaar.engines.dual import DualSGD, suits
from databazaar.engines.graphs import Captured
from databazaar.engines.protocol import LIMIT, Ask, Replies, why_invalid
from databazaar.engines.stacked import Data, Plan, Stack, StackedOracle
from databazaar.models import split_fixed_prefix
from databazaar.oracles import Batches, FullGradient, LocalSGD, Oracle
from databazaar.provider import Provider
from databazaar.randomness import oracle_stream
from databazaar.task import Task, step_at

CHUNK_BYTES = 2**31
"""Rows are computed in chunks so that parameters, gradients and batches of a chunk stay under this."""


class NotVectorizableError(Exception):
    """Why these providers cannot be computed as one stack."""


class VectorizedEngine:
    """Computes a round's updates side by side. Equal to `LoopEngine` to float tolerance; see `check_engine`.

    Providers are grouped by oracle; each group is one stack. Where the model starts with a linear layer and does
    local SGD, the stack works in that layer's dual form (see engines/dual.py). On CUDA the whole stack is
    captured as a graph and replayed. `stacks` names what was chosen.
    """

    name = "vectorized"

    def __init__(
        self,
        task: Task,
        providers: Sequence[Provider],
        device: torch.device,
        *,
        dual: bool = True,
        fused: bool = True,
        graph: bool = True,
    ) -> None:
        self.device = device
        self._providers = list(providers)
        if task.model is None:
            raise NotVectorizableError("the model is a plain vector, not a torch module")
        for provider in providers:
            if not isinstance(provider.oracle, Oracle):
                raise NotVectorizableError(f"provider {provider.id} answers through a callable")
            try:
                hash(provider.oracle)
            except TypeError:
                raise NotVectorizableError(
                    f"provider {provider.id}'s step schedule has no hash: a frozen dataclass has one"
                ) from None
        for name, part in task.model.named_modules():
            if isinstance(part, _NormBase):  # under vmap it would count padding among the samples, and say nothing
                raise NotVectorizableError(f"layer {name} ({type(part).__name__}) mixes the samples of a batch")
        data = _end_to_end(providers, device)
        oracles = [oracle for oracle in dict.fromkeys(p.oracle for p in providers) if isinstance(oracle, Oracle)]
        model = task.model.to(device)
        self._fused = fused and cnn.suits(task, oracles, data, cnn.room_on(device))
        if not self._fused:
            model, x = split_fixed_prefix(model, data.x)
            data = replace(data, x=x)
        task, self._data = Task(model, task.loss), data
        self._groups: dict[Oracle, tuple[Stack, tuple[int, int]]] = {}
        self._fixed: dict[Oracle, tuple[Plan, dict[int, int]]] = {}
        self.stacks: dict[Oracle, str] = {}
        for oracle in oracles:
            self._groups[oracle] = self._make_stack(task, oracle, dual, graph)

    def _make_stack(self, task: Task, oracle: Oracle, dual: bool, graph: bool) -> tuple[Stack, tuple[int, int]]:
        members = [i for i, p in enumerate(self._providers) if p.oracle == oracle]
        shapes = [self._batches(oracle, i, 0, 0).shape for i in members]
        shape = (max(s for s, _ in shapes), max(b for _, b in shapes))
        stack: Stack
        if self._fused:
            assert isinstance(oracle, LocalSGD)
            stack, self.stacks[oracle] = cnn.FusedCNN(task, oracle, self._data), "fused"
        elif dual and suits(task, oracle, self._data, *shape):
            assert isinstance(oracle, LocalSGD)
            stack, self.stacks[oracle] = DualSGD(task, oracle, self._data), "dual"
        else:
            stack, self.stacks[oracle] = StackedOracle(task, oracle, self._data), "stacked"
        plan = self._plan(oracle, members[:1], [(0, 0)], (1, shape[1]))
        try:
            stack(task.layout.flatten(task.model)[None].to(self.device), plan)  # type: ignore[arg-type]
        except (RuntimeError, ValueError) as reason:
            raise NotVectorizableError(" ".join(str(reason).split())[:200]) from None
        if graph and self.device.type == "cuda":
            stack = Captured(stack)
            self.stacks[oracle] += ", CUDA graph"
        return stack, shape

    def _batches(self, oracle: Oracle, index: int, seed: int, round: int) -> Batches:
        provider = self._providers[index]
        return oracle.batches(len(provider.dataset[0]), oracle_stream(seed, round, provider.id))

    def _plan(
        self, oracle: Oracle, members: Sequence[int], moments: Sequence[tuple[int, int]], shape: tuple[int, int]
    ) -> Plan:
        if isinstance(oracle, FullGradient):
            return self._fixed_plan(oracle, members, shape)
        batches = [
            self._batches(oracle, i, seed, round)[: shape[0]] for i, (seed, round) in zip(members, moments, strict=True)
        ]
        found = [_step(oracle, round) for _, round in moments]
        steps = [float("nan") if isinstance(step, str) else step for step in found]  # a failed row, and only that
        return Plan.of(members, batches, steps, shape).to(self.device)

    def _fixed_plan(self, oracle: Oracle, members: Sequence[int], shape: tuple[int, int]) -> Plan:
        """For an oracle that does the same in every round: laid out once for everybody, on the device."""
        if oracle not in self._fixed:
            everybody = [i for i, p in enumerate(self._providers) if p.oracle == oracle]
            batches = [self._batches(oracle, i, 0, 0) for i in everybody]
            plan = Plan.of(everybody, batches, [1.0] * len(everybody), shape).to(self.device)
            self._fixed[oracle] = plan, {i: row for row, i in enumerate(everybody)}
        plan, row_of = self._fixed[oracle]
        rows = torch.tensor([row_of[i] for i in members], device=self.device)
        return Plan(*(part[rows] for part in plan.tensors))

    def updates(self, params: Tensor, providers: Sequence[int], moments: Sequence[tuple[int, int]]) -> Tensor:
        """Updates [R, d] for rows that each have their own parameters [R, d], provider and (seed, round)."""
        result = torch.empty_like(params)
        for oracle, (stack, shape) in self._groups.items():
            rows = [r for r, i in enumerate(providers) if self._providers[i].oracle == oracle]
            size = max(1, CHUNK_BYTES // self._bytes_per_row(params.shape[1], shape))
            for chunk in (rows[i : i + size] for i in range(0, len(rows), size)):
                where = torch.tensor(chunk, device=self.device)
                plan = self._plan(oracle, [providers[r] for r in chunk], [moments[r] for r in chunk], shape)
                everything = len(chunk) == len(params)
                computed = stack(params if everything else params[where], plan)
                if everything:
                    return computed
                result[where] = computed
        return result

    def _bytes_per_row(self, width: int, shape: tuple[int, int]) -> int:
        samples = shape[0] * shape[1]
        return 4 * (5 * width + samples * self._data.x[0].numel() + samples * samples)

    def query(self, ask: Ask) -> Replies:
        return self.query_many([ask])[0]

    def query_many(self, asks: Sequence[Ask]) -> list[Replies]:
        """Several runs' asks in one stack: how experiments train all their seeds side by side."""
        counts = [len(ask.providers) for ask in asks]
        params = torch.cat([ask.params.expand(count, -1) for ask, count in zip(asks, counts, strict=True)])
        providers = [i for ask in asks for i in ask.providers]
        moments = [(ask.seed, ask.round) for ask in asks for _ in ask.providers]
        updates = self.updates(params, providers, moments)
        peaks = updates.abs().amax(1)
        fine = (peaks <= LIMIT).tolist()  # also false for NaN: one look at the device for the whole stack
        replies = []
        for ask, rows, good in zip(asks, torch.split(updates, counts), _split(fine, counts), strict=True):
            failures: dict[int, str] = {}
            if not all(good):
                reasons = [
                    None if ok else self._why(i, ask) or why_invalid(row, ask.params)
                    for i, row, ok in zip(ask.providers, rows, good, strict=True)
                ]
                failures = {i: why for i, why in zip(ask.providers, reasons, strict=True) if why is not None}
                rows = torch.where(torch.tensor(good, device=self.device)[:, None], rows, 0.0)
            replies.append(Replies(rows, failures))
        return replies

    def _why(self, index: int, ask: Ask) -> str | None:
        provider = self._providers[index]
        assert isinstance(provider.oracle, Oracle)
        step = _step(provider.oracle, ask.round)
        return f"provider {provider.id}, round {ask.round}: {step}" if isinstance(step, str) else None

    def close(self) -> None:
        self._groups.clear()


def _step(oracle: Oracle, round: int) -> float | str:
    """The oracle's step in this round, or why its schedule has none."""
    try:
        return step_at(oracle.step, round) if isinstance(oracle, LocalSGD) else 1.0
    except Exception as reason:
        return f"{type(reason).__name__}: {' '.join(str(reason).split())[:200]}"


def _split(values: list[bool], counts: Sequence[int]) -> list[list[bool]]:
    ends = torch.tensor(counts).cumsum(0).tolist()
    return [values[end - count : end] for end, count in zip(ends, counts, strict=True)]


def _end_to_end(providers: Sequence[Provider], device: torch.device) -> Data:
    sets = [provider.dataset for provider in providers]
    first = sets[0]
    for provider, (x, y) in zip(providers, sets, strict=True):
        if x.shape[1:] != first[0].shape[1:] or y.dtype != first[1].dtype or y.shape[1:] != first[1].shape[1:]:
            raise NotVectorizableError(f"provider {provider.id}'s samples have another shape than {providers[0].id}'s")
    sizes = torch.tensor([len(x) for x, _ in sets], device=device)
    starts = sizes.cumsum(0) - sizes
    return Data(torch.cat([x for x, _ in sets]).to(device), torch.cat([y for _, y in sets]).to(device), starts, sizes)
