"""How a table becomes numbers, learned from the consumer's hold-out alone.

Means, scales, categories and classes all come from the hold-out, so that no provider's data reaches another
provider through the encoding. Encoded numbers are held within ±`LIMIT` scales of the hold-out's mean: an
outlier in somebody's file stays finite in float32 and cannot wreck a training step by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ValidationError

from databazaar.data.columns import as_numbers, as_text, kind_of, listed, plain, suggestion
from databazaar.data.holdout import categories_of, chosen_columns, classes_of, is_categorical
from databazaar.data.schema_message import SchemaMessage, TaskKind
from databazaar.errors import BazaarError

Array: TypeAlias = npt.NDArray[Any]
LIMIT = 10.0


@dataclass(frozen=True)
class NumericColumn:
    """A column standardised as (value - mean) / scale; a constant column has scale 1."""

    name: str
    mean: float
    scale: float

    @classmethod
    def fit(cls, name: str, values: npt.NDArray[np.float64]) -> NumericColumn:
        """Mean and standard deviation: the same for any order of the rows, finite for any finite values."""
        values = np.sort(values)
        largest = max(abs(float(values[0])), abs(float(values[-1])))
        if values[0] == values[-1]:
            return cls(name, float(values[0]) + 0.0, 1.0)
        shrunk = values / largest
        mean, scale = float(shrunk.mean()) * largest, float(shrunk.std()) * largest
        usable = scale > largest * 1e-12 and scale > np.finfo(np.float64).tiny
        return cls(name, mean + 0.0, scale if usable else 1.0)

    def encode(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        with np.errstate(over="ignore"):
            standard = (values - self.mean) / self.scale
        clipped: npt.NDArray[np.float32] = np.clip(standard, -LIMIT, LIMIT).astype(np.float32)
        return clipped


@dataclass(frozen=True)
class CategoricalColumn:
    """A column as one 0/1 feature per category of the hold-out; any other category is all zeros."""

    name: str
    categories: tuple[str, ...]

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        places = {category: place for place, category in enumerate(self.categories)}
        codes = np.array([places.get(text, -1) for text in texts], dtype=np.int64)
        hot: npt.NDArray[np.float32] = (codes[:, None] == np.arange(len(self.categories))).astype(np.float32)
        return hot


@dataclass(frozen=True)
class Schema:
    """The encoding of every table of a market.

    >>> holdout = pd.DataFrame({"amount": [1.0, 3.0], "channel": ["web", "shop"], "fraud": [0, 1]})
    >>> schema = Schema.fit(holdout, target="fraud", task="classification")
    >>> schema.width, schema.outputs, schema.feature_names
    (3, 2, ('amount', 'channel=shop', 'channel=web'))
    >>> x, y = schema.encode(holdout, "holdout.csv")
    >>> x.tolist(), y.tolist()
    ([[-1.0, 0.0, 1.0], [1.0, 1.0, 0.0]], [0, 1])
    """

    target: str
    task: TaskKind
    numeric: tuple[NumericColumn, ...]
    categorical: tuple[CategoricalColumn, ...]
    classes: tuple[int, ...] = ()
    target_mean: float = 0.0
    target_scale: float = 1.0
    features_listed: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The feature columns that every table must have."""
        return (*(column.name for column in self.numeric), *(column.name for column in self.categorical))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per encoded feature, in the order of x."""
        hot = (f"{column.name}={category}" for column in self.categorical for category in column.categories)
        return (*(column.name for column in self.numeric), *hot)

    @property
    def width(self) -> int:
        return len(self.numeric) + sum(len(column.categories) for column in self.categorical)

    @property
    def outputs(self) -> int:
        """Outputs of a model: one per class, or one number."""
        return len(self.classes) if self.task == "classification" else 1

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        *,
        target: str,
        task: TaskKind,
        features: Sequence[str] | None = None,
        categorical: Sequence[str] | None = None,
        where: str = "holdout.csv",
    ) -> Schema:
        """Learn the encoding from the hold-out; without `features`, every column but the target is one."""
        names = _names(frame, where)
        if target not in names:
            raise BazaarError(
                f"{where}: the target column {target!r} is missing; {suggestion(target, names)}: "
                "correct `target` or add the column"
            )
        chosen = chosen_columns(names, target, features, categorical, where)
        numbers, texts = [], []
        for name in chosen:
            column = frame[name]
            if is_categorical(column, name in (categorical or ()), where):
                texts.append(CategoricalColumn(name, categories_of(as_text(column, where), name, where)))
            else:
                numbers.append(NumericColumn.fit(name, as_numbers(column, where, "numbers were expected")))
        values = as_numbers(frame[target], where, _target_wants(task))
        schema = cls(target, task, tuple(numbers), tuple(texts), features_listed=features is not None)
        if task == "classification":
            return replace(schema, classes=classes_of(values, target, where))
        scaled = NumericColumn.fit(target, values)
        return replace(schema, target_mean=scaled.mean, target_scale=scaled.scale)

    def encode(self, frame: pd.DataFrame, where: str) -> tuple[npt.NDArray[np.float32], Array]:
        """x as float32 [rows, width], and y as int64 class places or float32 standardised targets."""
        return self.encode_features(frame, where), self.encode_target(frame, where)

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(str(label) for label in self.classes)

    def in_units(self, values: Array) -> Array:
        return values * self.target_scale + self.target_mean

    def encode_features(self, frame: pd.DataFrame, where: str) -> npt.NDArray[np.float32]:
        self._check_columns(_names(frame, where), where)
        blocks = [
            column.encode(as_numbers(frame[column.name], where, "the hold-out has numbers"))[:, None]
            for column in self.numeric
        ]
        blocks += [column.encode(self._texts(frame, column, where)) for column in self.categorical]
        return np.ascontiguousarray(np.concatenate(blocks, axis=1), dtype=np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `from_dict` gives an equal schema."""
        return asdict(self)

    @classmethod
    def from_dict(cls, message: object, where: str = "schema") -> Schema:
        """A schema that came from another party: every field is checked and none is added."""
        try:
            parsed = SchemaMessage.model_validate(message)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "the schema"
            raise BazaarError(
                f"{where}: {field} is not valid ({first['msg']}): use a schema that Schema.to_dict wrote"
            ) from None
        schema = cls(
            parsed.target,
            parsed.task,
            tuple(NumericColumn(column.name, column.mean, column.scale) for column in parsed.numeric),
            tuple(CategoricalColumn(column.name, tuple(column.categories)) for column in parsed.categorical),
            tuple(parsed.classes),
            parsed.target_mean,
            parsed.target_scale,
            parsed.features_listed,
        )
        broken = schema._broken_rule()
        if broken:
            raise BazaarError(f"{where}: {broken}: use a schema that Schema.to_dict wrote")
        return schema

    def _broken_rule(self) -> str | None:
        names = (*self.columns, self.target)
        if not self.columns:
            return "numeric and categorical name no column"
        if len(set(names)) < len(names):
            return "numeric, categorical and target name a column twice"
        for column in self.categorical:
            if list(column.categories) != sorted(set(column.categories)):
                return f"categorical: the categories of {column.name!r} are not sorted and distinct"
        if list(self.classes) != sorted(set(self.classes)):
            return "classes are not sorted and distinct"
        if (len(self.classes) >= 2) != (self.task == "classification") or len(self.classes) == 1:
            return f"classes has {len(self.classes)} labels, which does not fit task = {self.task!r}"
        return None

    def _check_columns(self, names: list[str], where: str) -> None:
        for name in self.columns:
            if name not in names:
                role = "target" if name == self.target else "feature"
                raise BazaarError(
                    f"{where}: the {role} column {name!r} of the hold-out is missing; "
                    f"{suggestion(name, names)}: add or rename the column"
                )
        other = [name for name in names if name not in (*self.columns, self.target)]
        if other and not self.features_listed:
            raise BazaarError(
                f"{where}: the file has other columns than the hold-out, {listed(other)}: "
                "drop them, or list the columns to use as `features` in market.toml"
            )

    def _texts(self, frame: pd.DataFrame, column: CategoricalColumn, where: str) -> list[str]:
        texts = as_text(frame[column.name], where)
        if kind_of(plain(frame[column.name])) == "number" and not set(texts) & set(column.categories):
            raise BazaarError(
                f"{where}: column {column.name!r} holds numbers ({texts[0]} in data row 1) where the "
                f"hold-out has the categories {listed(column.categories, 4)}: write the same categories or "
                "leave the column out"
            )
        return texts

    def encode_target(self, frame: pd.DataFrame, where: str) -> Array:
        if self.target not in frame.columns:
            raise BazaarError(f"{where}: the target column {self.target!r} of the hold-out is missing: add it")
        values = as_numbers(frame[self.target], where, _target_wants(self.task))
        if self.task == "regression":
            return NumericColumn(self.target, self.target_mean, self.target_scale).encode(values)
        classes = np.array(self.classes, dtype=np.float64)
        places = np.minimum(np.searchsorted(classes, values), len(classes) - 1).astype(np.int64)
        unknown = classes[places] != values
        if unknown.any():
            row = int(unknown.argmax())
            raise BazaarError(
                f"{where}: column {self.target!r} has the class {values[row]:g} in data row {row + 1}, which "
                f"the hold-out does not have (its classes: {', '.join(map(str, self.classes[:8]))}): "
                "correct the label, drop the row, or add the class to the hold-out"
            )
        return places


def _names(frame: pd.DataFrame, where: str) -> list[str]:
    names = list(frame.columns)
    for name in names:
        if not isinstance(name, str):
            raise BazaarError(f"{where}: the column name {name!r} is not text: rename the column")
        if names.count(name) > 1:
            raise BazaarError(f"{where}: the column {name!r} appears more than once: rename or drop one of them")
    if not len(frame):
        raise BazaarError(f"{where}: the table has no rows: add data or leave the table out")
    return names


def _target_wants(task: TaskKind) -> str:
    return f"a target must be numeric for {task}"
