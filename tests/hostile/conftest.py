"""A market with two members, made once and copied by every test that changes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from loopback import free_port

from databazaar.federation import onboarding


@pytest.fixture(scope="session")
def made_market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made")
    market = onboarding.init_market(root / "market", "fraud", "localhost", free_port()).folder
    for name in ("bank1", "bank2"):
        asked = onboarding.request(onboarding.invite(market, name), root / name)
        onboarding.complete(root / name, onboarding.sign(market, asked))
    return root


@pytest.fixture
def root(made_market: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_market, tmp_path / "root"))
