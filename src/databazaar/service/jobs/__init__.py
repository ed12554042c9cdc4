"""Jobs: what a consumer buys, from the draft to the escrow. What follows is the hub's to do."""

from databazaar.service.jobs.drafts import (
    all_jobs,
    change,
    draft,
    events_of,
    from_market_toml,
    own_job,
    own_jobs,
    refuse_others,
)
from databazaar.service.jobs.funds import fund, quote, stop, withdraw
from databazaar.service.jobs.submission import check, look, submit

__all__ = [
    "all_jobs",
    "change",
    "check",
    "draft",
    "events_of",
    "from_market_toml",
    "fund",
    "look",
    "own_job",
    "own_jobs",
    "quote",
    "refuse_others",
    "stop",
    "submit",
    "withdraw",
]
