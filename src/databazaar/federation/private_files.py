"""Files of a market's folder and of a provider's: for their owner alone, and whole or not there at all.

One of them has the operator's setting of how many asks of a provider may be under way at a time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError
from databazaar.files import alone, write_whole

PRIVATE = 0o600
"""The mode of keys, tokens and accounts: nobody else on the machine can read them."""
MOST_AT_ONCE = 1000
_CAPACITIES = "capacity.json"


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


def take_up(pending: Path, place: Path) -> None:
    """Put a file that lies ready in the place of another, in one step."""
    pending.replace(place)
    for folder in (place.parent, pending.parent):
        sync(folder)


def write_pair(startup: Path, name: str, certificate: str, key: bytes) -> None:
    """A certificate and its key, which nobody else can read from the first byte on."""
    write_whole(startup / f"{name}.crt", certificate.encode(), PRIVATE)
    write_whole(startup / f"{name}.key", key, PRIVATE)


def read_capacities(server: Path) -> dict[str, int]:
    """By provider; one that is not named answers one ask at a time."""
    path = server / _CAPACITIES
    if not path.exists():
        return {}
    try:
        found = {str(name): int(capacity) for name, capacity in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        found = {"": 0}
    if not all(1 <= capacity <= MOST_AT_ONCE for capacity in found.values()):
        raise BazaarError(f"{path} cannot be read: remove it, and set the capacities again")
    return found


def keep_capacity(server: Path, provider: str, capacity: int) -> None:
    """Writes one provider's; a server that is up has to be told."""
    if not 1 <= capacity <= MOST_AT_ONCE:
        raise BazaarError(f"a capacity of {capacity} is none: give a number from 1 to {MOST_AT_ONCE}")
    with alone(server / f"{_CAPACITIES}.lock"):
        write_json(server / _CAPACITIES, {**read_capacities(server), provider: capacity})
