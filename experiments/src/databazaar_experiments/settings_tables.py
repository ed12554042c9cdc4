"""The tables of settings on the reproduction's page: what was used, and where the other protocol differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from databazaar_experiments.plan import PROTOCOLS
from databazaar_experiments.published import DATASET_NAMES
from databazaar_experiments.results import Results
from databazaar_experiments.settings import Protocol, changed
from databazaar_experiments.tables import Cell, Row, Table

OTHER = {"figures": "text", "text": "figures", "quick": "figures"}
"""The protocol that a reader compares each one with."""
STANDS_FOR = {"synthetic": "mnist"}
"""Markets that the other protocol has under another name."""

Values = dict[str, Any]
Column = tuple[str, Values, Values]
"""A market's name, its settings, and those of the other protocol."""


def settings_tables(results: Results) -> list[Table]:
    """Every setting, a column a market; below a value stands the other protocol's where it is another."""
    other = compared_with(results)
    columns = {
        "Image markets": _markets(results, other),
        "Mixture regression": _mixture(results, other),
        "Runtime study": _runtime(results, other),
    }
    return [_table(caption, found, other.name) for caption, found in columns.items() if found]


def compared_with(results: Results) -> Protocol:
    """The protocol whose settings stand beside those that were used."""
    return PROTOCOLS[OTHER[results.plan.protocol]]


def _table(caption: str, columns: list[Column], other: str) -> Table:
    heads = ("Setting", *(name for name, _, _ in columns))
    rows = []
    for key in columns[0][1]:
        cells = tuple(_cell(ours[key], others[key], other) for _, ours, others in columns)
        rows.append(Row(key, cells, marked=any(cell.hint for cell in cells)))
    return Table(caption, heads, tuple(rows))


def _cell(ours: Any, others: Any, other: str) -> Cell:
    return Cell(_written(ours), f"{other}: {_written(others)}" if ours != others else "")


def _markets(results: Results, other: Protocol) -> list[Column]:
    return [
        (DATASET_NAMES[name], asdict(results.settings[name]), asdict(other.images[STANDS_FOR.get(name, name)]))
        for name in results.datasets
    ]


def _mixture(results: Results, other: Protocol) -> list[Column]:
    if "mixture" not in results.settings:
        return []
    return [("Mixture regression", asdict(results.settings["mixture"]), asdict(other.mixture))]


def _runtime(results: Results, other: Protocol) -> list[Column]:
    if "runtime" not in results.plan.whats:
        return []
    changes: Mapping[str, str] = results.plan.changes or {}
    ours = changed(PROTOCOLS[results.plan.protocol].runtime, changes)
    return [("Runtime study", asdict(ours), asdict(other.runtime))]


def _written(value: Any) -> str:
    """As `--set` takes it."""
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
