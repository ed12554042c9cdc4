"""The form of a job. Its fields are settings of market.toml, as they are declared there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from databazaar.config.market_file import OF_AVERAGING, MarketFile, learner_of, trains_on_rows
from databazaar.config.template import in_files, kinds_of, summary
from databazaar.defence.settings import PRESETS
from databazaar.learners.protocol import LEARNERS
from databazaar.models import MODELS
from databazaar.money import Currency
from databazaar.registry import Registry
from databazaar.service.http.forms import Form, sentence_of
from databazaar.settings import Setting, declared
from databazaar.stops.protocol import STOPS

TARGET = "target-utility"
OF_MODEL = "of the model"
"""No learner is named, so the model brings its own."""
PROPOSED = {"defence": "standard", "model": "auto", "learner": OF_MODEL}
"""Kinds that a hub's form proposes, as `bazaar init` does."""
SETTINGS = {
    "budget": "market.budget",
    "per_round": "market.per_round",
    "seed": "market.seed",
    "most_per_access": "market.most_per_access",
    "target": "data.target",
    "task": "data.task",
    "model": "model.kind",
    "learner": "learner.kind",
    "defence": "defence.kind",
}
"""The fields that are settings, by their places in market.toml."""
REGISTRIES: dict[str, Registry] = {"model": MODELS, "learner": LEARNERS}
"""The sections whose kinds have settings of their own in the form."""
DETAILS = {
    f"{section}_{one.name}": f"{section}.{one.name}"
    for section, registry in REGISTRIES.items()
    for kind in kinds_of(registry)
    for one in in_files(registry.find(kind))
}
"""Their fields, by places in market.toml. A setting of several kinds has one field."""
FIELDS = {
    **{place: name for name, place in (SETTINGS | DETAILS).items()},
    **{name: name for name in ("name", "offers", "model", "learner")},
    "data.holdout": "holdout",
    "stops[0]": "target_utility",
    "stops[0].utility": "target_utility",
}
"""The field of the form that a refusal at this place is shown at."""
UNSAID = {"defence": "none", "model": "mlp"}
"""What holds where a specification names no kind."""
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
    kinds = {
        name: [(kind, f"{kind}: {summary(registry.find(kind))}") for kind in kinds_of(registry)]
        for name, registry in REGISTRIES.items()
    }
    kinds["learner"].insert(0, (OF_MODEL, "the model’s own"))
    kinds["defence"] = [(name, name) for name in PRESETS]
    found = {}
    for name, place in SETTINGS.items():
        section, _, setting = place.partition(".")
        if setting == "kind":
            found[name] = _field(section, sections[section], PROPOSED[section], kinds[section])
        else:
            said = next(one for one in declared(sections[section].type) if one.name == setting)
            found[name] = _field(setting, said, "" if name == "per_round" or said.required else said.default)
    wanted = next(one for one in declared(STOPS.find(TARGET)) if one.name == "utility")
    return {**found, "target_utility": _field(TARGET, wanted, None), **{name: _detail(name) for name in DETAILS}}


def _declarations(name: str) -> dict[str, Setting]:
    """Those of a field of `DETAILS`, by the kinds that have the setting."""
    section, _, setting = DETAILS[name].partition(".")
    registry = REGISTRIES[section]
    every = {kind: {one.name: one for one in in_files(registry.find(kind))} for kind in kinds_of(registry)}
    return {kind: settings[setting] for kind, settings in every.items() if setting in settings}


def _detail(name: str) -> JobField:
    """
    >>> _detail("learner_leaves").hint
    'For blending, boosting: the most leaves of a tree.'
    """
    kinds: dict[str, list[str]] = {}
    for kind, said in _declarations(name).items():
        kinds.setdefault(said.help, []).append(kind)
    section, _, setting = DETAILS[name].partition(".")
    hint = "; ".join(f"for {', '.join(of)}: {help}" for help, of in kinds.items())
    return JobField(f"{section.capitalize()}: {setting}", sentence_of(hint), "", False, [])


