"""Uploaded tables: a provider's data, a consumer's hold-out. What was uploaded is not given out again."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fastapi import APIRouter, Response
from pydantic import Field
from sqlalchemy.orm import Session

from databazaar.service import files
from databazaar.service.database.tables import File
from databazaar.service.http.api.calls import Asking, Doing, Sending, file_of
from databazaar.service.http.api.shapes import After, Limit, Page, Shown, paged
from databazaar.service.http.security_bodies import takes_uploads

router = APIRouter(prefix="/v1", tags=["files"])
UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}


class FileShown(Shown):
    """`digest` is the SHA-256 of the file."""

    id: str
    name: str
    digest: str
    size: int
    created_at: dt.datetime


class FileColumns(FileShown):
    """With the names and kinds of its columns."""

    rows: int
    columns: list[dict[str, Any]]


class UseShown(Shown):
    """What a file is, or was, used for: a job, an offer, or a contract about that offer."""

    kind: str
    id: str
    name: str
    needed: bool = Field(description="Whether it still is: then the file cannot be deleted.")


class FileUses(FileShown):
    """With what it is used for."""

    uses: list[UseShown]


class DeletedFile(FileShown):
    deleted_at: dt.datetime


@router.get("/files", response_model=Page[FileUses])
def own_files(call: Asking, after: After = None, limit: Limit = 100) -> Page[FileUses]:
    """One's own files, the newest first."""
    with call.read() as session:
        found = files.own_files(session, call.caller)
        return paged(found, after, limit, _with_uses, lambda kept: kept.file.id)


def _with_uses(kept: files.Kept) -> FileUses:
    uses = [UseShown.model_validate(use) for use in kept.uses]
    return FileUses(**FileShown.model_validate(kept.file).model_dump(), uses=uses)


@router.delete("/files/{file_id}", response_model=DeletedFile)
def delete_file(file_id: str, call: Doing) -> Response:
    """Deletes a file that no open offer, no contract under way and no unfinished job needs."""

    deleted: list[File] = []

    def deed(session: Session) -> DeletedFile:
        deleted.append(files.delete(session, call.caller, file_id))
        return DeletedFile.model_validate(deleted[0])

    response = call.do(deed)
    for file in deleted:
        files.remove_unnamed(call.web.database, call.settings, file.digest, file.suffix)
    return response


@router.post("/files", response_model=FileShown, status_code=201, openapi_extra=UPLOAD)
@takes_uploads
def upload_file(call: Sending) -> Response:
    """Uploads a table, CSV or Parquet, as the form's `file`."""

    def deed(session: Session) -> FileShown:
        part = file_of(call.form, "file")
        return FileShown.model_validate(files.keep(session, call.caller, call.settings, part.filename or "", part.file))

    return call.do(deed, 201, late=True)


@router.get("/files/{file_id}", response_model=FileColumns)
def file_columns(file_id: str, call: Asking) -> FileColumns:
    """A file of one's own: its columns, never its values."""
    call.caller.require("read")
    with call.read() as session:
        file = files.own_file(session, call.caller, file_id)
    outline = files.outline_of(call.settings, file)
    return FileColumns(**FileShown.model_validate(file).model_dump(), rows=outline.rows, columns=outline.columns)
