"""Every fault of a market's tables. Columns are read one by one, so that one at fault does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from databazaar.config.sections import DataSettings
from databazaar.data.encoders import CategoricalColumn, DateColumn, HashedColumn, NumericColumn
from databazaar.data.holdout import LeftOut, chosen_columns, fit_column
from databazaar.data.labels import classes_of
from databazaar.data.market_profile import Table
from databazaar.data.profile_record import ColumnUse, Understood
from databazaar.data.tables import Schema, labelled, notes_of, read_table
from databazaar.errors import BazaarError

Given = TypeVar("Given")
_KINDS: dict[type, tuple[str, Understood]] = {
    NumericColumn: ("numeric", "number"),
    CategoricalColumn: ("categorical", "category"),
    HashedColumn: ("hashed", "hashed"),
    DateColumn: ("dates", "date"),
}
"""Of each kind of encoder, the schema's name and ours."""
_REASONS = {"empty": "empty", "constant": "always the same", "identifier": "different in nearly every row"}


class Faults:
    """Sentences in the order found, each once."""

    def __init__(self) -> None:
        self._sentences: dict[str, None] = {}

    @property
    def found(self) -> tuple[str, ...]:
        return tuple(self._sentences)

    def add(self, sentences: Iterable[str]) -> None:
        self._sentences.update(dict.fromkeys(sentences))

    def caught(self, attempt: Callable[[], Given], who: str = "") -> Given | None:
        """What an attempt gives, None where it was at fault."""
        try:
            return attempt()
        except BazaarError as fault:
            self.add([f"{who}{fault}"])
            return None


class TableReader:
    """Reads a market's tables by the settings of [data], and notes all that is at fault."""

    def __init__(self, data: DataSettings, folder: Path, faults: Faults) -> None:
        self._data, self._folder, self._faults = data, folder, faults

    def table(self, id: str, file: Path, who: str = "") -> Table | None:
        """The rows whose target is known, None where the file cannot be used."""
        return self._faults.caught(lambda: self._read(id, file), who)

    def _read(self, id: str, file: Path) -> Table:
        path, target = self._folder / file, self._data.target
        frame = read_table(path, self._data.format)
        known = labelled(frame, target, self._data.task, str(path))
        left = len(frame) - len(known)
        notes = (f"{left:,} of its rows have no {target!r} and are left out: fill it in",) if left else ()
        return Table(id, file.as_posix(), known, (*notes_of(frame), *notes))

    def columns(self, holdout: Table) -> list[tuple[ColumnUse, Schema | None]]:
        """How each column of the hold-out is read, and a schema of its own for one that can be used."""
        data, where = self._data, self._where(holdout)
        names = [str(name) for name in holdout.frame.columns if name != data.target]
        self._faults.caught(
            lambda: chosen_columns([*names, data.target], data.target, data.features, data.categorical, where)
        )
        return [self._column(holdout, name, where) for name in names]

    def _column(self, holdout: Table, name: str, where: str) -> tuple[ColumnUse, Schema | None]:
        data = self._data
        if data.features is not None and name not in data.features:
            return ColumnUse(name=name, understood="left out", why="not among `features`"), None
        marked, wanted = name in (data.categorical or ()), name in (data.features or ())
        day_first = None if data.dates is None else data.dates == "day-first"
        fitted = self._faults.caught(lambda: fit_column(holdout.frame[name], marked, wanted, day_first, where))
        if fitted is None:
            return ColumnUse(name=name, understood="not usable"), None
        if isinstance(fitted, LeftOut):
            return ColumnUse(name=name, understood="left out", why=_REASONS[fitted.why]), None
        field, understood = _KINDS[type(fitted)]
        column: dict[str, Any] = {field: (fitted,)}
        return ColumnUse(name=name, understood=understood), Schema(data.target, data.task, **column)

    def labels(self, holdout: Table) -> Schema | None:
        """A schema of the target alone."""
        data, where = self._data, self._where(holdout)
        if data.task == "regression":
            schema = Schema(data.target, data.task)
            return None if self._faults.caught(lambda: schema.encode_target(holdout.frame, where)) is None else schema
        classes = self._faults.caught(lambda: classes_of(holdout.frame[data.target], where))
        return None if classes is None else Schema(data.target, data.task, classes=classes)

    def compare(self, table: Table, columns: Mapping[str, Schema], labels: Schema | None, who: str = "") -> None:
        """Notes every column of a table that cannot be read as the hold-out's is, and labels that it does not have."""
        where = self._where(table)
        for schema in columns.values():
            there = all(name in table.frame.columns for name in schema.columns)
            frame = table.frame[list(schema.columns)] if there else table.frame  # all names are gone through every time
            self._faults.caught(lambda schema=schema, frame=frame: schema.encode_features(frame, where), who)  # type: ignore[misc]
        if labels is not None:
            self._faults.caught(lambda: labels.encode_target(table.frame, where), who)

    def _where(self, table: Table) -> str:
        return str(self._folder / table.file)
