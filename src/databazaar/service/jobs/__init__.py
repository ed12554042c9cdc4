"""Jobs: what a consumer buys, from the draft to the escrow. What follows is the hub's to do."""

from databazaar.service.jobs.composing import MarketOf, market_of
from databazaar.service.jobs.drafting import change, draft
from databazaar.service.jobs.folder import write_market
from databazaar.service.jobs.funding import escrow_of, fund
from databazaar.service.jobs.looking import all_jobs, events_of, own_job, own_jobs, refuse_others
from databazaar.service.jobs.posted import Posted, from_market_toml
from databazaar.service.jobs.quoting import JobQuote, quote
from databazaar.service.jobs.stopping import stop, withdraw
from databazaar.service.jobs.submitting import check, look, submit
from databazaar.service.jobs.waiting import expected_wait
from databazaar.service.lives import contracts_of, enter, locked_job, noted

__all__ = [
    "JobQuote",
    "MarketOf",
    "Posted",
    "all_jobs",
    "change",
    "check",
    "contracts_of",
    "draft",
    "enter",
    "escrow_of",
    "events_of",
    "expected_wait",
    "from_market_toml",
    "fund",
    "locked_job",
    "look",
    "market_of",
    "noted",
    "own_job",
    "own_jobs",
    "quote",
    "refuse_others",
    "stop",
    "submit",
    "withdraw",
    "write_market",
]
