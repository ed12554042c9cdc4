"""Whether the tables of a job fit each other, before anybody is asked and without a look at providers' rows."""

from __future__ import annotations

from pathlib import Path

from databazaar.errors import BazaarError
from databazaar.service import files
from databazaar.service.database.tables import File
from databazaar.service.errors import InvalidError
from databazaar.service.jobs.composing import MarketOf
from databazaar.service.settings import Settings

MOST_BYTES = 32 * 2**20
"""A larger hold-out is looked at only when the job runs."""


def check_tables(settings: Settings, market: MarketOf) -> None:
    """Refuses a hold-out that cannot be used, and offers that lack a column which it has."""
    name = market.parsed.data.holdout.as_posix()
    file = market.links.get(name)
    if file is None or file.size > MOST_BYTES:
        return
    wanted = [*_features(settings, market, file), market.parsed.data.target]
    for seller in market.sellers:
        there = {column["name"] for column in seller.version.columns}
        lacking = [column for column in wanted if column not in there]
        if lacking:
            raise InvalidError(
                f"the offer {seller.offer.slug} has no column {lacking[0]!r}, which the hold-out has: leave the offer "
                "out, or name the columns to use in data.features"
            )


def _features(settings: Settings, market: MarketOf, file: File) -> tuple[str, ...]:
    """The columns that the job would use of the hold-out, or what is wrong with it in the words of databazaar.data."""
    from databazaar.config.market_data import fit_schema, labelled_table

    path = files.path_of(settings, file)
    try:
        frame, _ = labelled_table(market.parsed, path.parent, Path(path.name))
        return fit_schema(market.parsed, frame, str(path)).columns
    except BazaarError as fault:
        raise InvalidError(str(fault).replace(str(path), file.name)) from None
