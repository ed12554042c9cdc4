"""Whether data fit a model and its loss: found out before anything is spent, and said in one sentence."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn

from databazaar.errors import BazaarError
from databazaar.learning.inputs import Examples, Inputs
from databazaar.learning.losses import PerSample, binary_cross_entropy, cross_entropy, squared_error
from databazaar.learning.models import caller
from databazaar.learning.parameter_exchange import lean_copy
from databazaar.learning.task import Task
from databazaar.learning.torch_state import seeded
from databazaar.models import ModelForm

ROWS = 3
"""A model is tried on so many rows: enough to see outputs that are spread over other samples' targets."""


@torch.no_grad()
def outputs_on(model: nn.Module, x: Inputs, owner: str) -> Tensor:
    """What the model gives for the first rows."""
    tried = lean_copy(model).cpu().eval()
    try:
        outputs = caller(tried)({}, x[:ROWS])
    except Exception as reason:
        text = " ".join(str(reason).split())[:200]
        raise BazaarError(
            f"{owner}: the model cannot take these inputs ({type(reason).__name__}: {text}): "
            "give rows as its forward takes them; integers stay integers for a model with nn.Embedding, or by name "
            "in a dict"
        ) from None
    if not isinstance(outputs, Tensor):
        raise BazaarError(f"the model gives a {type(outputs).__name__}, not a tensor: wrap it in one that gives logits")
    if not outputs.dim() or len(outputs) != len(x[:ROWS]):
        raise BazaarError(
            f"the model gives outputs of shape {list(outputs.shape)} for {len(x[:ROWS])} rows: "
            "its first dimension must be the row"
        )
    return outputs


@torch.no_grad()
def passes_in_training(model: nn.Module, x: Inputs) -> None:
    """The first rows pass the model as in training. What it cannot do is said where it is asked for."""
    with seeded(0), contextlib.suppress(Exception):
        caller(model.cpu().train())({}, x[:ROWS])


def is_one_logit(outputs: Tensor) -> bool:
    """One number per row."""
    return outputs[0].numel() == 1


def refuse_misfit(task: Task, y: Tensor, outputs: Tensor, owner: str, *, exp_loss: bool = False) -> None:
    """Says what is wrong with targets for a model that gave these outputs for the first of them.

    `exp_loss`: whether exp(−loss) is the utility, which a loss below zero would take beyond 1.
    """
    refuse_targets(task, y, outputs, owner)
    try:
        losses = task.loss(outputs, y[:ROWS])
    except (RuntimeError, IndexError, ValueError, TypeError) as reason:
        text = " ".join(str(reason).split())[:200]
        raise BazaarError(
            f"{owner}: the loss cannot compare outputs of shape {list(outputs.shape)} with targets of "
            f"{list(y[:ROWS].shape)} ({text}): let model, targets and loss agree"
        ) from None
    if exp_loss and bool((losses < 0).any()):
        raise BazaarError(
            f"{owner}: the loss is {float(losses.min()):.3g} on a row, and exp(−loss) needs one that is never below "
            "zero: use utility = 'negative-loss', or a loss such as cross-entropy"
        )


def refuse_targets(task: Task, y: Tensor, outputs: Tensor, owner: str) -> None:
    """Says what is wrong with targets for outputs of this form (of any number of rows)."""
    loss = task.loss
    numbers = outputs[0].numel()
    if loss is squared_error or (isinstance(loss, PerSample) and loss.elementwise):
        if y[0].numel() != numbers:
            raise BazaarError(
                f"{owner}: a target is {y[0].numel()} numbers and the model gives {numbers}: let the model's last "
                "layer be as wide as a target"
            )
        return
    by_class = loss in (cross_entropy, binary_cross_entropy)
    torchs = isinstance(loss, PerSample) and isinstance(loss.given, nn.CrossEntropyLoss | nn.NLLLoss)
    if not by_class and not (torchs and not y.is_floating_point()):
        return
    if y.is_floating_point() and bool((y != y.round()).any()):
        raise BazaarError(
            f"{owner}: cross-entropy needs classes 0, 1, 2, … as targets, not fractions: use squared-error"
        )
    if y.dim() != outputs.dim() - (loss is cross_entropy or torchs) and loss is not binary_cross_entropy:
        raise BazaarError(
            f"{owner}: targets of shape {list(y.shape)} do not fit outputs of {list(outputs.shape[1:])} per row: "
            "give one class number per row, and a model with an output for each class"
        )
    classes = 2 if loss is binary_cross_entropy else outputs.shape[1]
    ignored = getattr(loss.given, "ignore_index", None) if isinstance(loss, PerSample) else None
    known = y if ignored is None else y[y != ignored]
    outside = known[(known < 0) | (known >= classes)]
    if len(outside):
        raise BazaarError(
            f"{owner}: label {int(outside[0])} is none of the model's {classes} classes, 0 to {classes - 1}: "
            f"number the classes from 0 (−1 and 1 become 0 and 1), or give the model an output for every class"
        )


def refuse_table(task: Task, form: ModelForm, rows: Examples, owner: str) -> None:
    """Says what is wrong with rows for a model of columns."""
    x, y = rows
    if not isinstance(x, Tensor) or tuple(x.shape[1:]) != tuple(form.inputs):
        given = f"a row has the shape {list(x.shape[1:])}" if isinstance(x, Tensor) else "inputs have names"
        raise BazaarError(
            f"{owner}: {given}, and a row of the hold-out has the shape {list(form.inputs)}: give the same columns in "
            "the same order"
        )
    refuse_targets(task, task.targets(y), torch.zeros(1, form.outputs), owner)
