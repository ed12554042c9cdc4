"""Rounds of a hub's job, played in this process as its runner plays them."""

from __future__ import annotations

from contextlib import closing, suppress

from databazaar.config.jobs import market_job
from databazaar.config.play import begun
from databazaar.market.run import Progress
from databazaar.service.database.tables import Job
from databazaar.service.hub.folder import write_market
from databazaar.service.hub.progress import ProgressLog
from hub_market import HubMarket


class _EnoughError(Exception):
    pass


def play_rounds(market: HubMarket, name: str, rounds: int | None) -> None:
    """To its end, or until it is broken off after so many rounds."""
    job_id = market.jobs[name]
    with market.database.begin() as session:
        path = write_market(session, market.settings, session.get_one(Job, job_id))
    with (
        begun(market_job(path), market.run(name), id=job_id) as playing,
        closing(ProgressLog(market.settings.job_folder(job_id))) as teller,
        suppress(_EnoughError),
    ):

        def tell(progress: Progress) -> None:
            teller.tell(progress)
            if progress.round == rounds:
                raise _EnoughError

        playing.settle(tell)
