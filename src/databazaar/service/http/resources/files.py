"""Files: uploaded tables, which are not given out again, and what a job leaves behind: the model, the statement, the
report."""

from __future__ import annotations

import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Literal

from fastapi import Response
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session
from starlette.datastructures import UploadFile

from databazaar.client import shapes
from databazaar.files import open_plain, read_plain
from databazaar.runs.model_folder import CARD, README, SCHEMA, WEIGHTS
from databazaar.service import files, jobs
from databazaar.service.database.tables import File, Job
from databazaar.service.errors import ConflictError, InvalidError, MissingError, TooManyError
from databazaar.service.http.calls import Reading
from databazaar.service.http.context import Call
from databazaar.service.http.forms import Form
from databazaar.service.http.pages import PageContext
from databazaar.service.http.routes import Routes
from databazaar.service.hub import children
from databazaar.service.hub.folder import write_page_in
from databazaar.service.hub.sweeper import ABANDONED
from databazaar.service.lifecycle import OVER, JobState

routes = Routes("files")
PIECE, IN_MEMORY, LARGEST_PAGE = 2**18, 2**22, 2**28
PATIENCE = 600.0
"""Seconds in which a report is drawn."""
LONG_AGO = (2000, 1, 1, 0, 0, 0)
"""The same model gives the same bytes."""
ALONE = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; font-src data:; frame-ancestors 'none'"
)
"""A report brings its own style and script, and is shown as if it came from nowhere: it can do nothing here."""
_drawing = threading.Lock()


def multipart(required: str, **properties: Any) -> dict[str, Any]:
    """How the API's description tells a form with files."""
    schema = {"type": "object", "required": [required], "properties": properties}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


@routes.page("/files", "files", "Files", role="member", menu=("Your organisation", 3))
def files_page(page: PageContext, session: Session) -> dict[str, Any]:
    return {
        "kept": files.own_files(session, page.caller),
        "taken": files.room_taken(session, page.caller.organisation_id),
        "quota": page.settings.quota,
        "keep_days": page.settings.keep_days,
        "abandoned": ABANDONED.days,
    }


routes.listing("/files", shapes.FileUses)(files.own_files)


@routes.form("/files/{file_id}/delete", "{made.name} is deleted.", "/files")
@routes.write("/files/{file_id}", shapes.File, method="DELETE")
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
def upload_file(call: Call, session: Session) -> File:
    """Uploads a table, CSV or Parquet, as the form's `file`."""
    part = call.posted.get("file")
    if not isinstance(part, UploadFile):
        raise InvalidError("the form has no file 'file': send one")
    return files.keep(session, call.caller, call.settings, part.filename or "", part.file)


@routes.read("/files/{file_id}", shapes.FileColumns)
def file_columns(call: Call, session: Session, file_id: str) -> shapes.FileColumns:
    """A file of one's own: its columns, never its values."""
    call.caller.require("read")
    return shapes.FileColumns.of(files.own_file(session, call.caller, file_id))


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


@routes.api.get("/jobs/{job_id}/model", responses={200: {"content": {"application/zip": {}}}})
def download_model(job_id: str, call: Reading) -> Response:
    """The model as a zip, once the job is over. For its consumer alone."""
    job = _finished(call, job_id)
    if job.organisation_id != call.caller.organisation_id:
        raise MissingError("there is no such model: it is its consumer's alone")
    folder = _run(call, job) / "model"
    if not (folder / WEIGHTS).is_file():
        raise ConflictError("this job has no model: it ended before its first round")
    with ExitStack() as stack:
        packed = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=IN_MEMORY))
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in (WEIGHTS, CARD, SCHEMA, README):
                _pack(archive, folder, name)
        size = packed.tell()
        packed.seek(0)
        stack.pop_all()  # the sender closes it
    headers = {"Content-Disposition": f'attachment; filename="model-{job.id}.zip"', "Content-Length": str(size)}
    return StreamingResponse(_pieces(packed), media_type="application/zip", headers=headers)


@routes.api.get("/jobs/{job_id}/statement.json", responses={200: {"content": {"application/json": {}}}})
def download_statement(job_id: str, call: Reading) -> Response:
    """The revenue statement, once the job is over."""
    return _written(call, job_id, "statement.json", "application/json")


@routes.api.get("/jobs/{job_id}/statement.csv", responses={200: {"content": {"text/csv": {}}}})
def download_statement_csv(job_id: str, call: Reading) -> Response:
    """The revenue statement as CSV, once the job is over."""
    return _written(call, job_id, "statement.csv", "text/csv")


@routes.api.get("/jobs/{job_id}/report.html", responses={200: {"content": {"text/html": {}}}})
def download_report(job_id: str, call: Reading) -> Response:
    """The report, one page that opens offline, once the job is over."""
    response = _written(call, job_id, "report.html", "text/html")
    response.headers["Content-Security-Policy"] = ALONE
    return response


def _finished(call: Call, job_id: str) -> Job:
    with call.read() as session:
        job = jobs.own_job(session, call.caller, job_id)
    if JobState(job.state) not in OVER:
        raise ConflictError(f"the job is {job.state}: its model, statement and report are there when it is over")
    return job


def _run(call: Call, job: Job) -> Path:
    folder = call.settings.run_folder(job.id)
    if not folder.is_dir():
        where = "it was never played" if job.mode == "hosted" else "its run is with its consumer's own arbiter"
        raise ConflictError(f"there is nothing to download of this job: {where}")
    return folder


def _written(
    call: Call, job_id: str, name: Literal["statement.json", "statement.csv", "report.html"], kind: str
) -> Response:
    """A page of the run's folder. Its runner writes it; where that could not, it is written now."""
    folder = _run(call, _finished(call, job_id))
    if not (folder / name).is_file():
        _write_pages(folder)
    try:
        content = read_plain(folder / name, folder, LARGEST_PAGE)
    except FileNotFoundError:
        raise ConflictError(f"{name} could not be made: the run has no round") from None
    named = f'{"inline" if kind == "text/html" else "attachment"}; filename="{job_id}-{name}"'
    return Response(content, media_type=kind, headers={"Content-Disposition": named})


def _write_pages(folder: Path) -> None:
    """In a process of its own, and one at a time: figures take memory. Nobody waits for another's."""
    if not _drawing.acquire(blocking=False):
        raise TooManyError("the hub is drawing another report: try again in a minute")
    try:
        process = children.start(write_page_in, (folder,), f"report-{folder.parent.name}")
        process.join(PATIENCE)
        late = process.is_alive()
        process.kill()
        process.join()
        if late:
            raise ConflictError("the report takes too long to draw: ask the operator for it")
    finally:
        _drawing.release()


def _pack(archive: zipfile.ZipFile, folder: Path, name: str) -> None:
    """A plain file of the folder and no link; one that is not there is left out."""
    try:
        source = open_plain(folder / name, folder)
    except FileNotFoundError:
        return
    entry = zipfile.ZipInfo(f"model/{name}", LONG_AGO)
    entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
    with source, archive.open(entry, "w", force_zip64=True) as target:
        shutil.copyfileobj(source, target, PIECE)


def _pieces(packed: BinaryIO | tempfile.SpooledTemporaryFile[bytes]) -> Iterator[bytes]:
    with packed:
        while piece := packed.read(PIECE):
            yield piece
