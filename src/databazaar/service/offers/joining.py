"""How a provider's site joins the federation for an offer, with the bounds of its terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEMAS = 20
"""Every consumer asks by a schema of its own, so a site of a hub lets several come."""


def join_command(policy: Mapping[str, Any]) -> str:
    """The hub keeps to the terms; a site that joins so keeps to them whatever the hub does.

    >>> join_command({"price": 5, "consumers": ["north", "south"], "most_rows": 500, "epsilon": 4.0})
    'bazaar provider join kit --data FILE --schemas 20 --consumers north,south --max-samples 500 --epsilon-cap 4'
    >>> join_command({"price": 5})
    'bazaar provider join kit --data FILE --schemas 20'
    """
    options = {
        "consumers": "--consumers",
        "models": "--models",
        "most_accesses": "--max-accesses",
        "most_rows": "--max-samples",
        "epsilon": "--epsilon-cap",
        "epsilon_per_consumer": "--max-epsilon-per-consumer",
    }
    parts = [f"bazaar provider join kit --data FILE --schemas {SCHEMAS}"]
    for name, option in options.items():
        value = policy.get(name)
        if value is not None:
            written = ",".join(value) if isinstance(value, list) else f"{value:g}" if value % 1 else int(value)
            parts.append(f"{option} {written}")
    return " ".join(parts)
