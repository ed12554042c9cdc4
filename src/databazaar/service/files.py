"""Uploaded tables: kept under their SHA-256, readable by the hub alone. What is no table is not kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from pathlib import Path
from typing import Protocol

from sqlalchemy.orm import Session

from databazaar.service.caller import Caller
from databazaar.service.database.tables import File
from databazaar.service.errors import DeniedError, InvalidError, MissingError
from databazaar.service.outlines import Outline, columns_of, outline, remember
from databazaar.service.settings import Settings

__all__ = ["Outline", "columns_of", "keep", "outline", "outline_of", "own_file", "path_of", "shown_name", "suffix_of"]
PIECE = 2**20
STALE = 24 * 3600.0
"""Seconds after which an upload that nobody finished is removed."""
LONGEST_NAME = 200


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def keep(session: Session, caller: Caller, settings: Settings, name: str, stream: Readable) -> File:
    """Takes in a table piece by piece. The database is touched only once the file is there in full."""
    _require_uploader(caller)
    shown = shown_name(name)
    draft = _drafts(settings) / secrets.token_hex(16)
    try:
        digest, size = _received(draft, settings.most_upload, shown, stream)
        suffix = suffix_of(draft)
        table = draft.rename(draft.with_name(f"{draft.name}{suffix}"))
        draft = table
        kept = settings.file(digest, suffix)
        if not kept.exists():
            shape = outline(table, shown, caller.organisation_id)
            kept.parent.mkdir(mode=0o700, exist_ok=True)
            table.rename(kept)
            _sync(kept.parent)
            remember(kept, shape)
    finally:
        draft.unlink(missing_ok=True)
    file = File(organisation_id=caller.organisation_id, name=shown, digest=digest, suffix=suffix, size=size)
    session.add(file)
    session.flush()
    return file


def _require_uploader(caller: Caller) -> None:
    """A consumer keeps its hold-out here, a provider what it offers."""
    if not ((caller.consumes and "jobs" in caller.scopes) or (caller.provides and "offers" in caller.scopes)):
        raise DeniedError("only a consumer or a provider keeps files here: use a token with the right jobs or offers")


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


def own_file(session: Session, caller: Caller, file_id: str) -> File:
    file = session.get(File, file_id)
    if file is None or file.organisation_id != caller.organisation_id:
        raise MissingError(f"there is no file {file_id[:40]!r} of yours: upload it first")
    return file


def path_of(settings: Settings, file: File) -> Path:
    """Where the hub has it."""
    return settings.file(file.digest, file.suffix)


def outline_of(settings: Settings, file: File) -> Outline:
    """What is shown of a kept table, which is read once for all who ask."""
    path = path_of(settings, file)
    found = outline(path, file.name, file.organisation_id)
    remember(path, found)
    return found
