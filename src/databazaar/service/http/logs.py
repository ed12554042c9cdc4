"""One JSON line for each request: what was asked, by whom, what came of it; never a query, a header or a body."""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
import traceback
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from databazaar.service.http.context import Web
from databazaar.service.http.errors import FAULT, answer, handled
from databazaar.service.http.security import headers_of, refuse_foreign

log = logging.getLogger("databazaar.hub")
_ID = re.compile(r"[A-Za-z0-9-]{8,64}")


class LoggedRequests:
    """Gives each request an id (that of the proxy, if it brings one), refuses what is not meant for this hub, puts the
    security headers on every answer, writes it down, and answers where an endpoint has failed."""

    def __init__(self, app: ASGIApp, web: Web) -> None:
        self.app, self.web, self.headers = app, web, headers_of(web.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        state = scope.setdefault("state", {})
        began, status = time.monotonic(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        failed = ""
        try:
            refuse_foreign(scope, self.web.settings)
            await self.app(scope, receive, sent)
        except Exception as error:
            if status:
                raise
            response = handled(Request(scope), error)
            if response is None:
                failed = traceback.format_exc()
                response = answer(Request(scope), 500, FAULT)
            await response(scope, receive, sent)
        finally:
            seconds = time.monotonic() - began
            route = template(scope)
            self.web.counts.add(scope["method"], route, status, seconds)
            told: dict[str, Any] = {
                "request": request_id,
                "method": scope["method"],
                "route": route,
                "status": status,
                "ms": round(seconds * 1000, 1),
                "organisation": state.get("organisation"),
            }
            if failed:
                told["failure"] = failed
            log.log(logging.ERROR if failed else logging.INFO, "request", extra={"told": told})


def template(scope: Scope) -> str:
    """The route as it is written in the code: paths hold ids, and what nobody serves may hold anything."""
    return str(getattr(scope.get("route"), "path", "") or "none")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "told", {}),
        }
        if record.exc_info:
            line["failure"] = self.formatException(record.exc_info)
        return json.dumps(line)


def write_logs(level: int = logging.INFO) -> None:
    """Sends what the hub logs, and what uvicorn does, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.formatter.converter = time.gmtime  # type: ignore[union-attr]
    for name in ("databazaar", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
