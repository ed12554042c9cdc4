"""Uploaded tables: a provider's data, a consumer's hold-out. What was uploaded is not given out again."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session
from starlette.datastructures import UploadFile

from databazaar.client import shapes
from databazaar.client.conversion import from_row
from databazaar.service import files
from databazaar.service.database.tables import File
from databazaar.service.errors import ConflictError, InvalidError, MissingError
from databazaar.service.http.calls import ApiCall
from databazaar.service.http.context import Call
from databazaar.service.http.forms import Form
from databazaar.service.http.pages import PageContext
from databazaar.service.http.routes import Routes
from databazaar.service.hub.sweeper import ABANDONED

routes = Routes("files")
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def multipart(required: str, **properties: Any) -> dict[str, Any]:
    """How the API's description tells a form with files."""
    schema = {"type": "object", "required": [required], "properties": properties}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


@routes.page("/files", "files", "Files", role="member", menu=("Your organisation", "Files", 3))
def files_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {
        "kept": files.own_files(session, page.caller),
        "taken": size_in_words(files.room_taken(session, page.caller.organisation_id)),
        "quota": size_in_words(page.settings.quota),
        "keep_days": page.settings.keep_days,
        "abandoned": ABANDONED.days,
        "size": size_in_words,
    }


@routes.listing("/files", shapes.FileUses)
def own_files(call: Call, session: Session) -> list[shapes.FileUses]:
    """One's own files, the newest first."""
    return [
        from_row(shapes.FileUses, kept.file, uses=[from_row(shapes.FileUse, use) for use in kept.uses])
        for kept in files.own_files(session, call.caller)
    ]


@routes.form("/files/{file_id}/delete", "/files", "{made.name} is deleted.")
@routes.write("/files/{file_id}", shapes.DeletedFile, method="DELETE")
def delete_file(call: Call, session: Session, file_id: str) -> File:
    """Deletes a file that no open offer, no contract under way and no unfinished job needs."""
    file = files.delete(session, call.caller, file_id)
    call.after.append(lambda: files.remove_unnamed(call.web.database, call.settings, file.digest, file.suffix))
    return file


@routes.write(
    "/files",
    shapes.File,
    201,
    late=True,
    uploads=True,
    openapi_extra=multipart("file", file={"type": "string", "format": "binary"}),
)
def upload_file(call: ApiCall, session: Session) -> File:
    """Uploads a table, CSV or Parquet, as the form's `file`."""
    part = call.form.get("file") if call.form is not None else None
    if not isinstance(part, UploadFile):
        raise InvalidError("the form has no file 'file': send one")
    return files.keep(session, call.caller, call.settings, part.filename or "", part.file)


@routes.read("/files/{file_id}", shapes.FileColumns)
def file_columns(call: Call, session: Session, file_id: str) -> shapes.FileColumns:
    """A file of one's own: its columns, never its values."""
    call.caller.require("read")
    file = files.own_file(session, call.caller, file_id)
    outline = files.outline_of(call.settings, file)
    return from_row(shapes.FileColumns, file, rows=outline.rows, columns=outline.columns)


def receive(page: PageContext, form: Form, name: str, *, needed: bool = False) -> str:
    """The id of the file of this field, sent now or with the try before, or nothing; `form.kept` has the file."""
    sent = form.uploads(name)
    try:
        if sent:
            with page.begin() as session:
                form.kept[name] = files.keep(session, page.caller, page.settings, *sent[0])
        elif before := form.text(f"{name}_id"):
            with page.read() as session:
                form.kept[name] = files.own_file(session, page.caller, before)
        elif needed:
            form.blame(name, "no file was chosen: choose a CSV or Parquet file")
    except MissingError:
        form.blame(name, "the file is not here any more: choose it again")
    except (InvalidError, ConflictError) as error:
        form.blame(name, str(error))
    return form.kept[name].id if name in form.kept else ""


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
