"""Cookies of the hub: scripts cannot read them, and over TLS a browser sends them to this very host alone."""

from __future__ import annotations

from typing import Literal

from fastapi import Response

from databazaar.service.settings import Settings

SESSION, BROWSER, NOTICE, OIDC = "bazaar", "known", "notice", "bazaar-oidc"


def cookie_name(settings: Settings, name: str = SESSION) -> str:
    """With the prefix `__Host-` a browser takes the cookie over TLS alone, and from this very host."""
    return f"__Host-{name}" if settings.secure else name


def set_cookie(
    response: Response,
    settings: Settings,
    name: str,
    value: str,
    seconds: int | None = None,
    samesite: Literal["lax", "strict"] = "lax",
) -> None:
    """Other sites cannot post with it. Without `seconds` it lasts as long as the browser is open."""
    response.set_cookie(
        cookie_name(settings, name),
        value,
        max_age=seconds,
        path="/",
        secure=settings.secure,
        httponly=True,
        samesite=samesite,
    )


def delete_cookie(response: Response, settings: Settings, name: str) -> None:
    response.delete_cookie(cookie_name(settings, name), path="/", secure=settings.secure, httponly=True, samesite="lax")
