"""Where one comes in: what waits for the visitor, and how things stand; and the page that says who sees what."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from databazaar.reports.wording import amount
from databazaar.service import contracts, jobs, journal, offers
from databazaar.service.caller import Caller
from databazaar.service.errors import UnknownCallerError
from databazaar.service.http.context import InWeb
from databazaar.service.http.pages.visits import Visit, Visiting, visit_of, visit_of_anybody
from databazaar.service.http.security_callers import credentials_of, look_up
from databazaar.service.states import JobState

router = APIRouter(include_in_schema=False)
MOST_JOBS = 10


@router.get("/")
def home(visit: Visiting) -> Response:
    caller = visit.caller
    if caller.operates and not (caller.consumes or caller.provides):
        return RedirectResponse("/operator", 303)
    with visit.read() as session:
        own_jobs = jobs.own_jobs(session, caller) if caller.consumes else []
        own_offers = offers.own_offers(session, caller) if caller.provides else []
        return visit.render(
            "home",
            "Overview",
            waiting=_waiting(session, caller, own_jobs),
            tiles=_tiles(session, visit),
            jobs=own_jobs[:MOST_JOBS],
            offers=own_offers,
        )


def _waiting(session: Session, caller: Caller, own_jobs: list[Any]) -> list[dict[str, str]]:
    found = [
        {"path": f"/jobs/{job.id}", "title": job.name, "words": "All providers have answered: look at the quote."}
        for job in own_jobs
        if job.state == JobState.AGREED
    ]
    if caller.provides:
        found += [
            {"path": "/requests", "title": one.consumer_name, "words": f"asks for {one.offer_name}"}
            for one in contracts.requests(session, caller)
        ]
    return found


def _tiles(session: Session, visit: Visit) -> list[dict[str, str]]:
    caller, unit = visit.caller, visit.currency.name
    accounts = journal.accounts_of(session, caller)

    def sum_of(kind: str) -> str:
        return amount(visit.currency, sum(one.balance for one in accounts if one.name.startswith(f"{kind}:")))

    tiles = [{"label": "Cash", "value": sum_of("cash"), "more": "at the market", "unit": unit}]
    if caller.consumes:
        tiles.append({"label": "In escrow", "value": sum_of("escrow"), "more": "held for your jobs", "unit": unit})
    if caller.provides:
        paid = [one for one in contracts.earnings(session, caller) if one.paid]
        tiles.append({"label": "Earned", "value": sum_of("earned"), "more": "not paid out yet", "unit": unit})
        tiles.append({"label": "Jobs that paid", "value": f"{len(paid):,}", "more": "you so far", "unit": ""})
    return tiles


@router.get("/who-sees-what")
def who_sees_what(request: Request, web: InWeb) -> Response:
    """For everybody; whoever has signed in keeps the menu."""
    credentials = credentials_of(request)
    try:
        visit = visit_of(request, web, look_up(web, credentials)) if credentials else visit_of_anybody(request, web)
    except UnknownCallerError:
        visit = visit_of_anybody(request, web)
    return visit.render("who_sees_what", "Who sees what")
