"""The folder of a trained model: complete in itself, to be copied anywhere. Reading it needs no torch.

model.safetensors   the weights by name
model.json          what the model is: how to build it, what it answers, its hash, when and by what it was written
schema.json         the preprocessing, where there is one: how a table becomes the model's inputs
README.txt          how to use it

It may come from anybody: it is data that is checked, and nothing in it is executed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from databazaar import __version__
from databazaar.data.schema_message import Strict, TaskKind
from databazaar.errors import BazaarError, UncheckableError
from databazaar.files import read_plain, write_whole
from databazaar.models import OF_COLUMNS, ColumnsKind, ModelForm, ModelKind, TrainedOnRows, Trees
from databazaar.vectors import hash_array, pack, unpack

if TYPE_CHECKING:
    from databazaar.data.schema import Schema
    from databazaar.learning.task import Task

WEIGHTS, CARD, SCHEMA, README = "model.safetensors", "model.json", "schema.json", "README.txt"
LARGEST_WEIGHTS, LARGEST_CARD, LARGEST_SCHEMA = 4 * 2**30, 2**20, 2**26
"""Bytes that the weights, model.json and schema.json may have: more is not read."""
FORMAT: Literal[1] = 1

_Size = Annotated[int, Field(ge=1, le=2**31)]
_Sizes = Annotated[tuple[_Size, ...], Field(strict=False, max_length=100)]
_Shape = Annotated[tuple[int, ...], Field(strict=False)]
_Word = Annotated[str, Field(min_length=1, max_length=40)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class Architecture(Strict):
    """A built-in model, as `databazaar.build_model` takes it."""

    kind: ModelKind | ColumnsKind | TrainedOnRows
    inputs: _Sizes
    outputs: _Size
    hidden: _Sizes = ()


class TargetUnits(Strict):
    """A regression's answer in the target's own units is output · scale + mean."""

    mean: _Finite
    scale: _Finite


class TableFacts(Strict):
    """How the market's text files are written, as far as market.toml said so; what is null is found out."""

    separator: _Word | None = None
    decimal: _Word | None = None
    encoding: _Word | None = None
    missing: Annotated[tuple[str, ...], Field(strict=False)] = ()


class Outline(Strict):
    """What a consumer's task says of its model: the tensors that its vector holds, one after the other, how it is built
    where it is a built-in one, and what it answers. Without tensors, the model is the vector itself."""

    tensors: Annotated[tuple[tuple[str, _Shape], ...], Field(strict=False)] = ()
    architecture: Architecture | None = None
    task: TaskKind | None = None

    @classmethod
    def of(cls, task: Task, form: ModelForm | None = None) -> Outline:
        """Of a built-in model that is no torch module, the `form` says how it is built."""
        from torch import nn

        from databazaar.learning.losses import LOSSES
        from databazaar.learning.models import form_of

        layout, form = task.optional_layout, form or form_of(task.model)
        known = next((name for name, loss in LOSSES.items() if loss is task.loss), "")
        crosses = known.endswith("cross-entropy") or isinstance(getattr(task.loss, "given", None), nn.CrossEntropyLoss)
        answers: TaskKind | None = "classification" if crosses else "regression" if known == "squared-error" else None
        shapes = () if layout is None else zip(layout.names, map(tuple, layout.shapes), strict=True)
        return cls(
            tensors=tuple(shapes), architecture=None if form is None else Architecture(**vars(form)), task=answers
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


class ModelCard(Strict):
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
        return None if self.architecture is None else ModelForm(**self.architecture.model_dump())


def known_from(schema: Schema) -> dict[str, Any]:
    """What the preprocessing says of the answers: fields of the card."""
    known: dict[str, Any] = {"task": schema.task, "target": schema.target, "classes": tuple(schema.class_names)}
    if schema.task == "regression":
        mean, above = (float(value) for value in schema.in_units(np.array([0.0, 1.0])))
        known["units"] = TargetUnits(mean=mean, scale=above - mean)
    return known


@dataclass(frozen=True)
class StoredModel:
    """What a model folder holds, checked: the weights have the hash that model.json names."""

    card: ModelCard
    weights: dict[str, NDArray[Any]]
    schema: Schema | None


def write_model(
    folder: Path,
    params: NDArray[Any],
    outline: Outline,
    schema: Schema | None = None,
    tables: TableFacts | None = None,
    within: Path | None = None,
    frozen: str = "",
) -> ModelCard:
    """Writes a model folder from a parameter vector. The card comes last: a folder that has it is whole. No link is
    followed on the way from `within`."""
    card = ModelCard(
        model_hash=hash_array(params),
        architecture=outline.architecture,
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        by=f"databazaar {__version__}",
        tables=tables or TableFacts(),
        frozen=frozen,
        **({"task": outline.task} if schema is None else known_from(schema)),
    )
    write_whole(folder / WEIGHTS, pack(outline.named(params)), within=within)
    if schema is not None:
        write_whole(folder / SCHEMA, json.dumps(schema.to_dict(), indent=1).encode(), within=within)
    write_whole(folder / README, _readme(card).encode(), within=within)
    content = card.model_dump(exclude=None if frozen else {"frozen"})
    write_whole(folder / CARD, json.dumps(content, indent=2).encode(), within=within)
    return card


def read_model(folder: Path, within: Path | None = None) -> StoredModel:
    """What is in a model folder. What does not fit together is refused in one sentence."""
    card, schema = read_description(folder, within)
    weights = read_weights(folder / WEIGHTS, card.model_hash, within)
    refuse_other_size(card, sum(array.size for array in weights.values()), folder)
    return StoredModel(card, weights, schema)


def read_description(folder: Path, within: Path | None = None) -> tuple[ModelCard, Schema | None]:
    """What a model folder says of its weights, which are not looked at."""
    card = read_card(folder, within)
    schema = None
    if card.target is not None or os.path.lexists(folder / SCHEMA):
        from databazaar.data.schema import Schema

        schema = Schema.from_dict(_json(folder / SCHEMA, LARGEST_SCHEMA, within), str(folder / SCHEMA))
    if schema is not None and any(getattr(card, name) != value for name, value in known_from(schema).items()):
        raise _unfit(folder / SCHEMA, f"it is of another model than {CARD}")
    form = card.form
    if form is not None and schema is not None:
        from databazaar.data.tree_features import encoding_of

        sizes = int(np.prod(form.inputs)), form.outputs
        if (encoding_of(schema, form.kind).width, schema.outputs) != sizes:
            raise _unfit(folder / SCHEMA, f"it does not fit the inputs and outputs of {CARD}")
    return card, schema


def refuse_other_size(card: ModelCard, parameters: int, folder: Path) -> None:
    """Refuses weights that a built-in model of this card does not have."""
    if card.form is None or card.form.kind in OF_COLUMNS:
        return
    try:
        expected = card.form.parameter_count
    except BazaarError as error:
        raise _unfit(folder / CARD, str(error).partition(":")[0]) from None
    if expected != parameters:
        raise _unfit(folder / WEIGHTS, f"it has other parameters than the {card.form.kind} of {CARD}")


def read_card(folder: Path, within: Path | None = None) -> ModelCard:
    path = folder / CARD
    content = _json(path, LARGEST_CARD, within)
    if isinstance(content, dict) and isinstance(content.get("format"), int) and content["format"] > FORMAT:
        raise UncheckableError(
            f"{path} was written by a newer version ({content.get('by')!s:.40}): install that version"
        )
    try:
        return ModelCard.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])[:80] or "the whole"
        raise _unfit(path, f"{field}: {first['msg']}") from None


