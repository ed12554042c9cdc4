"""The profile of all tables of a market: the consumer's own, and each provider's against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from databazaar.data.profile import Yardstick
from databazaar.data.profile_record import UNUSED, ColumnUse, MarketProfile, TableProfile
from databazaar.data.profile_warnings import example_of, own_warnings, warnings_of
from databazaar.data.schema_message import TaskKind


class Table(NamedTuple):
    """A table that could be read: who has it, the file as market.toml writes it, its rows, and remarks on the file."""

    id: str
    file: str
    frame: pd.DataFrame
    notes: tuple[str, ...] = ()


def profile_tables(
    own: Sequence[Table],
    providers: Sequence[Table],
    *,
    target: str,
    task: TaskKind,
    columns: Sequence[ColumnUse],
) -> MarketProfile:
    """The hold-out is the first of `own`; `columns` say how each of its columns is read."""
    holdout = own[0]
    used = {column.name: column.understood for column in columns if column.understood not in UNUSED}
    yardstick = Yardstick(holdout.frame, target, task, used)
    first = yardstick.measure(holdout.frame, holdout.id, holdout.file)

    def profiled(table: Table) -> TableProfile:
        measured = yardstick.measure(table.frame, table.id, table.file)
        return _warned(measured.profile, table, warnings_of(measured, yardstick, first))

    judged = _warned(first.profile, holdout, own_warnings(yardstick, used, first))
    return MarketProfile(
        target=target,
        task=task,
        columns=tuple(c.model_copy(update={"example": example_of(holdout.frame, c.name)}) for c in columns),
        own=(judged, *map(profiled, own[1:])),
        providers=tuple(map(profiled, providers)),
    )


def _warned(profile: TableProfile, table: Table, warnings: tuple[str, ...]) -> TableProfile:
    return profile.model_copy(update={"warnings": (*table.notes, *warnings)})
