"""A new job as a form has it, or as a market.toml that is sent with its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from databazaar.config.sections import DataSettings
from databazaar.config.template import kinds_of, summary
from databazaar.defence.settings import PRESETS
from databazaar.models import MODELS
from databazaar.money import Currency
from databazaar.service import files, jobs
from databazaar.service.errors import InvalidError
from databazaar.service.http.pages.forms import Form
from databazaar.service.http.pages.visits import Visit
from databazaar.settings import declared

ROLES = ("holdout", "train", "audit")
TASKS = next(one.choices for one in declared(DataSettings) if one.name == "task")
DEFENCES = tuple(sorted(PRESETS, key=lambda name: name != "standard"))
MODES = ("hosted", "own")
ENDS = ("no-progress", "budget")
PER_ROUND = 10
"""So many accesses has a round, or as many as there are offers."""
MOST_TOML = 2**20
MODEL_CHOICES = [(kind, f"{kind}: {summary(MODELS.find(kind))}") for kind in kinds_of(MODELS)]
PLACES = {
    "name": "name must",
    "budget": "market.budget",
    "per_round": "per_round",
    "seed": "market.seed",
    "target": "target",
    "task": "data.task",
    "model": "model.kind",
    "offers": "offer",
    "most_per_access": "most_per_access",
    "target_utility": "stops",
    "defence": "defence",
    "holdout": "hold-out",
}
"""The words by which a refused job names a field."""


def read_spec(form: Form, currency: Currency) -> dict[str, Any]:
    """The sections of market.toml that the form speaks of; what is wrong stands in the form. The rest has defaults."""
    market: dict[str, Any] = {"budget": currency.amount(form.needed_amount("budget", currency))}
    market["per_round"] = form.count("per_round") or min(PER_ROUND, max(1, len(form.all("offers"))))
    market["seed"] = form.count("seed", 0) or 0
    most = form.amount("most_per_access", currency)
    if most is not None:
        market["most_per_access"] = currency.amount(most)
    spec: dict[str, Any] = {
        "market": market,
        "data": {
            "target": form.needed("target", "write the name of the column"),
            "task": form.choice("task", TASKS),
        },
        "model": {"kind": form.choice("model", [kind for kind, _ in MODEL_CHOICES])},
        "defence": {"kind": form.choice("defence", DEFENCES)},
    }
    wanted = form.number("target_utility")
    stops = [] if wanted is None else [{"kind": "target-utility", "utility": wanted}]
    if form.choice("ends", ENDS) == "no-progress":
        stops.append({"kind": "no-progress"})
    return {**spec, "stops": stops} if stops else spec


def shown_spec(spec: Mapping[str, Any]) -> dict[str, str]:
    """A draft's specification as the form's fields have it."""
    market, data = spec.get("market", {}), spec.get("data", {})
    stops = {stop.get("kind"): stop for stop in spec.get("stops", ())}
    shown = {
        "budget": market.get("budget", ""),
        "per_round": market.get("per_round", ""),
        "seed": market.get("seed", 0),
        "most_per_access": market.get("most_per_access", ""),
        "target": data.get("target", ""),
        "task": data.get("task", TASKS[0]),
        "model": spec.get("model", {}).get("kind", "mlp"),
        "defence": spec.get("defence", {}).get("kind", "none"),
        "target_utility": stops.get("target-utility", {}).get("utility", ""),
        "ends": "no-progress" if "no-progress" in stops else "budget",
    }
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
    for name in ("market", "data"):
        left = {setting: value for setting, value in changed.get(name, {}).items() if setting != "most_per_access"}
        changed[name] = {**left, **new[name]}
    for name in ("model", "defence"):
        before = changed.get(name, {})
        changed[name] = {**(before if before.get("kind") == new[name]["kind"] else {}), **new[name]}
    known = {stop.get("kind"): stop for stop in changed.pop("stops", ())}
    stops = [stop for stop in old.get("stops", ()) if stop.get("kind") not in ("target-utility", "no-progress")]
    stops += [{**known.get(stop["kind"], {}), **stop} for stop in new.get("stops", ())]
    return {**changed, "stops": stops} if stops else changed


def draft_from_file(visit: Visit, form: Form) -> str:
    """Drafts what a market.toml says, of the files that came with it; the job's id, or what is wrong in the form."""
    sent = form.uploads("market")
    if not sent:
        form.blame("market", "no file was chosen: choose a market.toml")
        return ""
    tables = {PurePath(name).name: (name, stream) for name, stream in form.uploads("tables")}
    job_id = ""
    with form.trying(market="market.toml"):
        posted = jobs.from_market_toml(_text(sent[0][1].read(MOST_TOML + 1)))
        for file in posted.files.values():
            if PurePath(file).name not in tables:
                raise InvalidError(f"market.toml names {file!r}, which was not sent: choose it with the other files")
        kept = {}
        for role, file in posted.files.items():
            with visit.begin() as session:
                kept[role] = files.keep(session, visit.caller, visit.settings, *tables[PurePath(file).name]).id
        with visit.begin() as session:
            job = jobs.draft(
                session,
                visit.caller,
                visit.settings,
                name=posted.name,
                spec=posted.spec,
                files=kept,
                offers=posted.offers,
            )
            jobs.check(session, visit.settings, job)
            job_id = job.id
    return job_id


def _text(content: bytes) -> str:
    if len(content) > MOST_TOML:
        raise InvalidError(f"market.toml has more than {MOST_TOML:,} bytes: send one that a person has written")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidError(f"market.toml: byte {error.start} is not UTF-8: save the file as UTF-8") from None
