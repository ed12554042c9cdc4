"""Every refusal as one sentence: JSON for programs, a page for people."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from databazaar.errors import BazaarError
from databazaar.service.errors import ServiceError
from databazaar.service.http.pages import error_page
from databazaar.service.http.security_limits import RetryError

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


def refusal(error: BazaarError) -> JSONResponse:
    status = error.status if isinstance(error, ServiceError) else 422
    return JSONResponse({"error": str(error), "code": CODES[status]}, status)


def answer(request: Request, status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    headers = headers or {}
    if not request.url.path.startswith(PROGRAMS):
        return error_page(request, status, sentence, headers)
    return JSONResponse({"error": sentence, "code": CODES.get(status, "refused")}, status, headers)


def _of_service(request: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, ServiceError) else 422
    headers = {"Retry-After": str(error.seconds)} if isinstance(error, RetryError) else {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="databazaar"'
    return answer(request, status, str(error), headers)


def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = {404: "there is nothing here", 405: f"{request.method} is not for this address"}.get(
        error.status_code, str(error.detail)
    )
    return answer(request, error.status_code, sentence, dict(error.headers or {}))


def _of_form(request: Request, error: Exception) -> Response:
    """What was sent is not repeated: it may hold a secret."""
    assert isinstance(error, RequestValidationError)
    faults = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
    return answer(request, 422, "; ".join(faults[:5]))


def _of_database(request: Request, error: Exception) -> Response:
    return answer(request, 503, AWAY, {"Retry-After": "5"})


HANDLERS: dict[type[Exception], Callable[[Request, Exception], Response]] = {
    BazaarError: _of_service,
    HTTPException: _of_http,
    RequestValidationError: _of_form,
    OperationalError: _of_database,
}


def handle_errors(app: FastAPI) -> None:
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)


def handled(request: Request, error: Exception) -> Response | None:
    """The answer to an error that came from in front of the app; None for one that nobody has foreseen."""
    found = [handler for kind, handler in HANDLERS.items() if isinstance(error, kind)]
    return found[0](request, error) if found else None
