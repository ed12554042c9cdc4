"""Uploaded tables: a provider's data, a consumer's hold-out. What was uploaded is not given out again."""

from __future__ import annotations

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import files
from databazaar.service.database.tables import File
from databazaar.service.http.api.calls import Asking, Doing, Sending, file_of
from databazaar.service.http.api.shapes import After, Limit, Page, paged
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


@router.get("/files", response_model=Page[shapes.FileUses])
def own_files(call: Asking, after: After = None, limit: Limit = 100) -> Page[shapes.FileUses]:
    """One's own files, the newest first."""
    with call.read() as session:
        found = [
            from_row(shapes.FileUses, kept.file, uses=[from_row(shapes.FileUse, use) for use in kept.uses])
            for kept in files.own_files(session, call.caller)
        ]
        return paged(shapes.FileUses, found, after, limit)


@router.delete("/files/{file_id}", response_model=shapes.DeletedFile)
def delete_file(file_id: str, call: Doing) -> Response:
    """Deletes a file that no open offer, no contract under way and no unfinished job needs."""

    deleted: list[File] = []

    def deed(session: Session) -> File:
        deleted.append(files.delete(session, call.caller, file_id))
        return deleted[0]

    response = call.do(shapes.DeletedFile, deed)
    for file in deleted:
        files.remove_unnamed(call.web.database, call.settings, file.digest, file.suffix)
    return response


@router.post("/files", response_model=shapes.File, status_code=201, openapi_extra=UPLOAD)
@takes_uploads
def upload_file(call: Sending) -> Response:
    """Uploads a table, CSV or Parquet, as the form's `file`."""

    def deed(session: Session) -> File:
        part = file_of(call.form, "file")
        return files.keep(session, call.caller, call.settings, part.filename or "", part.file)

    return call.do(shapes.File, deed, 201, late=True)


@router.get("/files/{file_id}", response_model=shapes.FileColumns)
def file_columns(file_id: str, call: Asking) -> shapes.FileColumns:
    """A file of one's own: its columns, never its values."""
    call.caller.require("read")
    with call.read() as session:
        file = files.own_file(session, call.caller, file_id)
    outline = files.outline_of(call.settings, file)
    return from_row(shapes.FileColumns, file, rows=outline.rows, columns=outline.columns)
