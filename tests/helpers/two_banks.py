"""A market with two members, bank1 and bank2, without a server that is up."""

from __future__ import annotations

from pathlib import Path

from databazaar.federation import enrolment
from loopback import free_port


def two_banks(root: Path) -> Path:
    """Its folder is `market`, their kits are `bank1` and `bank2`."""
    market = enrolment.init_market(root / "market", "fraud", "localhost", free_port()).folder
    for name in ("bank1", "bank2"):
        asked = enrolment.request(enrolment.invite(market, name), root / name)
        enrolment.complete(root / name, enrolment.sign(market, asked))
    return root
