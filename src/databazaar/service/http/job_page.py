"""The pages of a job: what they show in each of its states."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Any

from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.display import duration
from databazaar.runs.folder import RunFolder
from databazaar.runs.purchase import PurchaseEvaluation
from databazaar.service import cash, contracts, jobs, journal
from databazaar.service.database.tables import File, Job, Offer
from databazaar.service.http.job_form import shown_spec
from databazaar.service.http.pages import PageContext
from databazaar.service.hub import progress
from databazaar.service.hub.folder import HELD
from databazaar.service.hub.settlement import UNSOUND
from databazaar.service.lifecycle import OVER, ContractState, JobState

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
