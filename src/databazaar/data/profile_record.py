"""What is known of a market's tables before anything is bought, as plain data. It is read without pandas."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from databazaar.data.schema_message import TaskKind

Understood = Literal["number", "category", "hashed", "date", "text", "image", "left out", "not usable"]
UNUSED = ("left out", "not usable")


class ProfileRecord(BaseModel):
    """Checked when it is read back, as anybody may have changed the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ColumnUse(ProfileRecord):
    """How one column of the consumer's rows is understood, why if it is not used, how if it is text, and an example."""

    name: str
    understood: Understood
    why: str = ""
    example: str = ""


class TableProfile(ProfileRecord):
    """One table against the consumer's hold-out. Shares lie between 0 and 1. `missing` is the share of empty cells;
    `unseen` that of the cells of categories whose value the hold-out does not have; `outside` that of the numbers
    beyond the hold-out's least and largest; `shift` is how far the mean of `shifted`, the column that moved most, lies
    from the hold-out's, in standard deviations. `balance` has the share of each class. `copied` counts the hold-out's
    rows that are in this table too, `repeated` the rows that repeat another one of the table."""

    id: str = ""
    file: str = ""
    rows: int
    missing: float
    unseen: float = 0.0
    outside: float = 0.0
    shift: float = 0.0
    shifted: str = ""
    copied: int = 0
    repeated: int = 0
    balance: dict[str, float] = {}
    warnings: tuple[str, ...] = ()


class MarketProfile(ProfileRecord):
    """The consumer's tables (the hold-out first), the providers' by id, and how each column is understood."""

    target: str
    task: TaskKind
    columns: tuple[ColumnUse, ...]
    own: tuple[TableProfile, ...]
    providers: tuple[TableProfile, ...]

    @property
    def tables(self) -> tuple[TableProfile, ...]:
        return (*self.own, *self.providers)

    @property
    def remarks(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """All warnings, each set of tables that has the same ones once: the tables' ids, and the sentences."""
        about: dict[str, list[str]] = {}
        for table in self.tables:
            for warning in table.warnings:
                about.setdefault(warning, []).append(table.id)
        grouped: dict[tuple[str, ...], list[str]] = {}
        for warning, ids in about.items():
            grouped.setdefault(tuple(ids), []).append(warning)
        return [(ids, tuple(warnings)) for ids, warnings in grouped.items()]

    @property
    def classes(self) -> tuple[str, ...]:
        """The hold-out's classes, the most frequent first."""
        balance = self.own[0].balance if self.own else {}
        return tuple(sorted(balance, key=lambda name: (-balance[name], name)))
