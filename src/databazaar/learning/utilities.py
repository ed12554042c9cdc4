"""Utilities: how good a model is for the consumer. All candidates of a round are scored in one batched pass."""

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
from databazaar.learning.losses import threshold_of
from databazaar.learning.models import LARGE, Layout, caller, split_fixed_prefix
from databazaar.learning.task import Task

Utility = Callable[[Any], float]
"""A user's own utility: takes the torch module (or the NumPy vector, where there is no module)."""

BUILT_IN = {"negative-loss": False, "accuracy": True, "exp-loss": True}
"""Names of the built-in utilities, and whether each lies in [0, 1], as Theorem 1 asks."""

CHUNK_FLOATS, ON_A_GPU = 2**28, 4
"""Activations of one batched pass are kept under this many floats (1 GiB), and so many times that on a GPU."""

BELOW_ZERO = -1e-3
"""exp(−loss) of a mean loss below this, which rounding does not explain, is no utility in [0, 1], and so none."""


@dataclass(frozen=True)
class Scores:
    """Utility, and hold-out loss where the utility is a built-in one, of each candidate."""

    utility: NDArray[np.float64]
    loss: NDArray[np.float64] | None


class Evaluator:
    """Scores stacked parameter vectors [R, d] on the hold-out, which leaves this object by `recipe` alone.

    negative-loss: U(w) = −ℓ(w); exp-loss: U(w) = exp(−ℓ(w)), which lies in [0, 1]; accuracy: the share of
    right answers. ℓ is the mean loss over the hold-out.
    """

    def __init__(self, task: Task, holdout: Examples | None, utility: str | Utility, device: torch.device) -> None:
        self._task = task
        self._utility = utility
        self._module: nn.Module | None = task.model.to(device).eval() if task.model is not None else None
        self._batched = True
        self._given = holdout
        self.floats_per_model = float("inf")
        if not callable(utility):
            if holdout is None or self._module is None:
                raise BazaarError(f"utility {utility!r} needs a torch model and a holdout = (x, y): give both")
            if utility == "accuracy" and holdout[1].is_floating_point():
                raise BazaarError("utility 'accuracy' needs classes (integers) as targets: use exp-loss for numbers")
            self._y = holdout[1].to(device)
            self._x: Inputs = holdout[0].to(device)
            if isinstance(self._x, Tensor):
                self._module, self._x = split_fixed_prefix(self._module, self._x)
            self._floats_per_sample = _activations(self._module, self._x[:1])
            self.floats_per_model = len(self._x) * self._floats_per_sample
            self._layout, self._run = task.layout, caller(self._module)

    def score(self, stack: Tensor) -> Scores:
        if callable(self._utility):
            return Scores(np.array([self._ask_callable(row) for row in stack], dtype=np.float64), None)
        losses, hits = torch.stack(self._measure(stack)).cpu().numpy()
        return self.scores(losses, hits)

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
    def recipe(self) -> tuple[Task, Examples, str] | None:
        """Task, hold-out and utility, from which another process makes one that scores alike; None where it cannot,
        because a function of the user's is asked."""
        if callable(self._utility) or self._given is None:
            return None
        return self._task, self._given, self._utility

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

    def scores(self, losses: NDArray[np.float64], hits: NDArray[np.float64]) -> Scores:
        """The built-in utility of models with these mean losses and accuracies."""
        if self._utility == "accuracy":
            return Scores(hits, losses)
        if self._utility == "negative-loss":
            return Scores(-losses, losses)
        bounded = np.where(losses < BELOW_ZERO, np.nan, losses)
        return Scores(np.exp(-bounded), losses)

    def _ask_callable(self, params: Tensor) -> float:
        assert callable(self._utility)
        if self._module is None:
            return float(self._utility(params.cpu().numpy().copy()))
        self._task.layout.load(self._module.eval(), params)
        with torch.no_grad():
            return float(self._utility(self._module))

    @torch.no_grad()
    def _measure(self, stack: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss and accuracy of each row; accuracy is NaN where the outputs are not finite."""
        count = len(self._x)
        if len(stack) * count * self._floats_per_sample <= self._chunk:
            loss, hit = self.judge(self._outputs(stack, self._x), self._y)
            return loss / count, hit / count
        losses = torch.zeros(len(stack), dtype=torch.float64, device=stack.device)
        hits = torch.zeros_like(losses)
        for rows in _slices(len(stack), max(1, self._chunk // (count * self._floats_per_sample))):
            for samples in _slices(count, max(1, self._chunk // self._floats_per_sample)):
                outputs = self._outputs(stack[rows], self._x[samples])
                loss, hit = self.judge(outputs, self._y[samples])
                losses[rows] += loss
                hits[rows] += hit
        return losses / count, hits / count

    def judge(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss of each candidate's outputs [R, samples, …], and right answers where the utility counts them."""
        losses = self._losses(outputs, targets).sum(1, dtype=torch.float64)
        if self._utility != "accuracy" or targets.is_floating_point():
            return losses, torch.zeros_like(losses)
        right = (self._answers(outputs, targets) == targets).flatten(1).sum(1, dtype=torch.float64)
        return losses, torch.where(torch.isfinite(outputs).flatten(1).all(1), right, torch.nan)

    def _answers(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The class that each output says: the largest of several; of a single one, the side that it is on."""
        if outputs[0].numel() == targets.numel():
            single = outputs.reshape(len(outputs), *targets.shape)
            return (single > threshold_of(self._task.loss)).to(targets.dtype)
        return outputs.argmax(-1)

    def _losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self._batched:
            try:
                each: Tensor = vmap(self._task.loss, in_dims=(0, None))(outputs, targets)
                return each
            except RuntimeError as reason:
                self._one_by_one(reason, "loss")
        return torch.stack([self._task.loss(row, targets) for row in outputs])

    def _one_by_one(self, reason: RuntimeError, what: str) -> None:
        self._batched = False
        warnings.warn(
            f"the utility scores one candidate at a time: torch cannot batch this {what} ({_brief(reason)})",
            stacklevel=3,
        )

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
