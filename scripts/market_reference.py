"""Writes the tables of docs/reference/market-toml.md from what sections and rules declare:
python scripts/market_reference.py

The text between the tables is written by hand, and stays.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from databazaar.config.chosen_rules import Chosen
from databazaar.config.market_file import MarketFile
from databazaar.config.sections import DefenceSettings
from databazaar.config.template import in_files, kinds_of, summary
from databazaar.config.toml_text import toml_value
from databazaar.defence import Defence
from databazaar.defence.settings import PRESETS
from databazaar.registry import Registry
from databazaar.settings import Setting, declared, plain
from databazaar.stops import STOPS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "market-toml.md"
FAR = 10**6
TABLE = re.compile(r"^\| setting \|.*?\n(?!\|)", re.MULTILINE | re.DOTALL)


def table(section: Setting) -> str:
    """The table of a section."""
    if isinstance(section.default, DefenceSettings):
        return _defence()
    if isinstance(section.default, Chosen):
        rows = _kinds(section.default.registry, section.default.kind)
    elif section.name == "stops":
        rows = _kinds(STOPS, None)
    else:
        parts = [section.type, *getattr(section.type, "__args__", ())]
        kind = next(part for part in parts if isinstance(part, type) and part is not tuple and declared(part))
        rows = [_row(one) for one in declared(kind)]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows, ""])


def _kinds(registry: Registry, default: str | None) -> list[str]:
    kinds = sorted(kinds_of(registry), key=lambda kind: kind != default)
    meanings = "; ".join(f'`"{kind}"`: {summary(registry.find(kind))}' for kind in kinds)
    rows = [f"| `kind` | {_code(default) if default else 'required'} | {meanings} |"]
    return rows + [_row(one, kind) for kind in kinds for one in in_files(registry.find(kind))]


def _row(one: Setting, kind: str = "") -> str:
    nothing = "required" if one.required else "none"
    shown = one.default not in (None, "", ()) and not one.required
    default = _code(one.default) if shown else _marked(one.without) or nothing
    meaning = f"for {kind}: {one.help}" if kind else one.help
    limits = ", ".join(map(_code, one.choices)) or _bounds(one)
    return f"| `{one.name}` | {default} | {meaning}{f' ({limits})' if limits else ''} |"


def _bounds(one: Setting) -> str:
    """The bounds that somebody could want to cross."""
    near: dict[str, Any] = {name: None for name in ("at_most", "below") if (getattr(one, name) or 0) >= FAR}
    return replace(one, **near).bounds


def _defence() -> str:
    rows = ["| setting | none | standard | strict | meaning |", "|---|---|---|---|---|"]
    rows.append('| `kind` | `"none"` | `"standard"` | `"strict"` | which column holds where nothing else is set |')
    for one in declared(Defence):
        values = (getattr(preset, one.name) for preset in PRESETS.values())
        shown = " | ".join(_code(False if value is None else value) for value in values)
        switch = "; `alike = false` switches it off" if one.name == "alike" else ""
        rows.append(f"| `{one.name}` | {shown} | {one.help}{switch}{f' ({_bounds(one)})' if _bounds(one) else ''} |")
    return "\n".join([*rows, ""])


def _code(value: Any) -> str:
    return f"`{toml_value(plain(value))}`"


def _marked(text: str) -> str:
    """Settings and numbers in a text as code."""
    return f"`{text}`" if re.fullmatch(r"[\d.]+|\w+\.\w+", text) else text


def reference(page: str) -> str:
    """The page with its tables made anew."""
    for section in declared(MarketFile):
        head = f"[[{section.name}]]" if section.name in ("stops", "providers") else f"[{section.name}]"
        before, found, after = page.partition(f"## {head}\n")
        assert found, f"the page has no section {head}"
        made = table(section).replace("\\", r"\\")
        after, count = TABLE.subn(made, after + "\n", count=1)
        assert count == 1, f"section {head} has no table"
        page = before + found + after.rstrip("\n") + "\n"
    return page


if __name__ == "__main__":
    PAGE.write_text(reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
