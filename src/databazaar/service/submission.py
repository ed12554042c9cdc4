"""Submitting a job: its tables are checked against each other, and every chosen offer is asked for a contract."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from databazaar.codes import Code
from databazaar.config.chosen_rules import asked_of
from databazaar.config.market_file import MarketFile
from databazaar.config.sections import DataSettings
from databazaar.data.schema_message import SchemaMessage
from databazaar.errors import BazaarError
from databazaar.files import write_whole
from databazaar.models import Columns
from databazaar.service import contracts, files, specification
from databazaar.service.caller import Caller
from databazaar.service.database.tables import File, Job, Organisation
from databazaar.service.errors import ConflictError, InvalidError
from databazaar.service.jobs import job_to_change
from databazaar.service.lifecycle import JobState, enter
from databazaar.service.settings import Settings
from databazaar.service.specification import Composition, compose, holdout_of
from databazaar.service.table_reader import read_apart

UNOPENED = Code("arbiter-never-opened")
"""Why a job that was funded and never begun is refunded."""


def refuse_unverifiable(market: MarketFile) -> None:
    """Pay must not depend on what only the hold-out tells: the hub would have to take the consumer's word for it. So
    every access costs its price, which contracts fix, and there are no verdicts."""
    if not market.defence.chosen.off:
        raise InvalidError(
            "defence: an own arbiter's findings cannot be checked without its hold-out, and they would take pay from "
            'providers: leave the defence out, or let the hub run the job (mode "hosted")',
            place="defence.kind",
        )


def expected_terms(market: MarketFile) -> dict[str, Any]:
    """The opening entry's body as the hub itself would write it, without what only the consumer's files tell."""
    from databazaar.config.quote import terms_of
    from databazaar.market.arbiter import settings_of_rules
    from databazaar.payments import PricePerAccess
    from databazaar.stops import Budget, Patience
    from databazaar.utilities import UTILITIES

    refuse_unverifiable(market)
    stops, utility = (Patience(), *market.built("stops"), Budget()), market.built("utility")
    rules = settings_of_rules(
        market.built("sampler"),
        market.built("learner"),
        market.built("aggregator"),
        PricePerAccess(),
        stops,
        market.defence.chosen,
        UTILITIES.settings_of(utility),
    )
    return terms_of(market, rules, utility.bounded).body()


MOST_BYTES = 32 * 2**20
"""A larger hold-out is looked at only when the job runs."""


@dataclass(frozen=True)
class Fitted:
    """What a hold-out gives: the feature columns that every table must have, the schema as JSON, and how many outputs a
    model of it has: one for each class."""

    columns: list[str]
    schema: dict[str, Any]
    outputs: int


def check(session: Session, settings: Settings, job: Job) -> tuple[Composition, Fitted | None]:
    """The market that a job makes, and what its hold-out gives, if that is read here; refused where it could not be
    submitted, by its settings, by an unusable hold-out, or by offers that lack its columns."""
    market = compose(session, settings, job)
    if job.mode == "own":
        refuse_unverifiable(market.parsed)
    data = market.parsed.data
    file = market.links.get(data.holdout.as_posix())
    fitted = None if file is None else _fit_holdout(settings, data, market.parsed.built("model"), file)
    if fitted is None:
        return market, None
    market.refuse_out_of_bounds(settings.most_visits, fitted.outputs)
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
    return market, fitted


def _fit_holdout(settings: Settings, data: DataSettings, model: Any, file: File) -> Fitted | None:
    """What a hold-out gives, which is read once for all who ask; None where it is not looked at here."""
    if file.size > MOST_BYTES:
        return None
    path = settings.file(file.digest, file.suffix)
    return _fit(settings, path, file.digest, file.name, file.organisation_id, data, model)


@lru_cache(maxsize=16)
def _fit(settings: Settings, path: Path, digest: str, name: str, whose: str, data: DataSettings, model: Any) -> Fitted:
    return Fitted(**read_apart(settings, fitted_to, path, digest, data, model, name=name, whose=whose))


def fitted_to(path: Path, digest: str, data: DataSettings, model: Any) -> dict[str, Any]:
    """How the job would encode tables, which its model must fit; for a process of its own."""
    from databazaar.config.market_data import fit_schema, read_labelled
    from databazaar.data.tree_features import encoding_of, with_places

    table = read_labelled(data, path)
    if table.digest != digest:
        raise BazaarError(f"{path}: the file is not what was uploaded any more: upload it again")
    schema = fit_schema(data, table)
    model.shape(encoding_of(schema, model.kind).width)
    if isinstance(model, Columns):
        with_places(model, schema)
    return {"columns": list(schema.columns), "schema": schema.to_dict(), "outputs": schema.outputs}


def look(session: Session, caller: Caller, settings: Settings, job_id: str) -> None:
    """Reads the tables of a draft before `submit`, which uses the result while others wait to write."""
    job = job_to_change(session, caller, job_id, lock=False)
    read = holdout_of(session, job) if job.state == JobState.DRAFT else None
    if read is not None:
        _fit_holdout(settings, *read)


def submit(session: Session, caller: Caller, settings: Settings, job_id: str) -> Job:
    """Composes the job's market, keeps it, and asks all providers; those that decide by policy do so at once."""
    job = job_to_change(session, caller, job_id)
    if job.state != JobState.DRAFT:
        raise ConflictError(f"the job is {job.state} already: look at it again")
    market, fitted = check(session, settings, job)
    files.hold(session, [file.id for file in market.links.values()])
    job.budget = market.parsed.budget_minor
    specification.keep(job, market.settings)
    enter(session, job, JobState.SUBMITTED)
    needs = _needs_of(settings, job, market.parsed, fitted)
    job.needs = asdict(needs)
    consumer = session.get_one(Organisation, caller.organisation_id)
    for seller in market.sellers:
        contracts.request(session, job, consumer, seller.offer, needs)
    contracts.conclude(session, job)
    return job


def _needs_of(settings: Settings, job: Job, market: MarketFile, fitted: Fitted | None) -> contracts.Needs:
    """What the job asks for, by its settings and its hold-out; keeps the schema that sites are asked by."""
    data, fingerprint = market.data, None
    columns = None if data.features is None else list(data.features)
    if fitted is not None:
        columns = fitted.columns
        if market.engine.kind == "federated":
            fingerprint = _keep_schema(settings, job, fitted.schema)
    kind, asked, defence = market.model.kind, asked_of(market), market.defence.kind
    return contracts.Needs(
        kind, asked, job.mode, data.target, data.task, columns, fingerprint, defence, market.learner.kind
    )


def _keep_schema(settings: Settings, job: Job, schema: dict[str, Any]) -> str:
    """Keeps what sites will be asked by, so that they can look at it; its fingerprint."""
    from databazaar.federation.accepted_schemas import fingerprint

    try:
        message = SchemaMessage.model_validate(schema)
    except ValidationError as refused:
        what = refused.errors(include_url=False, include_input=False)[0]["loc"][0]
        raise InvalidError(
            f"the hold-out gives a schema that is more than sites take ({what}): name fewer columns in data.features"
        ) from None
    folder = settings.job_folder(job.id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(folder / contracts.SCHEMA, message.model_dump_json().encode(), mode=0o600)
    return fingerprint(message)
