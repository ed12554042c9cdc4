"""A whole market.toml that a consumer sends instead of filling in a form: its providers name offers by their slugs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from databazaar.config.limits import refuse_endless
from databazaar.errors import BazaarError
from databazaar.service.errors import InvalidError


@dataclass(frozen=True)
class Posted:
    """What `draft` needs. `files` are the names in market.toml by role, which must be uploaded with it."""

    name: str
    spec: dict[str, Any]
    files: dict[str, str]
    offers: list[str]


def from_market_toml(text: str) -> Posted:
    """The parts of a market.toml. Whether they hold is found out when they are drafted."""
    try:
        given = tomllib.loads(text)
        refuse_endless(given)
    except BazaarError as fault:
        raise InvalidError(f"market.toml: {fault}", place="market") from None
    except (ValueError, RecursionError) as fault:
        raise InvalidError(
            f"market.toml: the file is not valid TOML: {fault}: correct that line", place="market"
        ) from None
    offers = _offers(given.pop("providers", []))
    spec = {name: dict(section) if isinstance(section, Mapping) else section for name, section in given.items()}
    name = _taken(spec, "market", "name") or "market"
    _taken(spec, "consumer", "name")
    named = {
        "holdout": _taken(spec, "data", "holdout"),
        "train": _taken(spec, "consumer", "train"),
        "audit": _taken(spec, "data", "audit"),
    }
    return Posted(name, spec, {role: file for role, file in named.items() if file is not None}, offers)


def _taken(spec: dict[str, Any], section: str, setting: str) -> str | None:
    """Takes a text out of a section; a share of the hold-out, which is a number, stays."""
    inner = spec.get(section)
    if not isinstance(inner, dict) or not isinstance(inner.get(setting), str):
        return None
    value: str = inner.pop(setting)
    return value


def _offers(providers: Any) -> list[str]:
    if not isinstance(providers, list):
        raise InvalidError("market.toml: providers must be [[providers]] sections, in double brackets: correct them")
    offers = []
    for place, provider in enumerate(providers):
        id = provider.get("id") if isinstance(provider, dict) else None
        if not isinstance(id, str):
            raise InvalidError(f"market.toml: providers[{place}].id is missing: name an offer by its slug")
        if more := sorted(set(provider) - {"id"}):
            raise InvalidError(
                f"market.toml: providers[{place}].{more[0]} is what the contract with {id!r} says: leave it out"
            )
        offers.append(id)
    return offers
