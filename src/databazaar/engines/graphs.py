"""A stacked computation captured as a CUDA graph: hundreds of small kernels launched as one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from databazaar.engines.stacked import Plan, Stack


@dataclass(frozen=True)
class _Capture:
    graph: torch.cuda.CUDAGraph
    params: Tensor
    plan: Plan
    result: Tensor


class Captured:
    """Replays `stack` from a graph. Row counts are rounded up, so that a handful of graphs serves all rounds."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._captures: dict[int, _Capture] = {}

    def __call__(self, params: Tensor, plan: Plan) -> Tensor:
        rows = len(params)
        size = _rounded_up(rows)
        if size not in self._captures:
            self._captures[size] = self._capture(_padded(params, size), Plan(*(_padded(t, size) for t in plan.tensors)))
        held = self._captures[size]
        for target, source in zip((held.params, *held.plan.tensors), (params, *plan.tensors), strict=True):
            target[:rows].copy_(source)
        held.graph.replay()
        return held.result[:rows].clone()

    def _capture(self, params: Tensor, plan: Plan) -> _Capture:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # a capture must not be the first to start up cuBLAS
            self._stack(params, plan)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = self._stack(params, plan)
        return _Capture(graph, params, plan, result)


def _rounded_up(rows: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, …: at most half as much again.

    >>> [_rounded_up(r) for r in (1, 5, 9, 90)]
    [1, 6, 12, 96]
    """
    size = 1
    while size < rows:
        if size * 3 // 2 >= rows and size > 1:
            return size * 3 // 2
        size *= 2
    return size


def _padded(tensor: Tensor, rows: int) -> Tensor:
    """A copy with the last row repeated: what is computed there is thrown away."""
    extra = rows - len(tensor)
    return torch.cat([tensor, tensor[-1:].expand(extra, *tensor.shape[1:])]).contiguous()
