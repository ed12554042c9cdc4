"""What hostile parties begin from: a market of two banks, and runs of a small market, finished and not. Made once for
each process of the tests; a test spoils a copy of its own."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from databazaar.federation import pki
from hostile_folders import finished_run, stopped_run
from two_banks import SHORT, two_banks


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped_run(tmp_path_factory.mktemp("stopped"))


@pytest.fixture(scope="session")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_banks(tmp_path_factory.mktemp("banks"))


@pytest.fixture
def root(banks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pki, "KEY_BITS", SHORT)
    return Path(shutil.copytree(banks, tmp_path / "root"))


@pytest.fixture
def run_of(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a run, to be spoilt."""
    numbers = itertools.count()
    return lambda run: Path(shutil.copytree(run, tmp_path / f"run{next(numbers)}"))
