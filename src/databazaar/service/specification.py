"""The specification of a job: its market.toml, composed once when the job is submitted, and kept with its SHA-256.

From then on everybody reads what is kept: the quote, the runner, the consumer's own arbiter and the processes that
answer it. Only a provider that does not agree is taken out of it.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from databazaar.config.market_file import MarketFile, parse_market
from databazaar.config.toml_text import toml_text
from databazaar.errors import BazaarError, LedgerError
from databazaar.service.database.tables import Job
from databazaar.service.errors import InvalidError


def keep(job: Job, settings: Mapping[str, Any]) -> None:
    """Keeps what a job's market.toml holds."""
    job.market = toml_text(settings)
    job.market_hash = hashlib.sha256(job.market.encode()).hexdigest()


def text_of(job: Job) -> str:
    """The job's market.toml, byte for byte as it was kept."""
    if not job.market or hashlib.sha256(job.market.encode()).hexdigest() != job.market_hash:
        raise LedgerError("the job's specification is not the one that was submitted: restore the hub's database")
    return job.market


def settings_of(job: Job) -> dict[str, Any]:
    """What the job's market.toml holds."""
    return tomllib.loads(text_of(job))


def market_of(job: Job) -> MarketFile:
    """The same, parsed; or an InvalidError in market.toml's words."""
    return _parsed(text_of(job))


@lru_cache(maxsize=64)
def _parsed(text: str) -> MarketFile:
    try:
        return parse_market(tomllib.loads(text), "job")
    except BazaarError as fault:
        raise InvalidError(str(fault)) from None


def leave_out(job: Job, providers: Collection[str]) -> None:
    """Takes these providers out, who have not agreed."""
    settings = settings_of(job)
    left = [one for one in settings.get("providers", []) if one["id"] not in providers]
    if len(left) < len(settings.get("providers", [])):
        keep(job, {**settings, "providers": left})
