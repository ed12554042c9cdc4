"""Taking in a table: kept under its SHA-256, readable by the hub alone. What is no table is not kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from pathlib import Path
from typing import Protocol

from sqlalchemy import exists, select, text
from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.database.tables import File, Organisation
from databazaar.service.errors import ConflictError, DeniedError, InvalidError
from databazaar.service.files.looking import room_taken
from databazaar.service.outlines import outline, remember
from databazaar.service.settings import Settings

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
    draft = _drafts(settings) / secrets.token_hex(16)
    try:
        digest, size = _received(draft, settings.most_upload, shown, stream)
        suffix = suffix_of(draft)
        table = draft.rename(draft.with_name(f"{draft.name}{suffix}"))
        draft = table
        kept = settings.file(digest, suffix)
        shape = None if kept.exists() else outline(settings, table, shown, caller.organisation_id)
        _make_room(session, caller, settings, digest, size)
        if not kept.exists():
            kept.parent.mkdir(mode=0o700, exist_ok=True)
            table.rename(kept)
            _sync(kept.parent)
        if shape is not None:
            remember(kept, shape)
    finally:
        draft.unlink(missing_ok=True)
    file = File(organisation_id=caller.organisation_id, name=shown, digest=digest, suffix=suffix, size=size)
    session.add(file)
    session.flush()
    return file


def require_uploader(caller: Caller) -> None:
    """A consumer keeps its hold-out here, a provider what it offers."""
    if not ((caller.consumes and "jobs" in caller.scopes) or (caller.provides and "offers" in caller.scopes)):
        raise DeniedError("only a consumer or a provider keeps files here: use a token with the right jobs or offers")


def _make_room(session: Session, caller: Caller, settings: Settings, digest: str, size: int) -> None:
    """Refuses what is more than an organisation may keep. From here to the end of the transaction its other uploads
    wait, and nobody removes the bytes that this one counts on."""
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
