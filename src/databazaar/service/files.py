"""Uploaded tables: kept under their SHA-256 for the hub alone to read, until they are deleted."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from sqlalchemy import exists, func, select, text
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.service.caller import Caller, own_row
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Contract, File, Job, Offer, OfferVersion, Organisation, now
from databazaar.service.errors import ConflictError, DeniedError, InvalidError, MissingError
from databazaar.service.lifecycle import OVER, ContractState
from databazaar.service.settings import Settings
from databazaar.service.table_reader import outline

UNENDED = (ContractState.REQUESTED, ContractState.AGREED, ContractState.ACTIVE)


class Use(shapes.FileUse):
    """With when a job changed last, which its owner is not shown."""

    at: dt.datetime | None = None


def own_file(session: Session, caller: Caller, file_id: str, lock: bool = False) -> File:
    """With `lock`, it is there until the transaction ends: for a caller that is about to use it."""
    missing = f"there is no file {file_id[:40]!r} of yours: upload it first"
    file = own_row(session, caller, File, file_id, missing)
    if file.deleted_at is not None:
        raise MissingError(missing)
    if lock:
        hold(session, [file_id])
    return file


def hold(session: Session, ids: Iterable[str]) -> None:
    """Keeps files from being deleted until the transaction ends; refuses where one is gone already."""
    found = select(File).where(File.id.in_(sorted(ids))).order_by(File.id).with_for_update(read=True)
    for file in session.scalars(found.execution_options(populate_existing=True)):
        if file.deleted_at is not None:
            raise ConflictError(f"the file {file.name} was deleted by its owner: use another one")


def own_files(session: Session, caller: Caller) -> list[shapes.FileUses]:
    """The caller's files and their uses, the newest first, without those that were deleted."""
    caller.require("read")
    own = select(File).where(File.organisation_id == caller.organisation_id, File.deleted_at.is_(None))
    uses = uses_of(session, caller.organisation_id)
    rows = session.scalars(own.order_by(File.created_at.desc(), File.id))
    return [shapes.FileUses.of(file, uses=uses.get(file.id, [])) for file in rows]


def uses_of(session: Session, organisation_id: str) -> dict[str, list[Use]]:
    """What an organisation's files are used for, by their ids: its jobs, its offers, and contracts about these."""
    found: dict[str, list[Use]] = defaultdict(list)
    jobs = select(Job.id, Job.name, Job.state, Job.files, Job.changed_at).where(Job.organisation_id == organisation_id)
    for id, name, state, files, at in session.execute(jobs.order_by(Job.created_at)):
        for file_id in set(files.values()):
            found[file_id].append(Use(kind="job", id=id, name=name, needed=state not in OVER, at=at))
    offers = (
        select(File.id, Offer.id, Offer.slug, Offer.withdrawn_at, OfferVersion.number == Offer.version)
        .join(OfferVersion, OfferVersion.file_id == File.id)
        .join(Offer, Offer.id == OfferVersion.offer_id)
        .where(Offer.organisation_id == organisation_id)
    )
    for file_id, id, slug, withdrawn, current in session.execute(offers.order_by(Offer.created_at)):
        found[file_id].append(Use(kind="offer", id=id, name=slug, needed=withdrawn is None and bool(current)))
    contracts = (
        select(File.id, Offer.id, Offer.slug)
        .join(OfferVersion, OfferVersion.file_id == File.id)
        .join(Contract, Contract.version_id == OfferVersion.id)
        .join(Offer, Offer.id == OfferVersion.offer_id)
        .where(Contract.provider_id == organisation_id, Contract.state.in_(UNENDED))
        .distinct()
    )
    for file_id, id, slug in session.execute(contracts):
        found[file_id].append(Use(kind="contract", id=id, name=slug, needed=True))
    return found


def room_taken(session: Session, organisation_id: str) -> int:
    """Bytes that an organisation keeps; the same bytes twice are kept once."""
    own = select(File.digest, File.size).where(File.organisation_id == organisation_id, File.deleted_at.is_(None))
    return int(session.scalar(select(func.sum(own.distinct().subquery().c.size))) or 0)


