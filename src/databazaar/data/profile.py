"""Tables measured against the consumer's hold-out: what differs, what is empty, what was copied."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from databazaar.data.columns import Column
from databazaar.data.comparable import Floats, fingerprints, floats, names
from databazaar.data.profile_record import TableProfile, Understood
from databazaar.data.schema_message import TaskKind


@dataclass(frozen=True)
class Spread:
    """What the hold-out's numbers of one column are like."""

    least: float
    most: float
    mean: float
    scale: float

    @classmethod
    def of(cls, values: Floats) -> Spread | None:
        known = values[~np.isnan(values)]
        if not len(known):
            return None
        with np.errstate(over="ignore"):
            scale = float(known.std())
        return cls(float(known.min()), float(known.max()), float(known.mean()), scale)


@dataclass(frozen=True)
class Numbers:
    """One column of numbers or dates: how many lie outside the hold-out's range, the shift, and what is no number."""

    outside: int
    known: int
    shift: float
    unreadable: tuple[str, ...]


@dataclass(frozen=True)
class Categories:
    """One column of categories: how many cells the hold-out does not know, and the most frequent of those names."""

    unseen: int
    known: int
    strange: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """All that the sentences about one table are made from."""

    profile: TableProfile
    numbers: dict[str, Numbers] = field(default_factory=dict)
    categories: dict[str, Categories] = field(default_factory=dict)
    empty: dict[str, float] = field(default_factory=dict)
    strange_labels: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()


class Yardstick:
    """The consumer's hold-out. `understood` says of each feature how it is read; the target is one of the columns."""

    def __init__(self, frame: pd.DataFrame, target: str, task: TaskKind, understood: dict[str, Understood]) -> None:
        self.frame = frame
        self.target = target
        self.understood = understood
        self.all: dict[str, Understood] = {**understood, target: "category" if task == "classification" else "number"}
        self.spreads = {name: Spread.of(floats(frame[name], kind)) for name, kind in self._of("number", "date")}
        self.known = {name: set(names(frame[name]).dropna()) for name, _ in self._of("category", "hashed")}
        self.rows = fingerprints(frame, self.all)
        self.balance = self._balance(frame)

    def measure(self, frame: pd.DataFrame, id: str, file: str) -> Measured:
        """One table against the hold-out, in the columns that it has."""
        there = [name for name in self.understood if name in frame.columns]
        numbers = {
            name: self._numbers(frame[name], name) for name in there if self.understood[name] in ("number", "date")
        }
        categories = {
            name: self._categories(frame[name], name)
            for name in there
            if self.understood[name] in ("category", "hashed")
        }
        balance = self._balance(frame) if self.target in frame.columns else {}
        if self.all[self.target] == "number" and self.target in frame.columns:
            numbers[self.target] = self._numbers(frame[self.target], self.target)
        shifts = {name: column.shift for name, column in numbers.items()}
        shifted = max(shifts, key=lambda name: shifts[name], default="")
        copied, repeated = self._rows(frame)
        profile = TableProfile(
            id=id,
            file=file,
            rows=len(frame),
            missing=float(frame[there].isna().to_numpy().mean()) if there else 0.0,
            unseen=_share(sum(c.unseen for c in categories.values()), sum(c.known for c in categories.values())),
            outside=_share(sum(n.outside for n in numbers.values()), sum(n.known for n in numbers.values())),
            shift=shifts.get(shifted, 0.0),
            shifted=shifted if shifts.get(shifted, 0.0) > 0 else "",
            copied=copied,
            repeated=repeated,
            balance=balance,
        )
        return Measured(
            profile,
            numbers,
            categories,
            empty={name: float(frame[name].isna().mean()) for name in there},
            strange_labels=tuple(name for name in balance if name not in self.balance),
            extra=tuple(str(name) for name in frame.columns if name not in self.frame.columns),
            lacking=tuple(name for name in self.all if name not in frame.columns),
        )

    def _of(self, *kinds: Understood) -> list[tuple[str, Understood]]:
        return [(name, kind) for name, kind in self.all.items() if kind in kinds]

    def _balance(self, frame: pd.DataFrame) -> dict[str, float]:
        if self.all[self.target] != "category":
            return {}
        shares = names(frame[self.target]).value_counts(normalize=True)
        return {str(name): float(share) for name, share in shares.items()}

    def _numbers(self, column: Column, name: str) -> Numbers:
        values, spread = floats(column, self.all[name]), self.spreads[name]
        known = values[~np.isnan(values)]
        unreadable = column[np.isnan(values) & column.notna().to_numpy()].astype(str).unique()
        if spread is None or not len(known):
            return Numbers(0, len(known), 0.0, tuple(unreadable[:3]))
        outside = int(((known < spread.least) | (known > spread.most)).sum())
        distance = abs(float(known.mean()) - spread.mean)
        scale = spread.scale or max(abs(spread.mean), 1.0)
        return Numbers(outside, len(known), min(distance / scale, 1e6), tuple(unreadable[:3]))

    def _categories(self, column: Column, name: str) -> Categories:
        counts = names(column).value_counts()
        strange = counts[~counts.index.isin(list(self.known[name]))]
        return Categories(int(strange.sum()), int(counts.sum()), tuple(map(str, strange.index[:50])))

    def _rows(self, frame: pd.DataFrame) -> tuple[int, int]:
        """How many rows of the hold-out are in the table, and how many of the table's repeat another of them."""
        there: dict[str, Understood] = {name: kind for name, kind in self.all.items() if name in frame.columns}
        own = frame is self.frame
        rows = self.rows if own else fingerprints(frame, there)
        comparable = not own and len(there) == len(self.all)
        return int(np.isin(self.rows, rows).sum()) if comparable else 0, len(rows) - len(np.unique(rows))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
