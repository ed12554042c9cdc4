"""An organisation's files: what they are used for, how much room they take, and how they are deleted."""

from __future__ import annotations

from fastapi import APIRouter, Response

from databazaar.service import files
from databazaar.service.errors import DeniedError
from databazaar.service.http.pages.visits import Posted, Visit, Visiting
from databazaar.service.hub.sweeper import ABANDONED

router = APIRouter(include_in_schema=False, prefix="/files")
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@router.get("")
def own_files(visit: Visiting) -> Response:
    _require_keeper(visit)
    with visit.read() as session:
        return visit.render(
            "files",
            "Files",
            kept=files.own_files(session, visit.caller),
            taken=size_in_words(files.room_taken(session, visit.caller.organisation_id)),
            quota=size_in_words(visit.settings.quota),
            keep_days=visit.settings.keep_days,
            abandoned=ABANDONED.days,
            size=size_in_words,
        )


def _require_keeper(visit: Visit) -> None:
    if not (visit.caller.consumes or visit.caller.provides):
        raise DeniedError("only consumers and providers keep files here")


@router.post("/{file_id}/delete")
def delete(visit: Visiting, _: Posted, file_id: str) -> Response:
    with visit.refusals() as refused, visit.begin() as session:
        file = files.delete(session, visit.caller, file_id)
    if refused:
        return visit.see("/files", refused[0], kind="bad")
    files.remove_unnamed(visit.web.database, visit.settings, file.digest, file.suffix)
    return visit.see("/files", f"{file.name} is deleted.")


def size_in_words(size: float) -> str:
    """
    >>> size_in_words(0), size_in_words(1023), size_in_words(1536), size_in_words(10 * 2**30)
    ('0 bytes', '1,023 bytes', '1.5 KiB', '10.0 GiB')
    """
    if size < 1024:
        return f"{size:,.0f} bytes"
    for unit in UNITS[1:]:
        size /= 1024
        if size < 1024 or unit == UNITS[-1]:
            break
    return f"{size:,.1f} {unit}"
