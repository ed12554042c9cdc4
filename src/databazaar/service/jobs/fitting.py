"""Whether the tables of a job fit each other, before anybody is asked and without a look at providers' rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from databazaar.config.sections import DataSettings
from databazaar.errors import BazaarError
from databazaar.service import files
from databazaar.service.database.tables import File
from databazaar.service.errors import InvalidError
from databazaar.service.jobs.composing import MarketOf
from databazaar.service.reading import EndedError, read_apart
from databazaar.service.settings import Settings
from databazaar.settings import plain

MOST_BYTES = 32 * 2**20
"""A larger hold-out is looked at only when the job runs."""


@dataclass(frozen=True)
class Fitted:
    """What a hold-out gives: the feature columns that every table must have, and the schema as JSON."""

    columns: list[str]
    schema: dict[str, Any]


def check_tables(settings: Settings, market: MarketOf) -> Fitted | None:
    """Refuses a hold-out that cannot be used, and offers that lack a column which it has. What it gives, or None where
    it is not looked at here."""
    data = market.parsed.data
    fitted = fit_holdout(settings, data, market.links.get(data.holdout.as_posix()))
    if fitted is None:
        return None
    wanted = [*fitted.columns, data.target]
    for seller in market.sellers:
        there = {column["name"] for column in seller.version.columns}
        lacking = [column for column in wanted if column not in there]
        if lacking:
            raise InvalidError(
                f"the offer {seller.offer.slug} has no column {lacking[0]!r}, which the hold-out has: leave the offer "
                "out, or name the columns to use in data.features",
                place="offers",
            )
    return fitted


def fit_holdout(settings: Settings, data: DataSettings, file: File | None) -> Fitted | None:
    """What a hold-out gives, which is read once for all who ask; None where it is not looked at here."""
    if file is None or file.size > MOST_BYTES:
        return None
    path = files.path_of(settings, file)
    as_json = json.dumps(plain(data))
    holdout = _Holdout(path, _state(path), file.digest, file.name, file.organisation_id, as_json, data)
    fitted = _fit(holdout, settings)
    if isinstance(fitted, InvalidError):
        raise fitted
    return fitted


def _state(path: Path) -> tuple[int, int] | None:
    """It is another one once somebody has put another file there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@dataclass(frozen=True)
class _Holdout:
    """A hold-out, what it was when it was uploaded, and how it is to be read."""

    path: Path
    state: tuple[int, int] | None
    digest: str
    name: str
    whose: str
    as_json: str
    data: DataSettings = field(compare=False, repr=False)


@lru_cache(maxsize=16)
def _fit(holdout: _Holdout, settings: Settings) -> Fitted | InvalidError:
    """It is the same every time, and takes seconds where the table is large; so a refusal is remembered too."""
    given = holdout.path, holdout.digest, holdout.data
    try:
        return Fitted(**read_apart(settings, fitted_to, *given, name=holdout.name, whose=holdout.whose))
    except EndedError:
        raise
    except InvalidError as refused:
        return refused


def fitted_to(path: Path, digest: str, data: DataSettings) -> dict[str, Any]:
    """How the job would encode tables; for a process of its own."""
    from databazaar.config.market_tables import fit_schema, read_labelled

    table = read_labelled(data, path)
    if table.digest != digest:
        raise BazaarError(f"{path}: the file is not what was uploaded any more: upload it again")
    schema = fit_schema(data, table)
    return {"columns": list(schema.columns), "schema": schema.to_dict()}