PIECE = 2**20
STALE = 24 * 3600.0
"""Seconds after which an upload that nobody finished is removed."""
LONGEST_NAME = 200
BYTES_LOCK = 0x6261_7A66_696C
"""The number under which PostgreSQL keeps bytes from being removed while somebody, who may need them, uploads."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def keep(session: Session, caller: Caller, settings: Settings, name: str, stream: Readable) -> File:
    """Takes in a table piece by piece. The database is touched only once the file is there in full."""
    require_uploader(caller)
    shown = shown_name(name)
    table = _drafts(settings) / secrets.token_hex(16)
    try:
        digest, size = _received(table, settings.most_upload, shown, stream)
        suffix = suffix_of(table)
        table = table.rename(table.with_suffix(suffix))
        kept = settings.file(digest, suffix)
        found = None if kept.exists() else outline(settings, table, shown, caller.organisation_id)
        _make_room(session, caller, settings, digest, size)
        if not kept.exists():
            kept.parent.mkdir(mode=0o700, exist_ok=True)
            table.rename(kept)
            _sync(kept.parent)
    finally:
        table.unlink(missing_ok=True)
    file = File(organisation_id=caller.organisation_id, name=shown, digest=digest, suffix=suffix, size=size)
    same = session.scalar(select(File).where(File.digest == digest, File.suffix == suffix).limit(1))
    known = (same.rows, same.columns) if same else found or outline(settings, kept, shown, caller.organisation_id)
    file.rows, file.columns = known
    session.add(file)
    session.flush()
    return file


def require_uploader(caller: Caller) -> None:
    """A consumer keeps its hold-out here, a provider what it offers."""
    if not ((caller.consumes and "jobs" in caller.scopes) or (caller.provides and "offers" in caller.scopes)):
        raise DeniedError("only a consumer or a provider keeps files here: use a token with the right jobs or offers")


def _make_room(session: Session, caller: Caller, settings: Settings, digest: str, size: int) -> None:
    """Refuses what exceeds the quota; until the transaction ends, other uploads wait and nobody removes these bytes."""
    own = select(Organisation).where(Organisation.id == caller.organisation_id)
    session.execute(own.with_for_update(key_share=True))
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock_shared(:lock)"), {"lock": BYTES_LOCK})
    theirs = File.organisation_id == caller.organisation_id, File.digest == digest, File.deleted_at.is_(None)
    if session.scalar(select(exists().where(*theirs))):
        return
    refuse_over_quota(settings, room_left(session, caller, settings), size)


def room_left(session: Session, caller: Caller, settings: Settings) -> int:
    """The bytes that an uploader may still add; refused to others."""
    require_uploader(caller)
    return settings.quota - room_taken(session, caller.organisation_id)


def refuse_over_quota(settings: Settings, left: int, size: int) -> None:
    if size > left:
        raise ConflictError(
            f"your organisation may keep {settings.quota:,} bytes here, and {max(0, left):,} are left for these "
            f"{size:,}: delete files that you no longer need"
        )


def _drafts(settings: Settings) -> Path:
    """Where uploads are until they are whole. What a killed hub has left there is removed."""
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (settings.files, drafts := settings.files / "drafts"):
        folder.mkdir(mode=0o700, exist_ok=True)
    for left in drafts.iterdir():
        with contextlib.suppress(OSError):
            if left.stat().st_mtime < time.time() - STALE:
                left.unlink()
    return drafts


def _received(draft: Path, most: int, name: str, stream: Readable) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
        while piece := stream.read(PIECE):
            size += len(piece)
            if size > most:
                raise InvalidError(f"{name} has more than the {most:,} bytes that a file may have: split it")
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest(), size


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def suffix_of(path: Path) -> str:
    """How a file is to be read, by its first bytes: the name that it came with says nothing sure."""
    with path.open("rb") as file:
        start = file.read(4)
    return ".parquet" if start == b"PAR1" else ".csv.gz" if start[:2] == b"\x1f\x8b" else ".csv"


def shown_name(name: str) -> str:
    """The last part of a file's name, on one line.

    >>> shown_name("C:\\\\data\\\\north\\u202e.csv"), shown_name("../../etc/passwd"), shown_name("")
    ('north.csv', 'passwd', 'table')
    """
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return "".join(sign for sign in last if sign.isprintable()).strip()[-LONGEST_NAME:] or "table"


_REMEDIES = {
    "job": "the job {name!r} uses it: withdraw or stop that job, or wait until it is over",
    "offer": "the offer {name} has it: withdraw that offer, or give it a newer version, and delete the file then",
    "contract": "a contract for {name} needs it: delete it when that job is over",
}


def delete(session: Session, caller: Caller, file_id: str) -> File:
    """Gives up a file that nothing needs any more. Its bytes go with `remove_unnamed`, once this is committed."""
    require_uploader(caller)
    file = own_file(session, caller, file_id)
    session.refresh(file, with_for_update=True)
    if file.deleted_at is not None:
        raise MissingError(f"there is no file {file_id[:40]!r} of yours: upload it first")
    for use in uses_of(session, file.organisation_id).get(file.id, ()):
        if use.needed:
            raise ConflictError(_REMEDIES[use.kind].format(name=use.name))
    file.deleted_at = now()
    return file


def remove_unnamed(database: Database, settings: Settings, digest: str, suffix: str) -> bool:
    """Removes the bytes that no row names any more, with the names that ended jobs have for them. False where it cannot
    be done now, because somebody is uploading: the sweep does it later."""
    path = settings.file(digest, suffix)
    with database.begin() as session:  # on SQLite, from here on nobody else keeps a file
        if not database.is_sqlite and not session.scalar(
            text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": BYTES_LOCK}
        ):
            return False
        named = exists().where(File.digest == digest, File.suffix == suffix, File.deleted_at.is_(None))
        if not session.scalar(select(named)):
            _remove(settings, path)
    return True


def _remove(settings: Settings, path: Path) -> None:
    """The kept name goes last: while it is there, something is left to do."""
    with contextlib.suppress(FileNotFoundError):
        kept = path.stat()
        if kept.st_nlink > 1:
            for data in settings.jobs.glob("*/data"):
                for name in data.iterdir():
                    if os.path.samestat(name.lstat(), kept):
                        name.unlink()
        path.unlink()
