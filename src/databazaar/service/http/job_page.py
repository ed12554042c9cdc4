"""The pages of a job: its form, whose fields are settings of market.toml, as they are declared there; and what its page
shows in each of its states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any

from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.config.market_file import MarketFile
from databazaar.config.template import kinds_of, summary
from databazaar.defence.settings import PRESETS
from databazaar.display import duration
from databazaar.models import MODELS
from databazaar.money import Currency
from databazaar.runs.folder import RunFolder
from databazaar.runs.purchase import PurchaseEvaluation
from databazaar.service import cash, contracts, jobs, journal
from databazaar.service.database.tables import File, Job, Offer
from databazaar.service.http.forms import Form, sentence_of
from databazaar.service.http.pages import PageContext
from databazaar.service.hub import progress
from databazaar.service.hub.folder import HELD
from databazaar.service.hub.settlement import UNSOUND
from databazaar.service.lifecycle import OVER, ContractState, JobState
from databazaar.settings import Setting, declared
from databazaar.stops.protocol import STOPS

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
    **{name: name for name in ("name", "offers", "model")},
    "data.holdout": "holdout",
    "stops[0]": "target_utility",
    "stops[0].utility": "target_utility",
}
"""The field of the form that a refusal at this place is shown at."""
PER_ROUND = 10
"""So many accesses has a round, or as many as there are offers."""
STEPS = (
    ("Draft", (JobState.DRAFT,)),
    ("Providers answer", (JobState.SUBMITTED,)),
    ("Quote", (JobState.AGREED,)),
    ("Funded", (JobState.FUNDED, JobState.QUEUED)),
    ("Running", (JobState.RUNNING,)),
    ("Settling", (JobState.SETTLING,)),
)
LAST_STEPS = {JobState.SETTLED: "Settled", JobState.REFUNDED: "Refunded", JobState.FAILED: "Failed"}
LIVE = (JobState.FUNDED, JobState.QUEUED, JobState.RUNNING, JobState.SETTLING)
PARTS = {JobState.DRAFT: "draft", JobState.SUBMITTED: "submitted", JobState.AGREED: "agreed"}


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
        "model": [(kind, f"{kind}: {summary(MODELS.find(kind))}") for kind in kinds_of(MODELS)],
        "defence": [(name, name) for name in sorted(PRESETS, key=lambda name: name != DEFENCE)],
    }
    found = {}
    for name, place in SETTINGS.items():
        section, _, setting = place.partition(".")
        if setting == "kind":
            said = sections[section]
            default = DEFENCE if section == "defence" else said.default.kind
            found[name] = _field(section, said, default, kinds[section])
        else:
            said = next(one for one in declared(sections[section].type) if one.name == setting)
            found[name] = _field(setting, said, "" if name == "per_round" or said.required else said.default)
    wanted = next(one for one in declared(STOPS.find(TARGET)) if one.name == "utility")
    return {**found, "target_utility": _field(TARGET, wanted, None)}


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
    if form.choice("ends", ("no-progress", "budget")) == "no-progress":
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


def shown_job(page: PageContext, session: Session, job: Job) -> dict[str, Any]:
    state = JobState(job.state)
    events = jobs.events_of(session, page.caller, job.id)
    part = PARTS.get(state, "live" if state in LIVE else "ended")
    rounds = progress.rounds(page.settings, job.id) if part in ("live", "ended") else []
    made = contracts.own_contracts(session, page.caller, job.id)
    asked = Counter(slug for one in rounds for slug in one.get("drawn", one["paid"]))
    given: dict[str, Any] = {
        "job": job,
        "part": part,
        "live": bool(rounds) or part == "live",
        "steps": _steps(state, [JobState(event.state) for event in events]),
        "contracts": made,
        "events": events,
        "rounds": rounds,
        "asked": asked,
        "best": max((one for one in rounds if one["utility"] is not None), key=itemgetter("utility"), default=None),
        "held": rounds[-1]["asked"] - rounds[-1]["spent"] if rounds and state not in OVER else 0,
        "most_asked": max(asked.values(), default=1),
        "events_path": f"/v1/jobs/{job.id}/live",
        "over": state in OVER,
        "reason": told_of(job),
    }
    return given | _of_state(page, session, job, state, made)


def stuck(job: Job) -> bool:
    """Whether it cannot be settled by its ledger: the operator has to look at it."""
    return job.state == JobState.SETTLING and job.reason_code == UNSOUND


def told_of(job: Job) -> str:
    """Why it is where it is, as far as that is not plain."""
    held = job.state == JobState.QUEUED and job.reason_code == HELD
    return job.reason if JobState(job.state) in OVER or job.attempts > 1 or held or stuck(job) else ""


def _of_state(
    page: PageContext, session: Session, job: Job, state: JobState, made: list[shapes.Contract]
) -> dict[str, Any]:
    if state == JobState.DRAFT:
        files = [(role, session.get_one(File, file_id).name) for role, file_id in job.files.items()]
        offers = [session.get_one(Offer, offer_id) for offer_id in job.offers]
        return {"draft": {**shown_spec(job.spec), "files": files, "offers": offers}}
    if state == JobState.SUBMITTED:
        waiting = [one for one in made if one.state == ContractState.REQUESTED]
        return {"still_open": len(waiting), "next_expiry": min((one.expires_at for one in waiting), default=None)}
    if state == JobState.AGREED:
        return _quoted(page, session, job, made)
    if state in OVER:
        kept = page.settings.run_folder(job.id).is_dir() and job.run_head is not None
        return {"downloads": kept, "worth": _worth(page, job)}
    return {}


def _steps(state: JobState, been: list[JobState]) -> list[dict[str, Any]]:
    """The way of a job: what lies behind it, where it is, what is to come. One that ended early has no more to come."""
    steps = []
    for words, states in STEPS:
        here, done = state in states, any(one in been for one in states)
        if here or done or state not in OVER:
            steps.append({"words": words, "here": here, "look": "done" if done and not here else ""})
    last = LAST_STEPS.get(state, "Settled")
    steps.append({"words": last, "here": state in OVER, "look": "bad" if state == JobState.FAILED else ""})
    return steps


def _quoted(page: PageContext, session: Session, job: Job, made: list[shapes.Contract]) -> dict[str, Any]:
    quote = jobs.quote(session, page.caller, page.settings, job.id)
    have = journal.balance(session, journal.cash(page.caller.slug))
    waiting = cash.records(session, page.caller, state="requested")
    prices = [one.price for one in made if one.state == ContractState.AGREED]
    return {
        "quote": quote,
        "prices": (min(prices), max(prices), len(prices)),
        "wait": wait_in_words(quote.wait),
        "cash": have,
        "shortfall": page.currency.amount(max(0, quote.escrow - have)),
        "announced": sum(one.amount for one in waiting if one.kind == "deposit"),
    }


def wait_in_words(seconds: float | None) -> str:
    """
    >>> wait_in_words(None), wait_in_words(0), wait_in_words(30), wait_in_words(150), wait_in_words(7000)
    ('not known yet', 'none: a runner is free', 'about 30 seconds', 'about 2 minutes', 'about 1.9 hours')
    """
    if seconds is None:
        return "not known yet"
    return f"about {duration(seconds)}" if seconds >= 1 else "none: a runner is free"


def _worth(page: PageContext, job: Job) -> PurchaseEvaluation | None:
    """What the purchase was worth. It is not judged where a job was stopped, nor here where an arbiter is elsewhere."""
    folder = page.settings.run_folder(job.id)
    return RunFolder(folder).worth() if job.run_head is not None and (folder / "run.json").is_file() else None
