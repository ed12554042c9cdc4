"""The consumer: the model it wants trained, how it judges a model, and what it can spend."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from databazaar.errors import BazaarError
from databazaar.learning.fit import is_one_logit, outputs_on, refuse_misfit
from databazaar.learning.inputs import Examples, as_dataset, as_table
from databazaar.learning.losses import LOSSES, Loss, binary_cross_entropy, cross_entropy, per_sample, unnamed_loss
from databazaar.learning.models import build_model
from databazaar.learning.task import Schedule, Task
from databazaar.learning.utilities import BUILT_IN, Evaluator, FastOutputs, Utility
from databazaar.money import Currency


@dataclass(frozen=True, eq=False)
class Consumer:
    """Brings a model, a utility and a budget.

    `model`: a torch module; or linear, logistic, mlp or cnn, sized by the hold-out; or, for a model that is not
    torch, its first parameters as a NumPy vector. `utility`: negative-loss, accuracy, exp-loss, or a callable.
    `holdout`: (x, y), where x may be a dict of inputs by name; or a torch Dataset or DataLoader. `loss`: implied by
    the hold-out's targets (integers: cross-entropy, that of two classes where the model has a single output; else
    squared error), or named, a loss of torch.nn, or a callable that gives one number per sample. `step` is the paper's
    γ, a number or a schedule of the round. `budget` is in minor units of `currency`. The hold-out's rows stay here:
    providers get the model and the loss, and in a federation the schema of the columns and the seed.

    >>> consumer = Consumer("logistic", holdout=([[0.0], [1.0]], [0, 1]), budget=25, per_round=10)
    >>> consumer.utility
    'exp-loss'
    """

    model: str | nn.Module | NDArray[Any]
    budget: int
    holdout: Any = None
    utility: str | Utility = "exp-loss"
    loss: str | Loss | None = None
    per_round: int = 10
    step: float | Schedule = 1.0
    currency: Currency = field(default_factory=Currency)

    def __post_init__(self) -> None:
        for name in ("budget", "per_round"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise BazaarError(f"{name} = {value!r} must be a whole number of at least 1")
        if not callable(self.step) and not self.step > 0:
            raise BazaarError(f"step = {self.step} must be positive")
        if not callable(self.utility) and self.utility not in BUILT_IN:
            raise BazaarError(f"utility {self.utility!r} is unknown: use one of {', '.join(BUILT_IN)}, or a callable")
        if self.holdout is not None:
            self._set(holdout=as_dataset(self.holdout, "holdout"))
        self._set(loss=self._choose_loss())
        self._fit_holdout()
        self._set(model=self._choose_model())
        self._fit_holdout()
        if isinstance(self.model, nn.Module) and self.holdout is not None:
            self._refuse_misfit(self.model, self.holdout)

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _fit_holdout(self) -> None:
        """Makes the hold-out what the loss, and then the model, take."""
        if self.holdout is not None:
            self._set(holdout=(self.task.inputs(self.holdout[0]), self.task.targets(self.holdout[1])))

    def _refuse_misfit(self, model: nn.Module, holdout: Examples) -> None:
        outputs = outputs_on(model, holdout[0], "holdout")
        if self.loss is cross_entropy and is_one_logit(outputs):
            self._set(loss=binary_cross_entropy)
        refuse_misfit(self.task, holdout[1], outputs, "holdout", exp_loss=self.utility == "exp-loss")
        one_class = is_one_logit(outputs) or (outputs.dim() == 2 and holdout[1].dim() == 1)
        if self.utility == "accuracy" and self.classifies and not one_class:
            raise BazaarError(
                f"utility 'accuracy' needs one class per row and an output for each, not targets of shape "
                f"{list(holdout[1].shape)} and {list(outputs.shape[1:])} outputs per row: give a utility of your own"
            )

    def _choose_loss(self) -> Loss:
        if self.loss is None and self.holdout is None:
            return unnamed_loss
        if self.loss is None:
            return LOSSES["cross-entropy" if self.classifies else "squared-error"]
        if callable(self.loss):
            return per_sample(self.loss)
        if self.loss not in LOSSES:
            raise BazaarError(f"loss {self.loss!r} is unknown: use one of {', '.join(LOSSES)}, or a callable")
        return LOSSES[self.loss]

    def _choose_model(self) -> nn.Module | NDArray[np.float64]:
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        if not isinstance(self.model, str):
            vector = np.array(self.model, dtype=np.float64).ravel()
            if not len(vector) or not np.isfinite(vector).all():
                raise BazaarError("model: a parameter vector must be finite and not empty")
            return vector
        if self.holdout is None:
            raise BazaarError(f"model {self.model!r} is sized by the hold-out: give holdout = (x, y)")
        x, y = as_table(self.holdout, "holdout")
        wanted = {"linear": False, "logistic": True}.get(self.model)
        if wanted is not None and wanted != self.classifies:
            raise BazaarError(
                f"model {self.model!r} does not fit these targets: use logistic for classes (integers), "
                "linear for regression"
            )
        outputs = max(2, int(y.max()) + 1) if self.classifies else int(y[0].numel())
        return build_model(self.model, tuple(x.shape[1:]), outputs)

    @property
    def classifies(self) -> bool:
        return self.holdout is not None and not self.holdout[1].is_floating_point()

    @property
    def bounded(self) -> bool:
        """Whether the utility lies in [0, 1], for which Theorem 1 holds."""
        return not callable(self.utility) and BUILT_IN[self.utility]

    @property
    def task(self) -> Task:
        """All that a provider may see."""
        assert callable(self.loss)
        return Task(self.model if isinstance(self.model, nn.Module) else None, self.loss)

    def initial_parameters(self) -> Tensor:
        if isinstance(self.model, nn.Module):
            return self.task.layout.flatten(self.model)
        return torch.from_numpy(np.array(self.model))

    def evaluator(self, device: torch.device, fast_outputs: FastOutputs | None = None) -> Evaluator:
        """Scores models by this consumer's utility. `engines.scoring.evaluator_for` gives it what is fast there."""
        task = self.task
        own = Task(copy.deepcopy(task.model), task.loss)
        return Evaluator(own, self.holdout, self.utility, device, fast_outputs)