def read_weights(path: Path, expected: str, within: Path | None = None) -> dict[str, NDArray[Any]]:
    """The weights by name. Only safetensors are read, which hold numbers and nothing that could be executed."""
    try:
        weights = unpack(read_plain(path, within, LARGEST_WEIGHTS))
        found = hash_array(flattened(weights))
    except FileNotFoundError:
        raise BazaarError(f"{path} is missing: copy the whole model folder") from None
    except (OSError, ValueError, TypeError) as reason:
        raise _unfit(path, f"it cannot be read as safetensors: {reason!s:.100}") from None
    if found != expected:
        raise _unfit(path, "it does not hold the model that was written: it was changed")
    return weights


def flattened(weights: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The parameter vector that weights by name are the parts of."""
    return np.concatenate([array.reshape(-1) for array in weights.values()])


def _json(path: Path, most: int, within: Path | None) -> Any:
    try:
        return json.loads(read_plain(path, within, most))
    except FileNotFoundError:
        raise BazaarError(f"{path} is missing: give a run's folder, or a model folder that is whole") from None
    except (OSError, ValueError, RecursionError) as reason:
        raise _unfit(path, f"it cannot be read as JSON: {reason!s:.100}") from None


def _unfit(path: Path, reason: str) -> BazaarError:
    return BazaarError(f"{path} cannot be used ({reason}): copy the model folder again from its run")


def _readme(card: ModelCard) -> str:
    what = "a model of its maker's own" if card.form is None else f"a built-in model, {card.form.kind}"
    answers = {"classification": f"classes of {card.target}", "regression": f"{card.target} in its own units"}
    known = card.task is not None and card.target is not None
    trees = card.form is not None and card.form.kind == Trees.kind
    return f"""A model that was bought on a data market: {what}.
{f"It answers with {answers[card.task]}." if known and card.task else ""}

This folder is complete in itself: copy it anywhere.

On the command line, with databazaar installed:

    bazaar predict THIS_FOLDER new.csv --out predictions.csv
    bazaar evaluate THIS_FOLDER test.csv
    bazaar export THIS_FOLDER --out {"model.txt" if trees else "model.onnx"}

From Python:

    import databazaar, pandas as pd
    model = databazaar.load_model("THIS_FOLDER")
    print(model.predict(pd.read_csv("new.csv")))

{WEIGHTS} holds the weights by name, {CARD} how they are put together
{f"and {SCHEMA} how a table becomes the inputs" if card.target is not None else "(the inputs are the maker's own)"}.
Written {card.written} by {card.by}; hash of the weights {card.model_hash}.
"""
