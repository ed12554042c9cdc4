"""Uploaded tables: a provider's data, a consumer's hold-out. What was uploaded is not given out again."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from databazaar.service import files
from databazaar.service.http.api.calls import Asking, Sending, file_of
from databazaar.service.http.api.shapes import Shown
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
