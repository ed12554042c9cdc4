"""The profile of all tables of a market: the consumer's own, and each provider's against them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from databazaar.data.encoders import CategoricalColumn, DateColumn, HashedColumn, NumericColumn
from databazaar.data.profile import Baseline
from databazaar.data.profile_record import UNUSED, ColumnUse, MarketProfile, TableProfile, Understood
from databazaar.data.profile_warnings import example_of, own_warnings, warnings_of
from databazaar.data.schema import REASONS, Schema
from databazaar.data.schema_message import TaskKind

_KINDS: dict[type, Understood] = {
    NumericColumn: "number",
    CategoricalColumn: "category",
    HashedColumn: "hashed",
    DateColumn: "date",
}


class Profiler:
    """Profiles a market's tables one after the other against the hold-out, so that only that one stays in memory.

    `columns` say how each column of the hold-out is read. Whose a table is, its profile does not say yet.
    """

    def __init__(self, holdout: pd.DataFrame, target: str, task: TaskKind, columns: Sequence[ColumnUse]) -> None:
        self._columns, self._task = columns, task
        used = {column.name: column.understood for column in columns if column.understood not in UNUSED}
        self._baseline = Baseline(holdout, target, task, used)
        self._own = self._baseline.measure(holdout, own=True)
        warnings = own_warnings(self._baseline, used, self._own)
        self.holdout = self._own.profile.model_copy(update={"warnings": warnings})

    def table(self, frame: pd.DataFrame) -> TableProfile:
        """A table against the hold-out."""
        measured = self._baseline.measure(frame)
        return measured.profile.model_copy(update={"warnings": warnings_of(measured, self._baseline, self._own)})

    def market(self, own: Sequence[TableProfile], providers: Sequence[TableProfile]) -> MarketProfile:
        """The profile of the market; the hold-out's is the first of `own`."""
        frame = self._baseline.frame
        columns = (c.model_copy(update={"example": example_of(frame, c.name)}) for c in self._columns)
        return MarketProfile(
            target=self._baseline.target,
            task=self._task,
            columns=tuple(columns),
            own=tuple(own),
            providers=tuple(providers),
        )


def column_uses(schema: Schema, frame: pd.DataFrame, features: Sequence[str] | None) -> list[ColumnUse]:
    """How each column of the hold-out is read by a schema, which may know only those that can be used."""
    names = [str(name) for name in frame.columns if name != schema.target]
    wanted = set(names if features is None else features)
    unused = {name: "not among `features`" for name in names if name not in wanted}
    unused |= {column.name: REASONS[column.why] for column in schema.left_out}
    kinds: dict[str, Understood] = {name: "left out" if name in unused else "not usable" for name in names}
    kinds |= {encoder.name: _KINDS[type(encoder)] for encoder in schema.encoders}
    return [ColumnUse(name=name, understood=kinds[name], why=unused.get(name, "")) for name in names]
