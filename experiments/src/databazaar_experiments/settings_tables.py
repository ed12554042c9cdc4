"""The tables of settings on the reproduction's page: what was used, and where the other protocol differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from databazaar.reports.markup import table
from databazaar.reports.wording import count, escape
from databazaar_experiments.plan import PROTOCOLS
from databazaar_experiments.published import DATASET_NAMES
from databazaar_experiments.results import Results
from databazaar_experiments.settings import Protocol, changed

OTHER = {"figures": "text", "text": "figures", "quick": "figures"}
"""The protocol that a reader compares each one with."""
STANDS_FOR = {"synthetic": "mnist"}
"""Markets that the other protocol has under another name."""

Values = dict[str, Any]
Column = tuple[str, Values, Values]
"""A market's name, its settings, and those of the other protocol."""


def settings_section(results: Results) -> str:
    """Every setting, a column a market; below a value stands the other protocol's where it is another."""
    used = results.plan.protocol
    other = PROTOCOLS[OTHER[used]]
    tables = {
        "Image markets": _markets(results, other),
        "Mixture regression": _mixture(results, other),
        "Runtime study": _runtime(results, other),
    }
    differing = sum(_differs(key, columns) for columns in tables.values() for key in (columns[0][1] if columns else ()))
    parts = [
        f"<h2>Settings of protocol {escape(used)}</h2>",
        f'<p class="hint">{escape(count(differing, "setting"))} of these differ{"s" if differing == 1 else ""} from '
        f"protocol {escape(other.name)}; its value then stands below, after its name. "
        "Everything else of the runtime study is as in the image markets.</p>",
    ]
    for caption, columns in tables.items():
        if columns:
            shown = settings_table(caption, columns, other.name)
            parts += [
                f"<h3>{caption}</h3>",
                f'<details open class="whole"><summary>All settings</summary>\n{shown}\n</details>',
            ]
    return "\n".join(parts)


def settings_table(caption: str, columns: list[Column], other: str) -> str:
    heads = ["Setting", *(name for name, _, _ in columns)]
    rows = []
    for key in columns[0][1]:
        cells = "".join(f"<td>{_cell(ours[key], theirs[key], other)}</td>" for _, ours, theirs in columns)
        kind = ' class="differs"' if _differs(key, columns) else ""
        rows.append(f'<tr{kind}><th scope="row" class="text">{escape(key)}</th>{cells}</tr>')
    return table(caption, heads, rows, sortable=False)


def _cell(ours: Any, theirs: Any, other: str) -> str:
    told = f'<span class="hint">{escape(other)}: {escape(_written(theirs))}</span>' if ours != theirs else ""
    return escape(_written(ours)) + told


def _differs(key: str, columns: list[Column]) -> bool:
    return any(ours[key] != theirs[key] for _, ours, theirs in columns)


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
