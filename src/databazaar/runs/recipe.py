"""What run.json says of a run, held against what its ledger says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from databazaar.ledger import Terms


def contradicts(recipe: Mapping[str, Any], terms: Terms) -> bool:
    """Whether a recipe names another market, consumer or data than the terms. What either does not say is no
    contradiction: a run from Python has no market.toml."""
    market: Mapping[str, Any] = recipe.get("market", {})
    names = (recipe.get("title"), market.get("market", {}).get("name"))
    if terms.market and any(name not in (None, terms.market) for name in names):
        return True
    if terms.consumer and market and (market.get("consumer") or {}).get("name") != terms.consumer:
        return True
    return bool(terms.data and market and recipe.get("digests") != terms.data)


def readable_recipe(content: bytes) -> dict[str, Any]:
    """The recipe that run.json holds. What has another shape than ours is a ValueError."""
    recipe = json.loads(content)
    tables = [recipe, recipe.get("market", {})] if isinstance(recipe, dict) else [recipe]
    if all(isinstance(table, dict) for table in tables):
        market = tables[1]
        tables += [market.get(name, {}) for name in ("market", "data", "ledger")] + [market.get("consumer") or {}]
    if not all(isinstance(table, dict) for table in tables):
        raise ValueError("run.json is no recipe")
    found: dict[str, Any] = recipe
    return found
