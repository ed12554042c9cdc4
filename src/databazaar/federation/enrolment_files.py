"""Files of a market's folder and of a provider's kit, and those that operator and provider send each other.

What is written is for its owner alone, and whole or not there at all. What is read may come from somebody hostile: a
file is read only if it is one, and small; its fields must be of the right kind; a name can be no path.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from databazaar.errors import BazaarError
from databazaar.files import alone, read_plain, write_whole

PRIVATE = 0o600
"""The mode of keys, tokens and accounts: nobody else on the machine can read them."""
MOST_AT_ONCE = 1000
_CAPACITIES = "capacity.json"
MAX_BYTES = 1_000_000
NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,46}[a-z0-9])?")
RESERVED = frozenset({"server", "admin", "relay", "market", "localhost"})
HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def _name(text: str) -> str:
    if not NAME.fullmatch(text) or text in RESERVED:
        raise ValueError
    return text


_Name = Annotated[str, AfterValidator(_name)]
_Host = Annotated[str, Field(pattern=f"^{HOST.pattern}$")]
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
        return kind.model_validate_json(read_small(path))
    except ValidationError as error:
        field = next(iter(error.errors()[0]["loc"]), "kind")
        if field == "kind":
            raise BazaarError(otherwise) from None
        raise BazaarError(f"the file lacks {field!r}: ask the sender for it again") from None
    except (OSError, ValueError, BazaarError):
        raise BazaarError(otherwise) from None


def read_small(path: Path) -> bytes:
    """The bytes of a plain file of moderate size. Pipes and devices, which may have no end, are not read."""
    return read_plain(Path(os.path.realpath(path)), most=MAX_BYTES)


def proof(secret: str, text: str) -> str:
    """Shows that who wrote the text holds the invitation's secret."""
    return hmac.new(bytes.fromhex(secret), text.encode(), hashlib.sha256).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Writes a file that only its owner can read, whole or not at all."""
    write_whole(path, json.dumps(value, indent=2, sort_keys=True).encode() + b"\n", PRIVATE)


def make_folder(folder: Path) -> None:
    """A folder for its owner alone, there also after a power cut. One that leads elsewhere is not taken."""
    if folder.is_symlink():
        raise BazaarError(f"{folder} is a link to another place: give a folder of its own")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync(folder.parent)
    except OSError as reason:
        raise BazaarError(f"{folder} cannot be made ({reason.strerror}): choose another place") from None


def sync(folder: Path) -> None:
    """What was put into a folder, or taken out of it, stays so after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stamps(*files: Path) -> list[tuple[int, int]]:
    """What changes when a file is replaced."""
    found = (file.stat() if file.exists() else None for file in files)
    return [(0, 0) if stat is None else (stat.st_ino, stat.st_mtime_ns) for stat in found]


_CAPACITY = TypeAdapter(dict[str, Annotated[int, Field(ge=1, le=MOST_AT_ONCE)]])


def read_capacities(server: Path) -> dict[str, int]:
    """By provider; one that is not named answers one ask at a time."""
    path = server / _CAPACITIES
    try:
        return _CAPACITY.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise BazaarError(f"{path} cannot be read: remove it, and set the capacities again") from None


def keep_capacity(server: Path, provider: str, capacity: int) -> None:
    """Writes one provider's; a server that is up has to be told."""
    if not 1 <= capacity <= MOST_AT_ONCE:
        raise BazaarError(f"a capacity of {capacity} is none: give a number from 1 to {MOST_AT_ONCE}")
    with alone(server / f"{_CAPACITIES}.lock"):
        write_json(server / _CAPACITIES, {**read_capacities(server), provider: capacity})
