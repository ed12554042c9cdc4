"""How good models are for the consumer, by its utility. All candidates of a round are scored in one batched pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import vmap

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.losses import Loss, threshold_of
from databazaar.learning.models import LARGE, Layout, caller, split_fixed_prefix
from databazaar.learning.task import Task
from databazaar.utilities import Judged, Utility, utility_of

UtilityFunction = Callable[[Any], float]
"""A user's own utility: takes the torch module (or the NumPy vector, where there is no module)."""

CHUNK_FLOATS, ON_A_GPU = 2**28, 4
"""Activations of one batched pass are kept under this many floats (1 GiB), and so many times that on a GPU."""


@dataclass(frozen=True)
class Scores:
    """Utility, and hold-out loss where the utility is a built-in one, of each candidate."""

    utility: NDArray[np.float64]
    loss: NDArray[np.float64] | None


class OutputScorer:
    """Scores models by their outputs on the whole hold-out, whatever the models are."""

    def __init__(self, loss: Loss, targets: Tensor, utility: Utility) -> None:
        utility.check(targets)
        self._loss, self._y, self._scoring, self._batched = loss, targets, utility, True

    def judge(self, outputs: Tensor) -> Scores:
        """Scores of models by their outputs on the whole hold-out: [R, rows, …]."""
        losses = self._losses(outputs, self._y).sum(1, dtype=torch.float64)
        return self._scores(losses, outputs if self._scoring.wants_outputs else None)

    def _scores(self, summed: Tensor, outputs: Tensor | None) -> Scores:
        losses = (summed / len(self._y)).cpu().numpy()
        judged = Judged(losses, self._y, outputs, threshold_of(self._loss))
        return Scores(np.asarray(self._scoring.score(judged), dtype=np.float64), losses)

    def _losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self._batched:
            try:
                each: Tensor = vmap(self._loss, in_dims=(0, None))(outputs, targets)
                return each
            except RuntimeError as reason:
                self._one_by_one(reason, "loss")
        return torch.stack([self._loss(row, targets) for row in outputs])

    def _one_by_one(self, reason: RuntimeError, what: str) -> None:
        self._batched = False
        warnings.warn(
            f"the utility scores one candidate at a time: torch cannot batch this {what} ({_brief(reason)})",
            stacklevel=3,
        )


