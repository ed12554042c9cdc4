"""Every refusal as one sentence: JSON for programs, a page for people."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from databazaar.errors import BazaarError
from databazaar.service.errors import ServiceError
from databazaar.service.http.pages import error_page

FAULT = "something went wrong at the hub, and the operator's log says what: try again, or name the request id to them"
AWAY = "the hub's database does not answer: try again soon"
CODES = {
    400: "bad_request",
    401: "unknown_caller",
    403: "denied",
    404: "missing",
    405: "wrong_method",
    409: "conflict",
    413: "too_large",
    421: "wrong_host",
    422: "invalid",
    429: "too_many",
    500: "fault",
    503: "unavailable",
}
PROGRAMS = ("/v1/", "/healthz", "/metrics")


def answer(request: Request, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    if not request.url.path.startswith(PROGRAMS):
        return error_page(request, status, sentence, dict(headers or {}))
    return JSONResponse({"error": sentence, "code": CODES.get(status, "refused")}, status, headers)


def handled(request: Request, error: Exception) -> Response | None:
    """The answer to an error; None for one that nobody has foreseen."""
    if isinstance(error, ServiceError):
        return answer(request, error.status, str(error), error.headers)
    if isinstance(error, BazaarError):
        return answer(request, 422, str(error))
    if isinstance(error, HTTPException):
        sentences = {404: "there is nothing here", 405: f"{request.method} is not for this address"}
        sentence = sentences.get(error.status_code, str(error.detail))
        return answer(request, error.status_code, sentence, error.headers)
    if isinstance(error, RequestValidationError):  # what was sent is not repeated: it may hold a secret
        faults = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
        return answer(request, 422, "; ".join(faults[:5]))
    if isinstance(error, OperationalError):
        return answer(request, 503, AWAY, {"Retry-After": "5"})
    return None


def handle_errors(app: FastAPI) -> None:
    for kind in (BazaarError, HTTPException, RequestValidationError, OperationalError):
        app.add_exception_handler(kind, handled)  # type: ignore[arg-type]
