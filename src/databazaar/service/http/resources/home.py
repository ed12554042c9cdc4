"""Where one comes in: what waits for the visitor, and how things stand; and the page that says who sees what."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from databazaar.reports.words import amount
from databazaar.service import contracts, jobs, offers
from databazaar.service.errors import UnknownCallerError
from databazaar.service.http.context import InWeb
from databazaar.service.http.pages import PageContext, page_of, page_of_anybody
from databazaar.service.http.resources.money import sums_of
from databazaar.service.http.routes import Routes
from databazaar.service.http.security_callers import credentials_of, look_up
from databazaar.service.states import JobState

routes = Routes()
MOST_JOBS = 10


@routes.page("/", "home", "Overview", menu=("Your organisation", "Overview", 1), listed_for="member")
def home(page: PageContext, session: Session) -> dict[str, Any] | Response:
    caller = page.caller
    if caller.operates and not (caller.consumes or caller.provides):
        return RedirectResponse("/operator", 303)
    own_jobs = jobs.own_jobs(session, caller) if caller.consumes else []
    waiting = [
        {"path": f"/jobs/{job.id}", "title": job.name, "words": "All providers have answered: look at the quote."}
        for job in own_jobs
        if job.state == JobState.AGREED
    ]
    sums = {sort: amount(page.currency, held) for sort, held in sums_of(session, page).items()}
    tiles = [("Cash", sums["cash"], "at the market", page.currency.name)]
    if caller.consumes:
        tiles.append(("In escrow", sums["escrow"], "held for your jobs", page.currency.name))
    if caller.provides:
        waiting += [
            {"path": "/requests", "title": one.consumer_name, "words": f"asks for {one.offer_name}"}
            for one in contracts.requests(session, caller)
        ]
        paid = [one for one in contracts.earnings(session, caller) if one.paid]
        tiles.append(("Earned", sums["earned"], "not paid out yet", page.currency.name))
        tiles.append(("Jobs that paid", f"{len(paid):,}", "you so far", ""))
    own_offers = offers.own_offers(session, caller) if caller.provides else []
    return {"waiting": waiting, "tiles": tiles, "jobs": own_jobs[:MOST_JOBS], "offers": own_offers}


@routes.pages.get("/who-sees-what")
def who_sees_what(request: Request, web: InWeb) -> Response:
    """For everybody; those who have signed in keep the menu."""
    credentials = credentials_of(request)
    try:
        page = page_of(request, web, look_up(web, credentials)) if credentials else page_of_anybody(request, web)
    except UnknownCallerError:
        page = page_of_anybody(request, web)
    return page.render("who_sees_what", "Who sees what")
