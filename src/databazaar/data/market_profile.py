"""The profile of all tables of a market: the consumer's own, and each provider's against them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from databazaar.data.profile import Yardstick
from databazaar.data.profile_record import UNUSED, ColumnUse, MarketProfile, TableProfile, Understood
from databazaar.data.profile_warnings import example_of, own_warnings, warnings_of
from databazaar.data.schema import REASONS, Schema
from databazaar.data.schema_message import TaskKind


class Profiler:
    """Profiles a market's tables one after the other against the hold-out, so that only that one stays in memory.

    `columns` say how each column of the hold-out is read.
    """

    def __init__(self, holdout: pd.DataFrame, target: str, task: TaskKind, columns: Sequence[ColumnUse]) -> None:
        self._columns, self._task = columns, task
        self._used = {column.name: column.understood for column in columns if column.understood not in UNUSED}
        self._yardstick = Yardstick(holdout, target, task, self._used)
        self._own = self._yardstick.measure_own()

    def holdout(self, id: str, file: str, notes: Sequence[str] = ()) -> TableProfile:
        """The hold-out's own profile."""
        warnings = own_warnings(self._yardstick, self._used, self._own)
        return self._own.profile.model_copy(update={"id": id, "file": file, "warnings": (*notes, *warnings)})

    def table(self, frame: pd.DataFrame, id: str, file: str, notes: Sequence[str] = ()) -> TableProfile:
        """Another table's; `notes` on its file come before what is odd about its rows."""
        measured = self._yardstick.measure(frame)
        warnings = warnings_of(measured, self._yardstick, self._own)
        return measured.profile.model_copy(update={"id": id, "file": file, "warnings": (*notes, *warnings)})

    def market(self, own: Sequence[TableProfile], providers: Sequence[TableProfile]) -> MarketProfile:
        """The profile of the market; the hold-out's is the first of `own`."""
        frame = self._yardstick.frame
        return MarketProfile(
            target=self._yardstick.target,
            task=self._task,
            columns=tuple(c.model_copy(update={"example": example_of(frame, c.name)}) for c in self._columns),
            own=tuple(own),
            providers=tuple(providers),
        )


def column_uses(schema: Schema, frame: pd.DataFrame, features: Sequence[str] | None) -> list[ColumnUse]:
    """How each column of the hold-out is read by a schema, which may know only those that can be used."""
    kinds: dict[str, Understood] = {column.name: "number" for column in schema.numeric}
    kinds |= {column.name: "category" for column in schema.categorical}
    kinds |= {column.name: "hashed" for column in schema.hashed}
    kinds |= {column.name: "date" for column in schema.dates}
    unused = {column.name: REASONS[column.why] for column in schema.left_out}
    if features is not None:
        unused |= {name: "not among `features`" for name in map(str, frame.columns) if name not in set(features)}
    return [
        ColumnUse(name=name, understood=kinds[name])
        if name in kinds
        else ColumnUse(name=name, understood="left out" if name in unused else "not usable", why=unused.get(name, ""))
        for name in map(str, frame.columns)
        if name != schema.target
    ]
