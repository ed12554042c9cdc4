"""Scoring many models that differ by a few known updates: w + Σ_i c_i g_i for many rows of coefficients c.

`PlainScorer` forms every model and scores it. `PrefixScorer` uses that a first linear layer is linear in its weights,
X(W + Σ c_i ΔW_i)ᵀ = XWᵀ + Σ c_i XΔW_iᵀ: each product with the hold-out is done once, and a model's first layer costs
one combination of them. The layers above are evaluated as they are. Both give the same utilities to float tolerance,
and both score several runs, each with its own w and g, as one stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap

from databazaar.engines.errands import Start
from databazaar.learning.models import caller, split_first_linear
from databazaar.learning.travelling import lean_copy
from databazaar.learning.utilities import Evaluator

CHUNK_FLOATS = 2**21
"""First-layer activations of one batch: about what stays near the processor (8 MiB)."""

DEVICE_FLOATS = 2**28
"""The same on a GPU (1 GiB)."""

PLAIN_FLOATS = 2**26
"""Parameters of the models that are formed at a time (256 MiB)."""

KEPT_FLOATS = 2**28
"""Activations of all updates of a round are kept only under this many floats (1 GiB)."""


Weights = NDArray[np.float64]
"""Coefficients c, one model per row: [m, K]."""


class Scorer(Protocol):
    """Utilities [m] of the models w + Σ_i c_i g_i for coefficients [m, K]."""

    @property
    def evaluator(self) -> Evaluator:
        """Who judges."""

    @property
    def cost(self) -> float:
        """Floats that scoring one model makes; without end where a function of the user's is asked."""

    @property
    def work(self) -> float:
        """Multiplications that scoring one model takes, about; without end where nobody knows."""

    @property
    def start(self) -> Start:
        """w and g, where somebody else is to score."""

    def __call__(self, coefficients: Weights) -> NDArray[np.float64]:
        """One utility per row."""

    @staticmethod
    def together(scorers: Sequence[Any], coefficients: Sequence[Weights]) -> list[NDArray[np.float64]]:
        """What several scorers of this kind, with one evaluator, say to their own coefficients, in one go."""


