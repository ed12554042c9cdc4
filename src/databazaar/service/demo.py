"""A market to look at: `bazaar serve --demo`."""

from __future__ import annotations

from dataclasses import dataclass, field

from databazaar.errors import BazaarError
from databazaar.service.database.connection import Database
from databazaar.service.settings import Settings


@dataclass(frozen=True)
class DemoLink:
    """Who one can be in the demo, and the one-time link that signs in as them."""

    who: str
    link: str = field(repr=False)


def make_demo(settings: Settings, database: Database) -> list[DemoLink]:
    """Fills an empty database with a market, and says how to come in."""
    raise BazaarError("this version has no demo market yet: set one up with `bazaar serve operator`")
