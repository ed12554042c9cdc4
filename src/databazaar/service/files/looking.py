"""Looking at kept files: whose they are, and what still needs them."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.database.tables import Contract, File, Job, Offer, OfferVersion
from databazaar.service.errors import ConflictError, MissingError
from databazaar.service.outlines import Outline, outline, remember
from databazaar.service.settings import Settings
from databazaar.service.states import OVER, ContractState

UNENDED = (ContractState.REQUESTED, ContractState.AGREED, ContractState.ACTIVE)


@dataclass(frozen=True)
class Use:
    """What a file is, or was, used for. `needed` says that it still is; `at` is when a job changed last."""

    kind: Literal["job", "offer", "contract"]
    id: str
    name: str
    needed: bool
    at: dt.datetime | None = None


@dataclass(frozen=True)
class Kept:
    """A file of one's own, and its uses."""

    file: File
    uses: tuple[Use, ...]

    @property
    def needed(self) -> bool:
        return any(use.needed for use in self.uses)


def own_file(session: Session, caller: Caller, file_id: str, lock: bool = False) -> File:
    """With `lock`, it is there until the transaction ends: for whoever is about to use it."""
    file = session.get(File, file_id)
    if file is None or file.organisation_id != caller.organisation_id or file.deleted_at is not None:
        raise MissingError(f"there is no file {file_id[:40]!r} of yours: upload it first")
    if lock:
        hold(session, [file_id])
    return file


def hold(session: Session, ids: Iterable[str]) -> None:
    """Keeps files from being deleted until the transaction ends; refuses where one is gone already."""
    found = select(File).where(File.id.in_(sorted(ids))).order_by(File.id).with_for_update(read=True)
    for file in session.scalars(found.execution_options(populate_existing=True)):
        if file.deleted_at is not None:
            raise ConflictError(f"the file {file.name} was deleted by its owner: use another one")


def own_files(session: Session, caller: Caller) -> list[Kept]:
    """The caller's, the newest first, without those that were deleted."""
    caller.require("read")
    own = select(File).where(File.organisation_id == caller.organisation_id, File.deleted_at.is_(None))
    uses = uses_of(session, caller.organisation_id)
    rows = session.scalars(own.order_by(File.created_at.desc(), File.id))
    return [Kept(file, tuple(uses.get(file.id, ()))) for file in rows]


def uses_of(session: Session, organisation_id: str) -> dict[str, list[Use]]:
    """What an organisation's files are used for, by their ids: its jobs, its offers, and contracts about these."""
    found: dict[str, list[Use]] = defaultdict(list)
    jobs = select(Job.id, Job.name, Job.state, Job.files, Job.changed_at).where(Job.organisation_id == organisation_id)
    for id, name, state, files, at in session.execute(jobs.order_by(Job.created_at)):
        for file_id in set(files.values()):
            found[file_id].append(Use("job", id, name, state not in OVER, at))
    offers = (
        select(File.id, Offer.id, Offer.slug, Offer.withdrawn_at, OfferVersion.number == Offer.version)
        .join(OfferVersion, OfferVersion.file_id == File.id)
        .join(Offer, Offer.id == OfferVersion.offer_id)
        .where(Offer.organisation_id == organisation_id)
    )
    for file_id, id, slug, withdrawn, current in session.execute(offers.order_by(Offer.created_at)):
        found[file_id].append(Use("offer", id, slug, withdrawn is None and bool(current)))
    contracts = (
        select(File.id, Offer.id, Offer.slug)
        .join(OfferVersion, OfferVersion.file_id == File.id)
        .join(Contract, Contract.version_id == OfferVersion.id)
        .join(Offer, Offer.id == OfferVersion.offer_id)
        .where(Contract.provider_id == organisation_id, Contract.state.in_(UNENDED))
        .distinct()
    )
    for file_id, id, slug in session.execute(contracts):
        found[file_id].append(Use("contract", id, slug, True))
    return found


def room_taken(session: Session, organisation_id: str) -> int:
    """Bytes that an organisation keeps; the same bytes twice are kept once."""
    own = select(File.digest, File.size).where(File.organisation_id == organisation_id, File.deleted_at.is_(None))
    return int(session.scalar(select(func.sum(own.distinct().subquery().c.size))) or 0)


def path_of(settings: Settings, file: File) -> Path:
    """Where the hub has it."""
    return settings.file(file.digest, file.suffix)


def outline_of(settings: Settings, file: File) -> Outline:
    """What is shown of a kept table, which is read once for all who ask."""
    path = path_of(settings, file)
    found = outline(settings, path, file.name, file.organisation_id)
    remember(path, found)
    return found
