"""The section [defence] of market.toml: a set of rules by name, and each rule by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from databazaar.defence import Defence
from databazaar.defence.settings import PRESETS
from databazaar.settings import Faults, Setting, declared, inside, missing, one_of, unknown_setting

KIND = Setting(name="kind", help='the rules to begin with, such as "standard"')


@dataclass(frozen=True)
class DefenceSettings:
    """What is not `given` is as the `kind` has it. TOML has no null: `false` switches a rule off that is a number."""

    kind: str
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def chosen(self) -> Defence:
        """The set of rules by its name, with what is set beside it."""
        off = {name: None for name, value in self.given.items() if value is False}
        return replace(Defence.named(self.kind), **{**self.given, **off})

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.given}


def read_defence(given: Any, place: str, faults: Faults) -> DefenceSettings | None:
    if not isinstance(given, Mapping):
        KIND.blame(given, place, "must be a section", faults)
        return None
    known = {one.name: one for one in declared(Defence) if one.in_files}
    fixed = {one.name for one in declared(Defence)} - set(known)
    for name in set(given) - {"kind", *known}:
        if name in fixed:
            faults.unknown(
                f"{place}.{name} goes with the name of the defence: leave it out, or use Defence(…) in Python"
            )
        else:
            faults.unknown(unknown_setting(inside(place, name), name, ["kind", *known]))
    kind = given.get("kind")
    if kind is None:
        faults.add(missing(f"{place}.kind", KIND), f"{place}.kind")
    elif not isinstance(kind, str) or kind not in PRESETS:
        KIND.blame(kind, f"{place}.kind", one_of(PRESETS), faults)
    values = {}
    for name, one in known.items():
        value = given.get(name)
        if value is not None:
            told = replace(one, help=f"{one.help}; false switches it off")
            values[name] = False if value is False else told.take(value, inside(place, name), faults)
    return DefenceSettings(str(kind), values)
