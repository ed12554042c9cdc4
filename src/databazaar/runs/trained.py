"""What was bought, ready to be used: a trained model with its preprocessing, and the run that it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from databazaar.codes import Code, counted
from databazaar.display import Displayed, listed
from databazaar.errors import BazaarError
from databazaar.learning.blend import Blend
from databazaar.learning.metrics import intervals, metrics, softmax
from databazaar.learning.models import Layout, build_model, tensor_of
from databazaar.learning.parameter_exchange import frozen_digest
from databazaar.learning.torch_state import limited_threads
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.models import OF_COLUMNS, Trees
from databazaar.runs.folder import RunFolder
from databazaar.runs.model_folder import CARD, StoredModel, flattened, read_model
from databazaar.runs.notes import MODEL, RUN
from databazaar.runs.report import Report

if TYPE_CHECKING:
    import pandas as pd

    from databazaar.data.schema import Schema
    from databazaar.data.tables import TableFile

CHUNK = 2**16
"""Rows that pass the model at a time."""
Features: TypeAlias = "pd.DataFrame | ArrayLike"


@dataclass(frozen=True)
class Evaluation:
    """Answers against what is true: probabilities [n, classes] and class places, or numbers in the target's units."""

    task: str
    answers: NDArray[np.float64]
    y: NDArray[Any]
    names: tuple[str, ...]

    @property
    def metrics(self) -> dict[str, float]:
        """Accuracy, log loss, AUC and Brier score, or RMSE, MAE and R². What is undefined on these rows is NaN."""
        return metrics(self.task, self.answers, self.y)

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % intervals of the metrics, over other rows of the same kind."""
        return intervals(self.task, self.answers, self.y)


class TrainedModel(Displayed):
    """A model folder that was read. It holds `trees`, or else `model`, a torch module, which is None where the
    architecture is its maker's own.

    With a `schema`, the preprocessing, methods take tables as they are; without, they take the model's own inputs.
    """

    def __init__(self, path: Path, stored: StoredModel, model: nn.Module | None = None) -> None:
        self.path = path
        self.card = stored.card
        self.schema: Schema | None = stored.schema
        self.parameters: dict[str, NDArray[Any]] = stored.weights
        self.model: nn.Module | None = None
        self.trees: Ensemble | Blend | None = None
        form = stored.card.form
        if form is not None and form.kind in OF_COLUMNS:
            self.trees = _of_columns(stored, path)
            return
        if model is None and form is not None:
            model = build_model(form.kind, form.inputs, form.outputs, hidden=form.hidden)
        if model is not None:
            self.model = _filled(model, stored, path)

    @property
    def task(self) -> str | None:
        """classification or regression; None where nothing says what a model of somebody's own answers."""
        return self.card.task

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.card.classes

    def predict(self, data: Features, where: str = "the table") -> pd.DataFrame:
        """`prediction` for every row, in its order, with the table's index.

        Of a classification, the likeliest class by its own name, and `probability_NAME` of each; of a regression, the
        number in the target's own units. The table needs no target, and other columns than the model's are ignored.
        """
        import pandas as pd

        answers, index = self.answers(data, where), _index_of(data)
        if self.task == "regression":
            return pd.DataFrame({"prediction": answers}, index=index)
        labels = list(self._names(answers.shape[1]) if self.schema is None else self.schema.classes)
        likeliest = pd.Series([labels[place] for place in answers.argmax(1)], index=index, name="prediction")
        return pd.concat([likeliest.to_frame(), self._shares(answers, index)], axis=1)

    def predict_proba(self, data: Features, where: str = "the table") -> pd.DataFrame:
        """`probability_NAME` of each class for every row."""
        if self.task != "classification":
            raise BazaarError(f"{self.path} has no probabilities, because it is no classification: use predict")
        return self._shares(self.answers(data, where), _index_of(data))

    def evaluate(self, data: pd.DataFrame | tuple[ArrayLike, ArrayLike], where: str = "the table") -> dict[str, float]:
        """Accuracy, log loss, AUC and Brier score, or RMSE, MAE and R² in the target's units, on rows with a target.

        Rows without one are left out. Without a schema, `data` is (x, y). What is undefined on these rows, such as AUC
        where all are of one class, is NaN.
        """
        return self.judge(data, where).metrics

    def judge(self, data: pd.DataFrame | tuple[ArrayLike, ArrayLike], where: str = "the table") -> Evaluation:
        """The answers beside what is true, with metrics and their intervals."""
        y: NDArray[Any]
        if isinstance(data, tuple):
            x, y = data[0], np.asarray(data[1])
        elif self.schema is None:
            raise BazaarError(f"{self.path} has no preprocessing, so a table cannot be judged: give (x, y) as arrays")
        else:
            from databazaar.data.columns import as_numbers
            from databazaar.data.target import check_target, column_names, labelled

            target, task = self.schema.target, self.schema.task
            check_target(column_names(data, where), target, where, " of the hold-out")
            x = labelled(data, target, task, where)
            if task == "classification":
                y = self.schema.encode_target(x, where)
            else:  # encoded targets are held within bounds, these are not
                y = as_numbers(x[target], where, "a regression's target must be numbers")
        answers = self.answers(x, where)
        assert self.task is not None
        names = self._names(answers.shape[1]) if self.task == "classification" else ()
        return Evaluation(self.task, answers, y, names)

    def answers(self, data: Features, where: str = "the table") -> NDArray[np.float64]:
        """Probabilities [n, classes], or numbers [n] in the target's units."""
        if self.task is None:
            raise BazaarError(f"{self.path} does not say what its model answers: use model and parameters yourself")
        outputs = np.concatenate(list(self._outputs(self.encode(data, where))))
        if self.task == "classification":
            if outputs.ndim == 1 or outputs.shape[1:] == (1,):  # a single logit, of the second class
                outputs = np.column_stack([np.zeros(len(outputs)), outputs.reshape(len(outputs))])
            if outputs.ndim != 2:
                raise BazaarError(f"{self.path}: the model gives outputs {list(outputs.shape)}, not one for each class")
            return softmax(outputs)
        numbers = outputs.reshape(len(outputs), -1).astype(np.float64)
        numbers = numbers[:, 0] if numbers.shape[1] == 1 else numbers
        units = self.card.units
        return numbers if units is None else numbers * units.scale + units.mean

    def read_table(self, path: str | Path) -> TableFile:
        """A CSV or Parquet file, written as the market's files are. Its rows are `frame`."""
        from databazaar.data.tables import TableFormat, read_table

        return read_table(Path(path), TableFormat(**self.card.tables.model_dump()))

    def encode(self, data: Features, where: str = "the table") -> NDArray[np.float32]:
        """The model's inputs [n, …]: a table through the preprocessing, or arrays as they are."""
        if self.schema is not None and _is_table(data):
            from databazaar.data.tree_features import encoding_of

            kind = "" if self.card.form is None else self.card.form.kind
            encoded = encoding_of(self.schema, kind).encode_features(_with_named_index(data), where)
        else:
            try:
                encoded = np.asarray(data, dtype=np.float32)
            except (TypeError, ValueError) as reason:
                raise BazaarError(f"{where}: these are not numbers in rows ({reason!s:.100}): convert them") from None
        form = self.card.form
        if form is None:
            return encoded
        if encoded.ndim < 2 or int(np.prod(encoded.shape[1:])) != int(np.prod(form.inputs)):
            shape = list(encoded.shape[1:])
            raise BazaarError(f"{where}: a row of shape {shape} does not fit the model's inputs {list(form.inputs)}")
        return encoded.reshape(len(encoded), *form.inputs)

    @torch.no_grad()
    def _outputs(self, x: NDArray[np.float32]) -> Iterator[NDArray[Any]]:
        if self.model is None and self.trees is None:
            raise BazaarError(
                f"{self.path} holds the weights of a model whose architecture is its maker's own: "
                "give the torch module too, databazaar.load_run(path, model=…), or use .parameters"
            )
        for start in range(0, len(x), CHUNK):
            rows = x[start : start + CHUNK]
            if self.trees is not None:
                yield self.trees.outputs(rows)
                continue
            assert self.model is not None
            with limited_threads(sum(one.numel() for one in self.model.parameters())):
                outputs = tensor_of(self.model(torch.from_numpy(rows))).numpy()
            yield outputs

    def _names(self, classes: int) -> tuple[str, ...]:
        return self.class_names or tuple(str(place) for place in range(classes))

    def _shares(self, answers: NDArray[np.float64], index: Any) -> pd.DataFrame:
        import pandas as pd

        names = [f"probability_{name}" for name in self._names(answers.shape[1])]
        return pd.DataFrame(answers, columns=names, index=index)

    def _facts(self) -> dict[str, str]:
        form, count = self.card.form, sum(array.size for array in self.parameters.values())
        kind = "its maker’s own" if form is None else f"{form.kind} of {form.sizes}"
        size = f"{count:,} parameters" if self.trees is None else self.trees.size_in_words
        answers = f"{self.task}" + (f" of {self.card.target!r}" if self.card.target else "")
        names = f": {listed(self.class_names, 8)}" if self.class_names else ""
        return {
            "folder": str(self.path),
            "model": f"{kind}, {size}",
            "answers": f"{answers}{names}" if self.task else "not known",
            "inputs": "arrays (no preprocessing is kept)" if self.schema is None else listed(self.schema.columns, 8),
            "hash": f"{self.card.model_hash[:16]}, written {self.card.written} by {self.card.by}",
        }


