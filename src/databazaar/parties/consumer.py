"""The consumer: the model it wants trained, how it judges a model, and what it can spend."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from databazaar.display import Displayed, size_of
from databazaar.errors import BazaarError
from databazaar.learning.fit import is_one_logit, outputs_on, passes_in_training, refuse_misfit
from databazaar.learning.inputs import Examples, as_dataset, as_table, refuse_missing
from databazaar.learning.losses import (
    LOSSES,
    Loss,
    binary_cross_entropy,
    cross_entropy,
    per_sample,
    squared_error,
    unnamed_loss,
)
from databazaar.learning.models import build_model
from databazaar.learning.oracles import LocalSGD, compute_update
from databazaar.learning.own_rows import OWN_ROWS, OwnFit, fit_own_rows
from databazaar.learning.parameter_exchange import kept_tensors, note_changed_buffers
from databazaar.learning.task import PRECISIONS, Precision, Schedule, Task
from databazaar.learning.torch_state import limited_threads
from databazaar.learning.utilities import Evaluator, UtilityFunction
from databazaar.models import MODELS, OF_COLUMNS, Columns, ModelForm
from databazaar.money import Currency
from databazaar.randomness import oracle_key
from databazaar.utilities import FUNCTION, UTILITIES, Utility, utility_of
from databazaar.utilities.exp_loss import ExpLoss

OWN_STEP = 0.1
"""The largest learning rate at which own rows take part in a round, as that of providers by default."""


@dataclass(frozen=True, eq=False, repr=False)
class Consumer(Displayed):
    """Brings a model, a utility and a budget.

    `model`: a torch module; or linear, logistic, mlp, cnn or trees, sized by the hold-out; or, for a model that is not
    torch, its first parameters as a NumPy vector. `utility`: negative-loss, accuracy, exp-loss, or a callable.
    `holdout`: (x, y), where x may be a dict of inputs by name; or a torch Dataset or DataLoader. `loss`: implied by
    the hold-out's targets (integers: cross-entropy, that of two classes where the model has a single output; else
    squared error), or named, a loss of torch.nn, or a callable that gives one number per sample. `step` is the paper's
    γ, a number or a schedule of the round. `budget` is in minor units of `currency`; `most_per_access` and
    `most_per_round` too: who costs more is not asked, and no round costs more. The hold-out's rows stay here: providers
    get the model and the loss, and in a federation the schema of the columns and the seed.

    `train` are further rows of its own, (x, y): the market starts from the model that they give, and buys what improves
    on it. `audit` are rows that no part of the market looks at; they say afterwards whether it was worth it
    (`databazaar.judge_purchase`). With `precision="bf16"` providers' updates are computed under torch's autocast, which
    is faster for large models on a GPU; models are judged in float32 all the same.

    >>> consumer = Consumer("logistic", holdout=([[0.0], [1.0]], [0, 1]), budget=25, per_round=10)
    >>> consumer.utility
    'exp-loss'
    """

    model: str | nn.Module | NDArray[Any] | Columns
    budget: int
    holdout: Any = None
    utility: str | Utility | UtilityFunction = "exp-loss"
    loss: str | Loss | None = None
    per_round: int = 10
    step: float | Schedule = 1.0
    currency: Currency = field(default_factory=Currency)
    train: tuple[Any, Any] | None = None
    audit: tuple[Any, Any] | None = None
    most_per_access: int | None = None
    most_per_round: int | None = None
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        for name in ("budget", "per_round", "most_per_access", "most_per_round"):
            value = getattr(self, name)
            if value is None and name.startswith("most_per_"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise BazaarError(f"{name} = {value!r} must be a whole number of at least 1")
            if value >= 2**63:
                raise BazaarError(f"{name} = {float(value):.2g} is more than a ledger holds: lower it")
        if not callable(self.step) and not self.step > 0:
            raise BazaarError(f"step = {self.step} must be positive")
        if self.scoring is not None:
            UTILITIES.refuse_unwritable(self.scoring)
        if self.precision not in PRECISIONS:
            raise BazaarError(f"precision {self.precision!r} is unknown: use one of {', '.join(PRECISIONS)}")
        if self.holdout is not None:
            self._set(holdout=as_dataset(self.holdout, "holdout"))
        self._set(loss=self._choose_loss())
        self._fit("holdout")
        self._set(model=self._choose_model())
        for rows in ("holdout", "train", "audit"):
            self._fit(rows)
            if isinstance(self.model, nn.Module) and getattr(self, rows) is not None:
                self._refuse_misfit(self.model, getattr(self, rows), rows)
        self._refuse_untrainable()

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _fit(self, rows: str) -> None:
        """Makes these rows what the loss, and then the model, take."""
        given = getattr(self, rows)
        if given is None:
            return
        if self.holdout is None:
            raise BazaarError(f"{rows} = (x, y) needs a holdout = (x, y) to judge by: give both")
        x, y = as_dataset(given, rows)
        if not self.takes_missing:
            refuse_missing(x, rows)
        self._set(**{rows: (self.task.inputs(x), self.task.targets(y))})

    def _refuse_untrainable(self) -> None:
        """Refuses a module in which nothing is trained, and finds out which of its buffers training changes."""
        if not isinstance(self.model, nn.Module):
            return
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            raise BazaarError(
                "the model has no parameter that is trained (requires_grad=True): unfreeze what is to be bought, or "
                "add an adapter"
            )
        if self.holdout is not None:
            note_changed_buffers(self.model, partial(passes_in_training, x=self.holdout[0]))

    def _refuse_misfit(self, model: nn.Module, rows: Examples, name: str) -> None:
        outputs = outputs_on(model, rows[0], name)
        if self.loss is cross_entropy and is_one_logit(outputs):
            self._set(loss=binary_cross_entropy)
        refuse_misfit(self.task, rows[1], outputs, name, exp_loss=isinstance(self.scoring, ExpLoss))
        one_class = is_one_logit(outputs) or (outputs.dim() == 2 and rows[1].dim() == 1)
        by_class = self.scoring is not None and "regression" not in self.scoring.tasks
        if self.scoring is not None and by_class and self.classifies and not one_class:
            raise BazaarError(
                f"utility {self.scoring.kind!r} needs one class per row and an output for each, not targets of shape "
                f"{list(rows[1].shape)} and {list(outputs.shape[1:])} outputs per row: give a utility of your own"
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

    def _choose_model(self) -> nn.Module | NDArray[np.float64] | Columns:
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model)
        if self.takes_missing:
            model = MODELS.find(self.model)() if isinstance(self.model, str) else self.model
            assert isinstance(model, Columns)
            return self._choose_columns(model)
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

    def _choose_columns(self, model: Columns) -> Columns:
        """A model for a table: of two classes it gives one log odds, of more a logit for each."""
        if self.holdout is None:
            raise BazaarError(f'model "{model.kind}" learns bins from the hold-out: give holdout = (x, y)')
        x, y = as_table(self.holdout, "holdout")
        if x.dim() != 2 or y.dim() != 1:
            raise BazaarError(
                f'model "{model.kind}" takes rows of numbers and one target for each, not {list(x.shape[1:])} and '
                f"{list(y.shape[1:])} per row: use a network"
            )
        if self.loss not in (cross_entropy, binary_cross_entropy, squared_error):
            raise BazaarError(f'model "{model.kind}" knows no such loss: use cross-entropy or squared-error')
        if self.loss is cross_entropy and int(y.max()) <= 1:
            self._set(loss=binary_cross_entropy)
        return model

    def _facts(self) -> dict[str, str]:
        rows = {name: getattr(self, name) for name in ("holdout", "train", "audit")}
        return {
            "model": self._model_facts(),
            **{name: size_of(given) for name, given in rows.items() if given is not None},
            "utility": str(self.utility_settings.get("name", self.utility_settings["kind"])),
            "budget": self.currency.format(self.budget),
            **{name.replace("_", " "): self.currency.format(most) for name, most in self.limits.items()},
            "accesses a round": f"{self.per_round:,}",
        }

    def _model_facts(self) -> str:
        if isinstance(self.model, Columns):
            return "boosted trees" if self.model.kind == "trees" else "boosted trees and a linear model"
        kind = type(self.model).__name__
        if not isinstance(self.model, nn.Module):
            return f"{kind} of {len(self.model):,} parameters"
        layout = self.task.layout
        stay = sum(tensor.numel() for _, tensor in kept_tensors(self.model, layout.names))
        return f"{kind} of {layout.width:,} parameters" + (f", and {stay:,} that are not trained" if stay else "")

    @property
    def limits(self) -> dict[str, int]:
        """The most that it pays per access and per round, where it has said so."""
        limits = {"most_per_access": self.most_per_access, "most_per_round": self.most_per_round}
        return {name: int(most) for name, most in limits.items() if most is not None}

    @property
    def judged_rows(self) -> Examples | None:
        """The rows of the hold-out that a utility of ours judges by; None where it is a function of the consumer's."""
        return None if callable(self.utility) else self.holdout

    @property
    def classifies(self) -> bool:
        return self.holdout is not None and not self.holdout[1].is_floating_point()

    @property
    def bounded(self) -> bool:
        """Whether the utility lies in [0, 1], for which Theorem 1 holds."""
        return self.scoring is not None and self.scoring.bounded

    @cached_property
    def scoring(self) -> Utility | None:
        """The utility; None where it is a function of the consumer's own."""
        return None if callable(self.utility) else utility_of(self.utility)

    @property
    def utility_settings(self) -> dict[str, Any]:
        """The utility as the ledger's terms say it."""
        if self.scoring is None:
            return {"kind": FUNCTION, "name": str(getattr(self.utility, "__name__", type(self.utility).__name__))}
        return UTILITIES.settings_of(self.scoring)

    @property
    def task(self) -> Task:
        """All that a provider may see."""
        assert callable(self.loss)
        module = self.model if isinstance(self.model, nn.Module) else None
        return Task(module, self.loss, self.precision, self.takes_missing)

    @property
    def takes_missing(self) -> bool:
        """Whether the model knows what to do with inputs that are NaN."""
        return isinstance(self.model, Columns) or (isinstance(self.model, str) and self.model in OF_COLUMNS)

    @property
    def form(self) -> ModelForm | None:
        """How a model of columns is made; None for others."""
        if not isinstance(self.model, Columns) or self.holdout is None:
            return None
        outputs = max(2, int(self.holdout[1].max()) + 1) if self.classifies else 1
        return ModelForm(self.model.kind, tuple(self.holdout[0].shape[1:]), outputs)

    def untrained_parameters(self) -> Tensor:
        """The model as it was brought."""
        if isinstance(self.model, Columns):
            raise BazaarError(f'model "{self.model.kind}" has no parameters to average: leave the learner out')
        if isinstance(self.model, nn.Module):
            return self.task.layout.flatten(self.model)
        return torch.from_numpy(np.array(self.model))

    @property
    def parameter_count(self) -> int:
        """The numbers of an update; trees have none."""
        return 0 if isinstance(self.model, Columns) else len(self.untrained_parameters())

    def limited_threads(self) -> AbstractContextManager[None]:
        """Torch on one thread meanwhile, where a round's models are small together (`learning.torch_state`)."""
        return limited_threads(self.parameter_count * self.per_round)

    @cached_property
    def own_fit(self) -> OwnFit | None:
        """What the consumer's own training rows give; None without such rows."""
        if self.train is None or self.holdout is None or isinstance(self.model, Columns):
            return None
        return fit_own_rows(self.task.copied(), self.untrained_parameters(), self.train, self.holdout)

    def own_updates(self, device: torch.device, seed: int) -> Callable[[Tensor, int], Tensor] | None:
        """How the consumer's own rows move given parameters in a round, as a provider's would; None without rows."""
        fit = self.own_fit
        if fit is None:
            return None
        task, oracle = self.task.copied(), LocalSGD(step=min(fit.step, OWN_STEP))
        assert self.train is not None and task.model is not None
        task.model.to(device)
        data = self.train[0].to(device), self.train[1].to(device)

        def update(params: Tensor, round: int) -> Tensor:
            return compute_update(oracle, task, data, params, round, oracle_key(seed, round, OWN_ROWS))

        return update

    def with_budget(self, budget: int, per_round: int) -> Consumer:
        """The same consumer with another budget, and what its own rows give not computed again."""
        other = replace(self, budget=budget, per_round=per_round)
        other.__dict__["own_fit"] = self.own_fit
        return other

    def initial_parameters(self) -> Tensor:
        """Where the market starts: at the model as it was brought, or as the consumer's own rows have trained it."""
        return self.untrained_parameters() if self.own_fit is None else self.own_fit.params

    def evaluator(self, device: torch.device) -> Evaluator:
        """Scores models by this consumer's utility."""
        own = self.task.copied(writable=callable(self.utility))
        return Evaluator(own, self.holdout, self.utility, device)
