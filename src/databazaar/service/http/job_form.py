"""The form of a job: its fields are settings of market.toml, as they are declared there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from databazaar.config.market_file import MarketFile
from databazaar.config.template import kinds_of, summary
from databazaar.defence.settings import PRESETS
from databazaar.models import MODELS
from databazaar.money import Currency
from databazaar.service.http.forms import Form, sentence_of
from databazaar.settings import Setting, declared
from databazaar.stops.protocol import STOPS

ROLES = ("holdout", "train", "audit")
MODES = ("hosted", "own")
ENDS = ("no-progress", "budget")
TARGET = "target-utility"
DEFENCE = "standard"
"""A hub's form proposes it; a market.toml that names none has none."""
SETTINGS = {
    "budget": "market.budget",
    "per_round": "market.per_round",
    "seed": "market.seed",
    "most_per_access": "market.most_per_access",
    "target": "data.target",
    "task": "data.task",
    "model": "model.kind",
    "defence": "defence.kind",
}
"""The fields that are settings, by their places in market.toml."""
FIELDS = {
    **{place: name for name, place in SETTINGS.items()},
    **{name: name for name in ("name", "offers")},
    "model": "model",
    "data.holdout": "holdout",
    "stops[0]": "target_utility",
    "stops[0].utility": "target_utility",
}
"""The field of the form that a refusal at this place is shown at."""
AMOUNTS = ("budget", "most_per_access")
PER_ROUND = 10
"""So many accesses has a round, or as many as there are offers."""


@dataclass(frozen=True)
class JobField:
    """How the form shows a setting. A setting with a few values has `options`: each value and its words."""

    label: str
    hint: str
    value: str
    required: bool
    options: list[tuple[str, str]]


@cache
def job_fields() -> dict[str, JobField]:
    """The fields that are settings, and that of the stop at a utility, from their declarations."""
    sections = {one.name: one for one in declared(MarketFile)}
    found = {}
    for name, place in SETTINGS.items():
        section, _, setting = place.partition(".")
        if setting == "kind":
            said = sections[section]
            default = DEFENCE if section == "defence" else said.default.kind
            found[name] = _field(section, said, default, _kinds(section))
        else:
            said = next(one for one in declared(sections[section].type) if one.name == setting)
            found[name] = _field(setting, said, "" if name == "per_round" or said.required else said.default)
    wanted = next(one for one in declared(STOPS.find(TARGET)) if one.name == "utility")
    return {**found, "target_utility": _field(TARGET, wanted, None)}


def _kinds(section: str) -> list[tuple[str, str]]:
    if section == "model":
        return [(kind, f"{kind}: {summary(MODELS.find(kind))}") for kind in kinds_of(MODELS)]
    return [(name, name) for name in sorted(PRESETS, key=lambda name: name != DEFENCE)]


def _field(name: str, said: Setting, default: Any, options: list[tuple[str, str]] | None = None) -> JobField:
    label = name.replace("_", " ").replace("-", " ").capitalize()
    value = "" if default is None else str(default)
    chosen = options if options is not None else [(str(one), str(one)) for one in said.choices]
    return JobField(label, sentence_of(said.help), value, said.required and default is not None, chosen)


def read_spec(form: Form, currency: Currency) -> dict[str, Any]:
    """The sections of market.toml that the form speaks of; what is wrong stands in the form. The rest has defaults."""
    fields = job_fields()
    taken: dict[str, Any] = {
        "budget": currency.amount(form.needed_amount("budget", currency)),
        "per_round": form.count("per_round") or min(PER_ROUND, max(1, len(form.all("offers")))),
        "seed": form.count("seed", 0) or 0,
        "target": form.needed("target", "write the name of the column"),
    }
    if (most := form.amount("most_per_access", currency)) is not None:
        taken["most_per_access"] = currency.amount(most)
    for name in ("task", "model", "defence"):
        values = [value for value, _ in fields[name].options]
        taken[name] = form.choice(name, sorted(values, key=lambda value: value != fields[name].value))
    spec: dict[str, Any] = {}
    for name, value in taken.items():
        section, _, setting = SETTINGS[name].partition(".")
        spec.setdefault(section, {})[setting] = value
    wanted = form.number("target_utility")
    stops = [] if wanted is None else [{"kind": TARGET, "utility": wanted}]
    if form.choice("ends", ENDS) == "no-progress":
        stops.append({"kind": "no-progress"})
    return {**spec, "stops": stops} if stops else spec


def shown_spec(spec: Mapping[str, Any]) -> dict[str, str]:
    """A draft's specification as the form's fields have it; where it says nothing, what holds then."""
    stops = {stop.get("kind"): stop for stop in spec.get("stops", ())}
    shown: dict[str, Any] = {}
    for name, place in SETTINGS.items():
        section, _, setting = place.partition(".")
        default = "none" if name == "defence" else job_fields()[name].value
        shown[name] = spec.get(section, {}).get(setting, default)
    shown["target_utility"] = stops.get(TARGET, {}).get("utility", "")
    shown["ends"] = "no-progress" if "no-progress" in stops else "budget"
    return {name: str(value) for name, value in shown.items()}


def changed_spec(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A specification with what a form says now; what the form does not speak of stays, as a market.toml had it.

    >>> old = {"market": {"budget": "1", "most_per_access": "1"}, "data": {"target": "y", "features": ["a"]},
    ...        "model": {"kind": "mlp", "hidden": [8]}, "oracle": {"kind": "full-gradient"}}
    >>> new = {"market": {"budget": "2"}, "data": {"target": "z"}, "model": {"kind": "mlp"},
    ...        "defence": {"kind": "none"}}
    >>> for section in changed_spec(old, new).items():
    ...     print(*section)
    market {'budget': '2'}
    data {'target': 'z', 'features': ['a']}
    model {'kind': 'mlp', 'hidden': [8]}
    oracle {'kind': 'full-gradient'}
    defence {'kind': 'none'}
    """
    changed = {name: dict(value) if isinstance(value, Mapping) else value for name, value in old.items()}
    changed.get("market", {}).pop("most_per_access", None)
    for name in ("market", "data", "model", "defence"):
        before = changed.get(name, {})
        same = before.get("kind") == new[name].get("kind")  # of another kind, no setting stays
        changed[name] = {**(before if same else {}), **new[name]}
    known = {stop.get("kind"): stop for stop in changed.pop("stops", ())}
    stops = [stop for stop in old.get("stops", ()) if stop.get("kind") not in (TARGET, "no-progress")]
    stops += [{**known.get(stop["kind"], {}), **stop} for stop in new.get("stops", ())]
    return {**changed, "stops": stops} if stops else changed
