"""What pages load: our style and scripts, those of others, and the reports' style. All of it comes from this host."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

from fastapi import APIRouter, Response

from databazaar.service.errors import MissingError

router = APIRouter(include_in_schema=False)
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain", "md": "text/plain"}
FOR_A_YEAR, ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"


class Served(NamedTuple):
    content: bytes
    kind: str
    version: str


@cache
def served() -> dict[str, Served]:
    """Every static file by its path below /static."""
    ours = resources.files("databazaar.service.http").joinpath("static")
    files = {item.name: item for item in ours.iterdir() if item.is_file()}
    files |= {f"vendor/{item.name}": item for item in ours.joinpath("vendor").iterdir()}
    files["report.css"] = resources.files("databazaar.reports").joinpath("report.css")
    found = {}
    for name, item in files.items():
        content = item.read_bytes()
        found[name] = Served(content, TYPES[name.rpartition(".")[2]], hashlib.sha256(content).hexdigest()[:12])
    return found


def static(name: str) -> str:
    """The address of a file, which changes with its content: browsers keep it until then.

    >>> static("app.css").partition("?v=")[0]
    '/static/app.css'
    """
    return f"/static/{name}?v={served()[name].version}"


@router.get("/static/{name:path}")
def static_file(name: str, v: str = "") -> Response:
    if name not in served():
        raise MissingError("there is no such file here")
    file = served()[name]
    headers = {"Cache-Control": FOR_A_YEAR if v == file.version else ASK_AGAIN}
    return Response(file.content, media_type=file.kind, headers=headers)
