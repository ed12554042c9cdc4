"""Why the service says no: each is one sentence with its remedy, and has an HTTP status of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from databazaar.errors import BazaarError


class ServiceError(BazaarError):
    """A request that cannot be done as it was made. `headers` go with the answer."""

    status: ClassVar[int] = 400
    headers: Mapping[str, str] = {}


class InvalidError(ServiceError):
    """What was sent is not what is asked for."""

    status = 422


class UnknownCallerError(ServiceError):
    """Nobody known has asked: sign in, or send a token that holds."""

    status = 401
    headers: Mapping[str, str] = {"WWW-Authenticate": 'Bearer realm="databazaar"'}


class DeniedError(ServiceError):
    """The caller is known, and may not do this."""

    status = 403


class MissingError(ServiceError):
    """There is no such thing, or it is another organisation's: the two look alike from outside."""

    status = 404


class ConflictError(ServiceError):
    """It cannot be done in the state that it is in now."""

    status = 409


class TooManyError(ServiceError):
    """Too many requests in too short a time."""

    status = 429


@contextmanager
def as_invalid(where: str = "") -> Iterator[None]:
    """Refuses what the library finds wrong with what was sent, in its own words."""
    try:
        yield
    except BazaarError as fault:
        raise InvalidError(f"{where}{fault}", place=fault.place) from None
