"""What model.json may say: how a model is built, what it answers, and how its tables are written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from databazaar.data.schema_message import TaskKind
from databazaar.errors import BazaarError
from databazaar.learning.kinds import ModelForm, ModelKind

if TYPE_CHECKING:
    from databazaar.data.schema import Schema
    from databazaar.learning.task import Task

FORMAT: Literal[1] = 1

_Size = Annotated[int, Field(ge=1, le=2**31)]
_Sizes = Annotated[tuple[_Size, ...], Field(strict=False, max_length=100)]
_Shape = Annotated[tuple[int, ...], Field(strict=False)]
_Word = Annotated[str, Field(min_length=1, max_length=40)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Architecture(_Strict):
    """A built-in model, as `databazaar.build_model` takes it."""

    kind: ModelKind
    inputs: _Sizes
    outputs: _Size
    hidden: _Sizes = ()

    @property
    def form(self) -> ModelForm:
        return ModelForm(self.kind, self.inputs, self.outputs, self.hidden)


class TargetUnits(_Strict):
    """A regression's answer in the target's own units is output · scale + mean."""

    mean: _Finite
    scale: _Finite


class TableFacts(_Strict):
    """How the market's text files are written, as far as market.toml said so; what is null is found out."""

    separator: _Word | None = None
    decimal: _Word | None = None
    encoding: _Word | None = None
    missing: Annotated[tuple[str, ...], Field(strict=False)] = ()


class Outline(_Strict):
    """What a consumer's task says of its model: the tensors that its vector holds, one after the other, how it is built
    where it is a built-in one, and what it answers. Without tensors, the model is the vector itself."""

    tensors: Annotated[
        tuple[tuple[str, Annotated[tuple[int, ...], Field(strict=False)]], ...], Field(strict=False)
    ] = ()
    architecture: Architecture | None = None
    task: TaskKind | None = None

    @classmethod
    def of(cls, task: Task) -> Outline:
        from torch import nn

        from databazaar.learning.losses import LOSSES
        from databazaar.learning.models import form_of

        layout, form = task.optional_layout, form_of(task.model)
        kinds: dict[str, TaskKind] = {
            "cross-entropy": "classification",
            "binary-cross-entropy": "classification",
            "squared-error": "regression",
        }
        answers = next((kinds[name] for name, loss in LOSSES.items() if loss is task.loss), None)
        if isinstance(getattr(task.loss, "given", None), nn.CrossEntropyLoss):
            answers = "classification"
        shapes = () if layout is None else zip(layout.names, map(tuple, layout.shapes), strict=True)
        return cls(
            tensors=tuple(shapes),
            architecture=None if form is None else Architecture(**vars(form)),
            task=answers,
        )

    def named(self, params: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """A parameter vector as weights by name; a plain vector is called w."""
        if not self.tensors:
            return {"w": params}
        ends = np.cumsum([math.prod(shape) for _, shape in self.tensors])
        if ends[-1] != params.size or any(size < 0 for _, shape in self.tensors for size in shape):
            raise BazaarError(
                "the shapes that are noted of the model do not fit its numbers: put the old layout.json back"
            )
        pieces = np.split(params, ends[:-1])
        return {name: piece.reshape(shape) for (name, shape), piece in zip(self.tensors, pieces, strict=True)}


class ModelCard(_Strict):
    """model.json. `architecture` is null for a model of the user's own, `task` where nothing says what it answers.
    `frozen` is the digest of what was not trained, and is not among the weights; left out where there is no such."""

    format: Literal[1] = FORMAT
    model_hash: str
    architecture: Architecture | None = None
    task: TaskKind | None = None
    target: str | None = None
    classes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    units: TargetUnits | None = None
    tables: TableFacts = TableFacts()
    frozen: str = ""
    written: str
    by: str

    @property
    def form(self) -> ModelForm | None:
        return None if self.architecture is None else self.architecture.form

    def content(self) -> dict[str, Any]:
        """What model.json holds."""
        return self.model_dump(exclude=None if self.frozen else {"frozen"})


def known_from(schema: Schema) -> dict[str, Any]:
    """What the preprocessing says of the answers: fields of the card."""
    known: dict[str, Any] = {"task": schema.task, "target": schema.target, "classes": tuple(schema.class_names)}
    if schema.task == "regression":
        mean, above = (float(value) for value in schema.in_units(np.array([0.0, 1.0])))
        known["units"] = TargetUnits(mean=mean, scale=above - mean)
    return known