def _index_of(data: Features) -> Any:
    """A table's own, so that its answers can be joined to it."""
    return data.index if _is_table(data) else None


def _is_table(data: Features) -> TypeGuard[pd.DataFrame]:
    """Asked without pandas, which arrays do not need."""
    return hasattr(data, "columns")


def _with_named_index(data: pd.DataFrame) -> pd.DataFrame:
    """An index with a name is a column here, as it is where a Parquet file is read."""
    named = [name for name in data.index.names if isinstance(name, str) and name not in data.columns]
    return data.assign(**{name: data.index.get_level_values(name) for name in named}) if named else data


def load_model(path: str | Path, model: nn.Module | None = None) -> TrainedModel:
    """The model in a model folder, such as `RUN/model`, also where it was copied without its run.

    Where the architecture is your own, give a `model` of it to be filled.
    """
    return TrainedModel(Path(path), read_model(Path(path)), model)


class FinishedRun(TrainedModel):
    """A finished run: its model, ready to be used, with the report and what everybody was paid."""

    def __init__(self, folder: RunFolder, stored: StoredModel, model: nn.Module | None = None) -> None:
        super().__init__(folder.path, stored, model)
        self.folder = folder

    @cached_property
    def report(self) -> Report:
        """The run's report, from its ledger, which must hold."""
        return self.folder.report()

    def to_frame(self) -> pd.DataFrame:
        """Who was paid what: a row for each provider, money in units of the currency."""
        return self.report.to_frame()

    def _facts(self) -> dict[str, str]:
        told = self.folder.summary()
        ended = f"{Code(str(told.get('status')))} after {counted(told.get('rounds'), 'round')}"
        return {**super()._facts(), "run": ended, "pay": ".to_frame(), .report"}


