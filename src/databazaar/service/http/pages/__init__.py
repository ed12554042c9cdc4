"""The hub in the browser."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse


def include(app: FastAPI) -> None:
    """Adds the pages' routers and their static files to the app."""


def error_page(request: Request, status: int, sentence: str, headers: dict[str, str]) -> Response:
    """What a browser is shown instead of a page. With 401 it is led to where it can sign in."""
    return PlainTextResponse(sentence, status, headers)
