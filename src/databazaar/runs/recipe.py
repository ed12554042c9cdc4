"""What run.json says of a run, and where it lets the ledger be. The URL of a database is the user's to say, and no
folder's; passwords are not written down."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from databazaar.errors import BazaarError
from databazaar.ledger import Terms

VARIABLE = "DATABAZAAR_LEDGER_URL"
SECRETS = ("password", "passwd", "pwd", "secret", "token")
"""What the name of a URL's setting holds where its value is not to be written down."""


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
    return dict(recipe)


def without_password(url: str) -> str:
    """The URL as it may stand in a file.

    >>> without_password("postgresql://ann:secret@host/db?sslpassword=secret&sslmode=require")
    'postgresql://ann@host/db?sslmode=require'
    """
    parsed = _parsed(url)
    kept = {name: value for name, value in parsed.query.items() if not any(word in name.lower() for word in SECRETS)}
    bare = parsed._replace(password=None, query=kept)
    return str(bare.render_as_string(hide_password=False))


def server_url(url: str) -> str:
    """The same URL, where it is that of a server."""
    if _parsed(url).get_backend_name() == "sqlite":
        raise BazaarError(
            "the ledger's URL names SQLite, whose file every run has in its own folder: leave the URL out, or give a "
            "server's"
        )
    return url


def without_passwords(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe as it is written down: both places that hold the URL of market.toml lose its password."""
    if not recipe.get("ledger_url"):
        return recipe
    bare = without_password(recipe["ledger_url"])
    market = recipe.get("market")
    if market is not None:
        market = {**market, "ledger": {**market["ledger"], "url": bare}}
    return {**recipe, "ledger_url": bare, **({} if market is None else {"market": market})}


def agreed_url(named: object, given: str | None, folder: object) -> str | None:
    """Where to find the ledger of a folder that names a database: there only if the user has said so too. None is the
    folder's own file. `given` comes from the command line, else the environment is asked."""
    if not named:
        if given is not None:
            raise BazaarError(f"the ledger of {folder} is a file in that folder: leave --ledger out")
        return None
    url = given or os.environ.get(VARIABLE)
    if url is None:
        raise BazaarError(
            f"the ledger of {folder} is in a database, {_shown(named)}: give its URL with --ledger or in {VARIABLE}, "
            "because nothing is sent to a place that only a folder names"
        )
    return server_url(url)


def _shown(named: object) -> str:
    try:
        return ascii(without_password(str(named)))[:200]
    except BazaarError:
        return ascii(named)[:20]


def _parsed(url: str) -> Any:
    import sqlalchemy as sa

    try:
        return sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise BazaarError(
            "the ledger's URL cannot be read: write it as postgresql+psycopg://user@host:5432/name"
        ) from None
