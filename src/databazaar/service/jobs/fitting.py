"""Whether the tables of a job fit each other, before anybody is asked and without a look at providers' rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from databazaar.config.market_file import MarketFile
from databazaar.errors import BazaarError
from databazaar.service import files
from databazaar.service.database.tables import File
from databazaar.service.errors import InvalidError
from databazaar.service.jobs.composing import MarketOf
from databazaar.service.settings import Settings

if TYPE_CHECKING:
    from databazaar.data.schema import Schema

MOST_BYTES = 32 * 2**20
"""A larger hold-out is looked at only when the job runs."""


def check_tables(settings: Settings, market: MarketOf) -> Schema | None:
    """Refuses a hold-out that cannot be used, and offers that lack a column which it has. The schema that it gives, or
    None where it is not looked at here."""
    name = market.parsed.data.holdout.as_posix()
    file = market.links.get(name)
    if file is None or file.size > MOST_BYTES:
        return None
    schema = _fitted(settings, market, file)
    wanted = [*schema.columns, market.parsed.data.target]
    for seller in market.sellers:
        there = {column["name"] for column in seller.version.columns}
        lacking = [column for column in wanted if column not in there]
        if lacking:
            raise InvalidError(
                f"the offer {seller.offer.slug} has no column {lacking[0]!r}, which the hold-out has: leave the offer "
                "out, or name the columns to use in data.features"
            )
    return schema


def _fitted(settings: Settings, market: MarketOf, file: File) -> Schema:
    """How the job would encode tables, or what is wrong with its hold-out in the words of databazaar.data."""
    path = files.path_of(settings, file)
    try:
        return _fit(_Holdout(path, file.digest, market.parsed.data.model_dump_json(), market.parsed))
    except BazaarError as fault:
        raise InvalidError(str(fault).replace(str(path), file.name)) from None


@dataclass(frozen=True)
class _Holdout:
    """A hold-out, what it was when it was uploaded, and how it is to be read."""

    path: Path
    digest: str
    settings: str
    market: MarketFile = field(compare=False, repr=False)


@lru_cache(maxsize=16)
def _fit(holdout: _Holdout) -> Schema:
    """It is the same every time, and takes seconds where the table is large."""
    from databazaar.config.market_tables import fit_schema, read_labelled

    table = read_labelled(holdout.market.data, holdout.path)
    if table.digest != holdout.digest:
        raise BazaarError(f"{holdout.path}: the file is not what was uploaded any more: upload it again")
    return fit_schema(holdout.market.data, table)
