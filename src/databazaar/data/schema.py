"""How a table becomes numbers, learned from the consumer's hold-out alone.

Means, medians, categories and classes all come from the hold-out, so that no provider's data reaches another
provider through the encoding. A schema is plain data: it travels to providers and into a run's folder as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field, ValidationError

from databazaar.data.columns import as_numbers, suggestion
from databazaar.data.encoders import (
    CategoricalColumn,
    DateColumn,
    Encoder,
    HashedColumn,
    ImageColumn,
    NumericColumn,
    TextColumn,
    standardised,
)
from databazaar.data.holdout import chosen_columns, fit_column, kinds_said
from databazaar.data.images import Size
from databazaar.data.schema_message import MAX_WIDTH, MOST_COLUMNS, LeftOut, SchemaMessage, TaskKind
from databazaar.data.target import check_target, classes_of, column_names, places_of, refuse_without_target
from databazaar.errors import BazaarError

Array: TypeAlias = npt.NDArray[Any]
Given = TypeVar("Given")


class TableFaults:
    """Sentences in the order found, each once."""

    def __init__(self) -> None:
        self._sentences: dict[str, None] = {}

    @property
    def found(self) -> tuple[str, ...]:
        return tuple(self._sentences)

    def add(self, sentences: Iterable[str]) -> None:
        self._sentences.update(dict.fromkeys(sentences))

    def caught(self, attempt: Callable[[], Given], who: Iterable[str] = ("",)) -> Given | None:
        """What an attempt gives, None where it was at fault. `who` are those whose fault it is, as sentences begin."""
        try:
            return attempt()
        except BazaarError as fault:
            self.add(f"{whose}{fault}" for whose in who)
            return None


class FirstFault(TableFaults):
    """Ends at the first fault."""

    def add(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            raise BazaarError(sentence) from None


class Schema(SchemaMessage):
    """The encoding of every table of a market: numbers first, then categories, hashed ones, dates, texts, and images.

    >>> holdout = pd.DataFrame({"amount": [1.0, 3.0], "channel": ["web", "shop"], "fraud": ["no", "yes"]})
    >>> schema = Schema.fit(holdout, target="fraud", task="classification")
    >>> schema.width, schema.class_names, schema.feature_names
    (3, ('no', 'yes'), ('amount', 'channel=shop', 'channel=web'))
    >>> x, y = schema.encode(holdout, "holdout.csv")
    >>> x.tolist(), y.tolist()
    ([[-1.0, 0.0, 1.0], [1.0, 1.0, 0.0]], [0, 1])
    """

    numeric: Annotated[tuple[NumericColumn, ...], Field(strict=False, max_length=MAX_WIDTH)]
    categorical: Annotated[tuple[CategoricalColumn, ...], Field(strict=False, max_length=MOST_COLUMNS)]
    hashed: Annotated[tuple[HashedColumn, ...], Field(strict=False, max_length=MOST_COLUMNS)]
    dates: Annotated[tuple[DateColumn, ...], Field(strict=False, max_length=MOST_COLUMNS)]
    texts: Annotated[tuple[TextColumn, ...], Field(strict=False, max_length=MOST_COLUMNS)] = ()
    images: Annotated[tuple[ImageColumn, ...], Field(strict=False, max_length=MOST_COLUMNS)] = ()

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        """One for each feature column, in the order of x."""
        return (*self.numeric, *self.categorical, *self.hashed, *self.dates, *self.texts, *self.images)

    @property
    def columns(self) -> tuple[str, ...]:
        """The feature columns that every table must have."""
        return tuple(encoder.name for encoder in self.encoders)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per encoded feature, in the order of x."""
        return tuple(name for encoder in self.encoders for name in encoder.feature_names)

    @property
    def width(self) -> int:
        """How many features there are; a schema from elsewhere may have more than can be named in memory."""
        return sum(encoder.width for encoder in self.encoders)

    @property
    def outputs(self) -> int:
        """Outputs of a model: one per class, or one number."""
        return len(self.classes) if self.task == "classification" else 1

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes as text, in the order of y; none for a regression."""
        return tuple(str(name) for name in self.classes)

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        *,
        target: str,
        task: TaskKind,
        features: Sequence[str] | None = None,
        categorical: Sequence[str] | None = None,
        text: Sequence[str] | None = None,
        day_first: bool | None = None,
        image: Size | None = None,
        where: str = "holdout.csv",
        faults: TableFaults | None = None,
    ) -> Schema:
        """Learn the encoding from the hold-out; without `features`, every column but the target is one. `day_first`
        says how to read 03/04/2024 where no date of its column shows the order, and `image` how large images become.
        The first fault is raised; where `faults` collect them, the encoding is that of the columns without one."""
        faults = FirstFault() if faults is None else faults
        names = column_names(frame, where)
        check_target(names, target, where)
        refuse_without_target(frame, target, task, where)
        wanted, said = set(features or ()), kinds_said(categorical, text)
        chosen = faults.caught(lambda: chosen_columns(names, target, features, categorical, text, where))
        if chosen is None:
            chosen = [name for name in names if name != target and (features is None or name in wanted)]
        fits = (
            partial(fit_column, frame[name], said.get(name), name in wanted, day_first, where, image) for name in chosen
        )
        fitted = [faults.caught(fit) for fit in fits]
        parts: dict[str, Any] = {
            name: tuple(column for column in fitted if isinstance(column, kind)) for name, kind in _COLUMNS.items()
        }
        schema = cls.model_construct(target=target, task=task, **parts, classes=(), target_mean=0.0, target_scale=1.0)
        if not schema.columns and None not in fitted:
            why = ", ".join(f"{column.name!r} is {REASONS[column.why]}" for column in schema.left_out[:4])
            faults.add([f"{where}: no feature column tells anything ({why}): add columns"])
        if schema.width > MAX_WIDTH:
            sentence = (
                f"{where}: the columns make {schema.width} features, more than {MAX_WIDTH}: "
                "list the columns to use as `features` in market.toml"
            )
            faults.add([sentence])
        return faults.caught(lambda: schema._with_target(frame, where)) or schema

    def _with_target(self, frame: pd.DataFrame, where: str) -> Schema:
        """The same encoding with the hold-out's classes, or the mean and the scale of its numbers."""
        if self.task == "classification":
            return self.model_copy(update={"classes": classes_of(frame[self.target], where)})
        scaled = NumericColumn.fit(self.target, as_numbers(frame[self.target], where, _REGRESSION))
        return self.model_copy(update={"target_mean": scaled.mean, "target_scale": scaled.scale})

    def encode(
        self, frame: pd.DataFrame, where: str, faults: TableFaults | None = None
    ) -> tuple[npt.NDArray[np.float32], Array]:
        """x as float32 [rows, width], and y as int64 class places or float32 standardised targets. What `faults`
        collect is left out of them, and so is a target whose classes are not known."""
        faults = FirstFault() if faults is None else faults
        return self.encode_features(frame, where, faults), self.encode_labels(frame, where, faults)

    def encode_labels(self, frame: pd.DataFrame, where: str, faults: TableFaults) -> Array:
        """y as `encode` has it."""
        faults.caught(lambda: check_target(column_names(frame, where), self.target, where, " of the hold-out"))
        known = bool(self.classes) or self.task == "regression"
        y = faults.caught(lambda: self.encode_target(frame, where)) if known else None
        return np.zeros(0) if y is None else y

    def encode_features(
        self, frame: pd.DataFrame, where: str, faults: TableFaults | None = None
    ) -> npt.NDArray[np.float32]:
        """x alone, of a table that needs no target."""
        faults = FirstFault() if faults is None else faults
        self.refuse_missing_columns(frame, where, faults)
        x = np.zeros((len(frame), self.width), dtype=np.float32)
        place = 0
        for encoder in self.encoders:
            if encoder.name in frame.columns:
                features = x[:, place : place + encoder.width]
                faults.caught(partial(encoder.encode, frame[encoder.name], features, where))
            place += encoder.width
        return x

    def refuse_missing_columns(self, frame: pd.DataFrame, where: str, faults: TableFaults) -> None:
        """Notes the feature columns that a table does not have."""
        column_names(frame, where)
        for name in self.columns:
            if name not in frame.columns:
                near = suggestion(name, list(frame.columns))
                sentence = f"{where}: the feature column {name!r} of the hold-out is missing; {near}"
                faults.add([f"{sentence}: add or rename the column"])

    def encode_target(self, frame: pd.DataFrame, where: str) -> Array:
        """y alone. A row without a target is refused: `labelled` leaves such rows out."""
        check_target(column_names(frame, where), self.target, where, " of the hold-out")
        refuse_without_target(frame, self.target, self.task, where)
        if self.task == "classification":
            return places_of(frame[self.target], self.classes, where)
        values = as_numbers(frame[self.target], where, _REGRESSION)
        return standardised(values, self.target_mean, self.target_scale)

    def in_units(self, values: Array) -> npt.NDArray[np.float64]:
        """Outputs of a regression in the target's own units."""
        return np.asarray(values, dtype=np.float64) * self.target_scale + self.target_mean

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; `from_dict` gives an equal schema."""
        return self.model_dump()

    @classmethod
    def from_dict(cls, message: object, where: str = "schema") -> Schema:
        """A schema that came from another party: every field is checked and none is added."""
        try:
            schema = cls.model_validate(message)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "the schema"
            raise BazaarError(
                f"{where}: {field} is not valid ({first['msg']}): use a schema that Schema.to_dict wrote"
            ) from None
        broken = schema._broken_rule()
        if broken:
            raise BazaarError(f"{where}: {broken}: use a schema that Schema.to_dict wrote")
        return schema

    def _broken_rule(self) -> str | None:
        names = (*self.columns, self.target, *(column.name for column in self.left_out))
        if not self.columns:
            return "numeric, categorical, hashed, dates, texts and images name no column"
        if len(set(names)) < len(names):
            return "a column is named twice"
        if self.width > MAX_WIDTH:
            return f"the columns make {self.width} features, more than {MAX_WIDTH}"
        for column in self.categorical:
            if list(column.categories) != sorted(set(column.categories)):
                return f"categorical: the categories of {column.name!r} are not sorted and distinct"
        for date in self.dates:
            if len(set(date.parts)) < len(date.parts):
                return f"dates: the parts of {date.name!r} are not distinct"
        for text in self.texts:
            if len(set(text.common)) < len(text.common):
                return f"texts: the common grams of {text.name!r} are not distinct"
        for image in self.images:
            if not len(image.means) == len(image.scales) == image.size[0]:
                return f"images: {image.name!r} has not one mean and one scale for each channel"
        if sum(text.slots for text in self.texts) > MAX_WIDTH:
            return f"texts have more than {MAX_WIDTH} slots"
        if len({type(label) for label in self.classes}) > 1 or list(self.classes) != sorted(set(self.classes)):
            return "classes are not sorted, distinct and of one type"
        if (len(self.classes) >= 2) != (self.task == "classification") or len(self.classes) == 1:
            return f"classes has {len(self.classes)} labels, which does not fit task = {self.task!r}"
        return None


_COLUMNS: dict[str, Any] = {
    "numeric": NumericColumn,
    "categorical": CategoricalColumn,
    "hashed": HashedColumn,
    "dates": DateColumn,
    "texts": TextColumn,
    "images": ImageColumn,
    "left_out": LeftOut,
}
REASONS = {"empty": "empty", "constant": "the same in all rows", "identifier": "different in nearly every row"}
_REGRESSION = "a regression's target must be numbers"