def load_run(path: str | Path, model: nn.Module | None = None) -> FinishedRun:
    """A finished run from its folder. Where the architecture is your own, give a `model` of it to be filled."""
    folder = RunFolder(Path(path))
    if not folder.finished:
        raise BazaarError(
            f"{path} holds no finished run: `bazaar run {path}` goes on with it, `bazaar close {path}` ends it"
        )
    stored = read_model((folder.path / MODEL).parent, folder.path)
    if stored.card.model_hash != str(folder.summary().get("model_hash")):
        raise BazaarError(f"{folder.path}: the model is not the one that the run ended with: it was changed")
    return FinishedRun(folder, stored, model)


def load(path: str | Path, model: nn.Module | None = None) -> TrainedModel:
    place = Path(path)
    if (place / CARD).exists():
        return load_model(place, model)
    if not (place / RUN).exists():
        raise BazaarError(f"{path} is neither a run's folder nor a model folder: give one that `bazaar run` made")
    return load_run(place, model)


def _of_columns(stored: StoredModel, path: Path) -> Ensemble | Blend:
    array, form = flattened(stored.weights), stored.card.form
    assert form is not None
    found = Ensemble.restored(array) if form.kind == Trees.kind else Blend.restored(array)
    trees = found if isinstance(found, Ensemble) else found.trees
    outputs = 1 if trees.objective.kind == "squared" else max(2, trees.objective.classes)
    grams = form.inputs[0] - trees.bins.features
    with_grams = isinstance(found, Blend) and len(found.linear.grams) > 0
    if grams < 0 or (grams > 0) != with_grams or outputs != form.outputs:
        raise BazaarError(f"{path}: the trees do not fit {CARD}: copy the model folder again from its run")
    return found


def _filled(model: nn.Module, stored: StoredModel, path: Path) -> nn.Module:
    wanted = Layout.of(model)
    needed = {name: tuple(shape) for name, shape in zip(wanted.names, wanted.shapes, strict=True)}
    has = {name: tuple(tensor.shape) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    found = {name: array.shape for name, array in stored.weights.items()}
    for wrong in (*needed, *found):
        if has.get(wrong) != found.get(wrong):
            raise BazaarError(
                f"{path}: the weights do not fit the model: {wrong!r} is {list(found.get(wrong, ())) or 'missing'} in "
                f"the file and {list(has.get(wrong, ())) or 'missing'} in the model"
            )
    if stored.card.frozen and frozen_digest(model, found) != stored.card.frozen:
        raise BazaarError(
            f"{path}: what was not trained is not the same in this model as in the one that was: build it from the "
            "weights that it was begun with"
        )
    layout = Layout(tuple(found), tuple(map(torch.Size, found.values())), wanted.trainable)
    layout.load(model, torch.from_numpy(flattened(stored.weights)))
    return model.eval()