class PlainScorer:
    """Forms every model: right for any model and any utility."""

    def __init__(self, evaluator: Evaluator, params: Tensor, updates: Tensor) -> None:
        self.evaluator = evaluator
        self.cost = len(params) + evaluator.floats_per_model
        samples = len(evaluator.holdout[1]) if evaluator.judges_rows else float("inf")
        self.work = len(params) * (len(updates) + samples)
        self.start = Start(params, updates)
        self._params = params
        self._updates = updates

    def __call__(self, coefficients: Weights) -> NDArray[np.float64]:
        return self.together([self], [coefficients])[0]

    @staticmethod
    def together(scorers: Sequence[PlainScorer], coefficients: Sequence[Weights]) -> list[NDArray[np.float64]]:
        """Models are formed run by run and scored together, as many as fit."""
        found: list[NDArray[np.float64]] = []
        waiting: list[Tensor] = []
        most = max(1, PLAIN_FLOATS // len(scorers[0]._params))
        for scorer, rows in zip(scorers, coefficients, strict=True):
            weights = torch.from_numpy(rows).to(scorer._updates)
            for part in torch.split(weights, most):
                if waiting and sum(map(len, waiting)) + len(part) > most:
                    found.append(scorer.evaluator.score(torch.cat(waiting)).utility)
                    waiting = []
                waiting.append(torch.addmm(scorer._params, part, scorer._updates))
        found.append(scorers[0].evaluator.score(torch.cat(waiting)).utility)
        return _split(np.concatenate(found), coefficients)


class FirstLayer:
    """A model that begins with a linear layer, and the hold-out that it is judged on. Kept over rounds."""

    @classmethod
    def of(cls, evaluator: Evaluator) -> FirstLayer | None:
        """None where the model or the utility is of another kind."""
        model = evaluator.module
        if model is None or not evaluator.judges_rows or split_first_linear(model) is None:
            return None
        return cls(evaluator)

    def __init__(self, evaluator: Evaluator) -> None:
        assert evaluator.module is not None
        model = lean_copy(evaluator.module)
        split = split_first_linear(model)
        assert split is not None
        self.layout = evaluator.layout
        self.name, first, above = split
        x, self.y = evaluator.holdout
        assert isinstance(x, Tensor)  # a model that begins with a linear layer takes nothing else
        self.x = x
        self.evaluator = evaluator
        own = [name for name in self.layout.names if not name.startswith(f"{self.name}.")]
        self.above = dict(zip(own, dict(above.named_parameters()), strict=True))
        module = above.to(self.x.device).eval()
        if len(module) and type(module[0]) is nn.ReLU:
            module[0].inplace = True  # its input is made here and used by nobody else
        self.outputs = vmap(caller(module)) if len(module) else lambda _, z: z
        outputs = dict(zip(self.layout.names, self.layout.shapes, strict=True))[f"{self.name}.weight"][0]
        samples = self.x.shape[:-1].numel()
        self.width = samples * outputs
        self.work_above = samples * (self.layout.width - sum(part.numel() for part in first.parameters()))
        self.cost = self.width if not len(module) else evaluator.floats_per_model

    def fits(self, updates: int) -> bool:
        """Whether the activations of that many updates can be kept."""
        return (updates + 1) * self.width <= KEPT_FLOATS

    def activations(self, stack: Tensor) -> Tensor:
        """xWᵀ + b for stacked parameters or updates [m, d], which it is linear in: [m, samples · width]."""
        named = self.layout.unflatten(stack)
        first = torch.matmul(self.x.flatten(0, -2), named[f"{self.name}.weight"].mT)
        bias = named.get(f"{self.name}.bias")
        return (first if bias is None else first.add_(bias[:, None, :])).flatten(1)

    def rest(self, stack: Tensor) -> dict[str, Tensor]:
        """The layers above, by the names they have there."""
        named = self.layout.unflatten(stack)
        return {above: named[name] for name, above in self.above.items()}


class PrefixScorer:
    """Multiplies the hold-out with every update once, whatever the number of models."""

    def __init__(self, layer: FirstLayer, params: Tensor, updates: Tensor) -> None:
        self.evaluator = layer.evaluator
        self.cost = float(layer.cost)
        self.work = float((len(updates) + 1) * layer.width + layer.work_above)
        self.start = Start(params, updates)
        self._layer = layer
        self._params, self._updates = params, updates
        self._moves: Tensor | None = None

    def __call__(self, coefficients: Weights) -> NDArray[np.float64]:
        return self.together([self], [coefficients])[0]

    @staticmethod
    @torch.no_grad()
    def together(scorers: Sequence[PrefixScorer], coefficients: Sequence[Weights]) -> list[NDArray[np.float64]]:
        """Runs of equally many updates are stacked, as many as fit; what the device found is fetched once."""
        layer = scorers[0]._layer
        limit = CHUNK_FLOATS if layer.x.device.type == "cpu" else DEVICE_FLOATS
        judged: dict[int, Tensor] = {}
        for places in _alike(scorers, coefficients, limit):
            group = [scorers[place] for place in places]
            rows = [coefficients[place] for place in places]
            _multiply(layer, group)
            if len(group) == 1:
                size = min(len(rows[0]), max(1, limit // layer.width))
                parts = [rows[0][start : start + size] for start in range(0, len(rows[0]), size)]
                buffer = group[0]._params.new_empty(1, size, layer.width)
                judged[places[0]] = torch.cat([_judge(layer, group, [part], buffer)[0] for part in parts], 1)
            else:
                judged.update(zip(places, _judge(layer, group, rows), strict=True))
        ordered = torch.cat([judged[place] for place in range(len(scorers))], 1)
        losses, hits = (ordered / len(layer.x)).cpu().numpy()
        return _split(layer.evaluator.scores(losses, hits).utility, coefficients)


def scorer_of(layer: FirstLayer | None, evaluator: Evaluator, params: Tensor, updates: Tensor) -> Scorer:
    """By the first layer, where the model has such a one and there is room for it."""
    if layer is not None and layer.fits(len(updates)):
        return PrefixScorer(layer, params, updates)
    return PlainScorer(evaluator, params, updates)


def _alike(scorers: Sequence[PrefixScorer], coefficients: Sequence[Weights], limit: int) -> Iterator[list[int]]:
    """Places of runs that can be stacked: equally many updates, and padded to the longest, not more than fits."""
    by_updates: dict[int, list[int]] = {}
    for place, scorer in enumerate(scorers):
        by_updates.setdefault(len(scorer._updates), []).append(place)
    for updates, places in by_updates.items():
        most = max(updates + 1, *(len(coefficients[place]) for place in places))
        size = max(1, limit // (most * scorers[0]._layer.width))
        yield from (places[start : start + size] for start in range(0, len(places), size))


def _multiply(layer: FirstLayer, scorers: Sequence[PrefixScorer]) -> None:
    """The products with the hold-out, for those that do not have them yet."""
    new = [scorer for scorer in scorers if scorer._moves is None]
    if not new:
        return
    everything = torch.cat([part for scorer in new for part in (scorer._params[None], scorer._updates)])
    moves = layer.activations(everything)  # the first of each run is the start itself
    for scorer, own in zip(new, torch.split(moves, [1 + len(scorer._updates) for scorer in new]), strict=True):
        scorer._moves = own


def _judge(
    layer: FirstLayer,
    scorers: Sequence[PrefixScorer],
    coefficients: Sequence[Weights],
    buffer: Tensor | None = None,
) -> list[Tensor]:
    """Summed losses and right answers [2, m] of each run's models. A buffer is for the first layer's activations."""
    runs, most = len(scorers), max(map(len, coefficients))
    moves = _stacked([scorer._moves for scorer in scorers if scorer._moves is not None])
    if all(rows is coefficients[0] for rows in coefficients):
        weights = torch.from_numpy(_with_start(coefficients[0])).to(moves).expand(runs, -1, -1)
    else:
        padded = np.zeros((runs, most, coefficients[0].shape[1] + 1), dtype=np.float32)
        for run, rows in zip(padded, coefficients, strict=True):
            run[: len(rows)] = _with_start(rows)
        weights = torch.from_numpy(padded).to(moves)
    z = torch.bmm(weights, moves, out=None if buffer is None else buffer[:, :most]).view(
        runs * most, *layer.x.shape[:-1], -1
    )
    starts = [layer.rest(scorer._params) for scorer in scorers]
    updates = [layer.rest(scorer._updates) for scorer in scorers]
    w = {}
    for name in layer.above.values():
        start = _stacked([parts[name] for parts in starts])
        changes = _stacked([parts[name] for parts in updates]).flatten(2)
        w[name] = torch.baddbmm(start.flatten(1)[:, None], weights[:, :, 1:], changes).view(-1, *start.shape[1:])
    losses, hits = layer.evaluator.judge(layer.outputs(w, z), layer.y)
    found = torch.stack([losses, hits]).view(2, runs, most)
    return [found[:, run, : len(rows)] for run, rows in enumerate(coefficients)]


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    """As torch.stack, without a copy where there is one alone."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


def _with_start(coefficients: Weights) -> NDArray[np.float32]:
    """Coefficients of the start, which are 1, before those of the updates."""
    weights = np.ones((len(coefficients), coefficients.shape[1] + 1), dtype=np.float32)
    weights[:, 1:] = coefficients
    return weights


def _split(values: NDArray[np.float64], coefficients: Sequence[Weights]) -> list[NDArray[np.float64]]:
    ends = np.cumsum([len(rows) for rows in coefficients]).tolist()
    return [values[end - len(rows) : end] for end, rows in zip(ends, coefficients, strict=True)]
