"""The files that operator and provider send each other. Each is taken to come from somebody hostile.

A file is read only if it is one, and small; its fields must be of the right kind; a name can be no path.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import stat
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from databazaar.errors import BazaarError

MAX_BYTES = 1_000_000
NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,46}[a-z0-9])?")
RESERVED = frozenset({"server", "admin", "relay", "market", "localhost"})
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def _name(text: str) -> str:
    if not NAME.fullmatch(text) or text in RESERVED:
        raise ValueError
    return text


def _host(text: str) -> str:
    if not HOST.fullmatch(text):
        raise ValueError
    return text


_Name = Annotated[str, AfterValidator(_name)]
_Host = Annotated[str, AfterValidator(_host)]
_Port = Annotated[int, Field(ge=1, le=65535)]
_Hex = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{2}){32,1024}$")]
_Text = Annotated[str, Field(pattern=r"^[\x20-\x7e\r\n]*$", max_length=20_000)]


class _EnrolmentFile(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class EnrolmentMarket(_EnrolmentFile):
    """What the operator's folder says of itself; `ca` is where the authority's key was put, if not there."""

    name: _Name
    host: _Host
    port: _Port
    ca: str = ""


class KeptInvitation(_EnrolmentFile):
    """An invitation as a kit keeps it, without its secret."""

    kind: Literal["invitation"]
    market: _Name
    provider: _Name
    host: _Host
    port: _Port
    identity: _Text
    authority: _Text


class Invitation(KeptInvitation):
    secret: _Hex


class RequestFile(_EnrolmentFile):
    """What a provider sends: a first request, or one to renew."""

    kind: Literal["request", "renewal"]
    provider: _Name
    request: _Text
    proof: _Hex


class CertificateFile(_EnrolmentFile):
    kind: Literal["certificate"]
    provider: _Name
    certificate: _Text


F = TypeVar("F", bound=_EnrolmentFile)


def read_file(path: Path, kind: type[F], otherwise: str) -> F:
    """The file as that kind. `otherwise` is the sentence for one that is not."""
    try:
        found: Any = json.loads(read_small(path))
    except (OSError, ValueError, RecursionError):
        raise BazaarError(otherwise) from None
    if not isinstance(found, dict):
        raise BazaarError(otherwise)
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        if field == "kind":
            raise BazaarError(otherwise) from None
        raise BazaarError(f"the file lacks {field!r}: ask the sender for it again") from None


def read_small(path: Path) -> bytes:
    """The bytes of a plain file of moderate size. Pipes and devices, which may have no end, are not read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a plain file")
        found = file.read(MAX_BYTES + 1)
    if len(found) > MAX_BYTES:
        raise ValueError("too large")
    return found


def proof(secret: str, text: str) -> str:
    """Shows that who wrote the text holds the invitation's secret."""
    return hmac.new(bytes.fromhex(secret), text.encode(), hashlib.sha256).hexdigest()