def _details_of(form: Form) -> Iterator[tuple[str, Any]]:
    """What was typed into those fields, by places in market.toml. The market's parser says what does not fit."""
    for name, place in DETAILS.items():
        typed = (part.strip(" []\"'") for part in form.text(name).split(","))
        parts = [_number_or_text(part) for part in typed if part]
        if parts:
            many = len(parts) > 1 or next(iter(_declarations(name).values())).is_list
            yield place, parts if many else parts[0]


def _number_or_text(typed: str) -> int | float | str:
    """
    >>> _number_or_text("31"), _number_or_text("0.1"), _number_or_text("income")
    (31, 0.1, 'income')
    """
    for kind in (int, float):
        with suppress(ValueError):
            return kind(typed)
    return typed


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
    for name in ("task", "model", "learner", "defence"):
        values = [value for value, _ in fields[name].options]
        taken[name] = form.choice(name, sorted(values, key=lambda value: value != fields[name].value))
    if taken["learner"] == OF_MODEL:
        del taken["learner"]
    spec: dict[str, Any] = {}
    for place, value in ({SETTINGS[name]: value for name, value in taken.items()} | dict(_details_of(form))).items():
        section, _, setting = place.partition(".")
        spec.setdefault(section, {})[setting] = value
    wanted = form.number("target_utility")
    stops = [] if wanted is None else [{"kind": TARGET, "utility": wanted}]
    if form.choice("ends", ("no-progress", "budget")) == "no-progress":
        stops.append({"kind": "no-progress"})
    return {**spec, "stops": stops} if stops else spec


def shown_spec(spec: Mapping[str, Any]) -> dict[str, str]:
    """A draft's specification as the form's fields have it; where it says nothing, what holds then."""
    stops = {stop.get("kind"): stop for stop in spec.get("stops", ())}
    shown: dict[str, Any] = {}
    for name, place in (SETTINGS | DETAILS).items():
        section, _, setting = place.partition(".")
        value = spec.get(section, {}).get(setting, UNSAID.get(name, job_fields()[name].value))
        shown[name] = ", ".join(map(str, value)) if isinstance(value, list) else value
    shown["target_utility"] = stops.get(TARGET, {}).get("utility", "")
    shown["ends"] = "no-progress" if "no-progress" in stops else "budget"
    return {name: str(value) for name, value in shown.items()}


def changed_spec(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A specification with what a form says now; what the form does not speak of stays, as a market.toml had it.

    >>> old = {"market": {"budget": "1", "most_per_access": "1"}, "data": {"target": "y", "features": ["a"]},
    ...        "model": {"kind": "mlp", "hidden": [8]}, "oracle": {"kind": "full-gradient"}}
    >>> new = {"market": {"budget": "2"}, "data": {"target": "z"}, "model": {"kind": "mlp"},
    ...        "defence": {"kind": "none"}, "learner": {"rows": 500}}
    >>> for section in changed_spec(old, new).items():
    ...     print(*section)
    market {'budget': '2'}
    data {'target': 'z', 'features': ['a']}
    oracle {'kind': 'full-gradient'}
    model {'kind': 'mlp'}
    defence {'kind': 'none'}
    learner {'rows': 500}
    """
    kept = {name: value for name, value in old.items() if name not in REGISTRIES}
    if trains_on_rows(learner_of({**kept, **new})[0]):
        kept = {name: value for name, value in kept.items() if name not in OF_AVERAGING}
    changed = {name: dict(value) if isinstance(value, Mapping) else value for name, value in kept.items()}
    changed.get("market", {}).pop("most_per_access", None)
    for name in (name for name in new if name != "stops"):
        before = changed.get(name, {})
        same = before.get("kind") == new[name].get("kind")  # of another kind, no setting stays
        changed[name] = {**(before if same else {}), **new[name]}
    known = {stop.get("kind"): stop for stop in changed.pop("stops", ())}
    stops = [stop for stop in old.get("stops", ()) if stop.get("kind") not in (TARGET, "no-progress")]
    stops += [{**known.get(stop["kind"], {}), **stop} for stop in new.get("stops", ())]
    return {**changed, "stops": stops} if stops else changed
