"""Planning and stacked computation captured as a CUDA graph: hundreds of small kernels launched as one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from databazaar.engines.orders import ComputeUpdates, Rows


@dataclass(frozen=True)
class _Capture:
    graph: torch.cuda.CUDAGraph
    params: Tensor
    rows: Rows
    result: Tensor


class Captured:
    """Replays a computation from a graph. Row counts are rounded up, so that a handful of graphs serves all rounds."""

    def __init__(self, compute: ComputeUpdates) -> None:
        self._compute = compute
        self._captures: dict[int, _Capture] = {}
        self._refused = False
        self._pool: Any = None

    def __call__(self, params: Tensor, rows: Rows) -> Tensor:
        if self._refused:
            return self._compute(params, rows)
        count = len(params)
        size = _rounded_up(count)
        if size not in self._captures:
            providers, keys, steps = (_padded(part, size).to(params.device) for part in rows.tensors)
            try:
                self._captures[size] = self._capture(_padded(params, size), Rows(providers, keys, steps))
            except RuntimeError as reason:  # a model that looks at the host, at a tensor's value for instance
                self._refused = True
                text = " ".join(str(reason).split())[:200]
                warnings.warn(f"asks are computed without a CUDA graph, and so more slowly: {text}", stacklevel=2)
                return self._compute(params, rows)
        held = self._captures[size]
        for target, source in zip((held.params, *held.rows.tensors), (params, *rows.tensors), strict=True):
            target[:count].copy_(source, non_blocking=True)
        held.graph.replay()
        return held.result[:count].clone()

    def _capture(self, params: Tensor, rows: Rows) -> _Capture:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # a capture must not be the first to start up cuBLAS
            self._compute(params, rows)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):  # results are copied out at once, so all graphs share memory
            result = self._compute(params, rows)
        self._pool = self._pool or graph.pool()
        return _Capture(graph, params, rows, result)


def _rounded_up(rows: int) -> int:
    """The next number that three binary digits and zeros can write: at most a quarter more.

    >>> [_rounded_up(r) for r in (1, 5, 9, 90, 100, 1000)]
    [1, 5, 10, 96, 112, 1024]
    """
    coarse = 1 << max(0, rows.bit_length() - 3)
    return -(-rows // coarse) * coarse


def _padded(tensor: Tensor, rows: int) -> Tensor:
    """A copy with the last row repeated: what is computed there is thrown away."""
    extra = rows - len(tensor)
    return torch.cat([tensor, tensor[-1:].expand(extra, *tensor.shape[1:])]).contiguous()
