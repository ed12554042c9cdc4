"""A market with two members, bank1 and bank2, without a server that is up."""

from __future__ import annotations

from pathlib import Path

from databazaar.federation import onboarding
from loopback import free_port


def two_banks(root: Path) -> Path:
    """Its folder is `market`, their kits are `bank1` and `bank2`."""
    market = onboarding.init_market(root / "market", "fraud", "localhost", free_port()).folder
    for name in ("bank1", "bank2"):
        asked = onboarding.request(onboarding.invite(market, name), root / name)
        onboarding.complete(root / name, onboarding.sign(market, asked))
    return root
