"""How many asks of a provider may be under way at a time: the operator's setting, in a file of the server's folder."""

from __future__ import annotations

import json
from pathlib import Path

from databazaar.errors import BazaarError
from databazaar.federation.kits import write_json
from databazaar.files import alone

MOST = 1000
_FILE = "capacity.json"


def read_capacities(server: Path) -> dict[str, int]:
    """By provider; one that is not named answers one ask at a time."""
    path = server / _FILE
    if not path.exists():
        return {}
    try:
        found = {str(name): int(capacity) for name, capacity in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        found = {"": 0}
    if not all(1 <= capacity <= MOST for capacity in found.values()):
        raise BazaarError(f"{path} cannot be read: remove it, and set the capacities again")
    return found


def keep_capacity(server: Path, provider: str, capacity: int) -> None:
    """Writes one provider's; a server that is up has to be told."""
    if not 1 <= capacity <= MOST:
        raise BazaarError(f"a capacity of {capacity} is none: give a number from 1 to {MOST}")
    with alone(server / f"{_FILE}.lock"):
        write_json(server / _FILE, {**read_capacities(server), provider: capacity})
