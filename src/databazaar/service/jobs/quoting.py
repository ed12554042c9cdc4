"""What a job will cost and how long it may wait, before a coin is spent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import specification
from databazaar.service.caller import Caller
from databazaar.service.errors import ConflictError
from databazaar.service.jobs.composing import market_of
from databazaar.service.jobs.funding import escrow_of
from databazaar.service.jobs.looking import own_job
from databazaar.service.jobs.waiting import expected_wait
from databazaar.service.members import market as the_market
from databazaar.service.settings import Settings
from databazaar.service.states import JobState
from databazaar.settings import plain

if TYPE_CHECKING:
    from databazaar.market.quoting import Quote


LATEST: dict[str, tuple[str, Quote]] = {}
"""The latest quote of each job, with what it was made from: it is simulated once, not for every view of a page."""
MOST_LATEST = 200


@dataclass(frozen=True)
class JobQuote:
    """`quote` is the run's, as `bazaar quote` gives it: prices, rounds, who can be asked.

    `escrow` is what is taken from the consumer's cash, the budget and the fee on all of it; what is not spent comes
    back. `wait` are the seconds before it starts, None where nothing is known.
    """

    quote: Quote
    budget: int
    fee_basis_points: int
    most_fee: int
    escrow: int
    wait: float | None

    def shown(self) -> shapes.Quote:
        """As programs see it."""
        return from_row(shapes.Quote, self, quote=self.quote.to_dict())


def quote(session: Session, caller: Caller, settings: Settings, job_id: str) -> JobQuote:
    """For a job that is not funded yet: over the offers as they are now, or what was kept once it is submitted."""
    from databazaar.config.quote import quote_of

    job = own_job(session, caller, job_id)
    if job.state not in (JobState.DRAFT, JobState.SUBMITTED, JobState.AGREED):
        raise ConflictError(f"the job is {job.state}: a quote is for one that is not funded yet")
    market = market_of(session, settings, job).parsed if job.state == JobState.DRAFT else specification.market_of(job)
    asked = json.dumps(plain(market))
    if LATEST.get(job.id, ("",))[0] != asked:
        if len(LATEST) >= MOST_LATEST:
            LATEST.clear()
        LATEST[job.id] = asked, quote_of(market, settings.job_folder(job.id), "job")
    quoted = LATEST[job.id][1]
    rate = the_market(session).fee_basis_points
    escrow = escrow_of(job.budget, rate)
    return JobQuote(quoted, job.budget, rate, escrow - job.budget, escrow, expected_wait(session, settings))