class Evaluator(OutputScorer):
    """Scores stacked parameter vectors [R, d] on the hold-out, which never leaves this object."""

    def __init__(
        self,
        task: Task,
        holdout: Examples | None,
        utility: str | Utility | UtilityFunction,
        device: torch.device,
    ) -> None:
        self._task = task
        self._utility = utility if callable(utility) else utility_of(utility)
        self._module: nn.Module | None = task.model.to(device).eval() if task.model is not None else None
        self._batched = True
        self.floats_per_model = float("inf")
        if isinstance(self._utility, Utility):
            if holdout is None or self._module is None:
                kind = self._utility.kind
                raise BazaarError(f"utility {kind!r} needs a torch model and a holdout = (x, y): give both")
            super().__init__(task.loss, holdout[1].to(device), self._utility)
            self._x: Inputs = holdout[0].to(device)
            if isinstance(self._x, Tensor):
                self._module, self._x = split_fixed_prefix(self._module, self._x)
            self._floats_per_sample = _activations(self._module, self._x[:1])
            self.floats_per_model = len(self._x) * self._floats_per_sample
            self._layout, self._run = task.layout, caller(self._module)

    def score(self, stack: Tensor) -> Scores:
        if callable(self._utility):
            return Scores(np.array([self._ask_callable(row) for row in stack], dtype=np.float64), None)
        return self._measure(stack)

    def score_parts(self, parts: Iterable[Tensor]) -> Scores:
        """Stacks that are formed one after the other, of which no two are held at once."""
        found = list(map(self.score, parts))  # a loop's variable would hold the last one while the next is formed
        losses = [one.loss for one in found if one.loss is not None]
        return Scores(np.concatenate([one.utility for one in found]), np.concatenate(losses) if losses else None)

    @property
    def _chunk(self) -> int:
        return CHUNK_FLOATS * (ON_A_GPU if self._x.device.type == "cuda" else 1)

    @property
    def module(self) -> nn.Module | None:
        """The model that takes `holdout`: without first layers that have no parameters, where that has passed them."""
        return self._module

    @property
    def layout(self) -> Layout:
        """Which number of a parameter vector is which."""
        return self._task.layout

    @property
    def holdout(self) -> Examples:
        """What a built-in utility judges by, on this evaluator's device."""
        return self._x, self._y

    @property
    def judges_rows(self) -> bool:
        """Whether it has a loss for every row of a hold-out, as built-in utilities do."""
        return not callable(self._utility)

    @torch.no_grad()
    def row_losses(self, stack: Tensor, places: Tensor) -> Tensor:
        """The loss of each model [R, d] on each of these rows of the hold-out: [R, rows]."""
        x, y = self._x[places], self._y[places]
        models = max(1, self._chunk // (len(places) * self._floats_per_sample))
        losses = [self._losses(self._outputs(stack[rows], x), y) for rows in _slices(len(stack), models)]
        return torch.cat(losses).flatten(2).sum(2) if losses[0].dim() > 2 else torch.cat(losses)

    def _ask_callable(self, params: Tensor) -> float:
        assert callable(self._utility)
        if self._module is None:
            return float(self._utility(params.cpu().numpy().copy()))
        self._task.layout.load(self._module.eval(), params)
        with torch.no_grad():
            return float(self._utility(self._module))

    @torch.no_grad()
    def _measure(self, stack: Tensor) -> Scores:
        count = len(self._x)
        if len(stack) * count * self._floats_per_sample <= self._chunk:
            return self.judge(self._outputs(stack, self._x))
        models = max(1, self._chunk // (count * self._floats_per_sample))
        parts = [self._measure_in_pieces(stack[rows]) for rows in _slices(len(stack), models)]
        losses = [part.loss for part in parts if part.loss is not None]
        return Scores(np.concatenate([part.utility for part in parts]), np.concatenate(losses))

    def _measure_in_pieces(self, stack: Tensor) -> Scores:
        """A few models, the rows of the hold-out a part at a time."""
        losses = torch.zeros(len(stack), dtype=torch.float64, device=stack.device)
        kept = []
        for samples in _slices(len(self._x), max(1, self._chunk // self._floats_per_sample)):
            outputs = self._outputs(stack, self._x[samples])
            losses += self._losses(outputs, self._y[samples]).sum(1, dtype=torch.float64)
            kept += [outputs] if self._scoring.wants_outputs else []
        return self._scores(losses, torch.cat(kept, 1) if kept else None)

    def _outputs(self, stack: Tensor, x: Inputs) -> Tensor:
        """Outputs of every candidate on the same samples: [R, samples, …]."""
        layout, run = self._layout, self._run
        assert self._module is not None
        self._module.eval()
        named = layout.unflatten(stack)
        if self._batched and not (stack.device.type == "cuda" and layout.width > LARGE):
            try:
                outputs: Tensor = vmap(lambda w: run(w, x))(named)
                return outputs
            except RuntimeError as reason:
                self._one_by_one(reason, "model")
        return torch.stack([run(layout.unflatten(row), x) for row in stack])


def _slices(total: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, total, size))


def _brief(reason: BaseException) -> str:
    return str(reason).strip().split("\n")[0][:200]


@torch.no_grad()
def _activations(module: nn.Module, sample: Inputs) -> int:
    """Floats that one sample's forward pass makes, to size the chunks by."""
    total = sample.numel()

    def count(_module: nn.Module, _inputs: Any, output: Any) -> None:
        nonlocal total
        if isinstance(output, Tensor):
            total += output.numel()

    hooks = [part.register_forward_hook(count) for part in module.modules()]
    caller(module.eval())({}, sample)
    for hook in hooks:
        hook.remove()
    return total
