"""The profile of all tables of a market: the consumer's own, and each provider's against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from databazaar.data.profile import Yardstick
from databazaar.data.profile_record import ColumnUse, MarketProfile, TableProfile, Understood
from databazaar.data.profile_warnings import example_of, own_warnings, warnings_of
from databazaar.data.schema_message import TaskKind


class Table(NamedTuple):
    """A table that could be read: who has it, the file as market.toml writes it, and its rows."""

    id: str
    file: str
    frame: pd.DataFrame


def profile_tables(
    own: Sequence[Table],
    providers: Sequence[Table],
    *,
    target: str,
    task: TaskKind,
    understood: Mapping[str, Understood],
) -> MarketProfile:
    """The hold-out is the first of `own`; `understood` says of its columns how each is read."""
    holdout = own[0]
    used: dict[str, Understood] = {
        name: kind for name, kind in understood.items() if kind not in ("left out", "not usable")
    }
    yardstick = Yardstick(holdout.frame, target, task, used)
    first = yardstick.measure(holdout.frame, holdout.id, holdout.file)

    def profiled(table: Table) -> TableProfile:
        measured = yardstick.measure(table.frame, table.id, table.file)
        return measured.profile.model_copy(update={"warnings": warnings_of(measured, yardstick, first)})

    judged = first.profile.model_copy(update={"warnings": own_warnings(holdout.frame, used, first)})
    return MarketProfile(
        target=target,
        task=task,
        columns=tuple(
            ColumnUse(name=name, understood=kind, example=example_of(holdout.frame, name))
            for name, kind in understood.items()
        ),
        own=(judged, *map(profiled, own[1:])),
        providers=tuple(map(profiled, providers)),
    )
