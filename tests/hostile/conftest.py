"""What hostile parties begin from: a market of two banks, and runs of a small market, finished and not. Made once for
each process of the tests; a test spoils a copy of its own."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hostile_folders import finished_run, stopped_run
from signed_parties import SignedParties
from two_banks import two_banks


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
def root(banks: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(banks, tmp_path / "root"))


@pytest.fixture
def run_of(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a run, to be spoilt."""
    numbers = itertools.count()
    return lambda run: Path(shutil.copytree(run, tmp_path / f"run{next(numbers)}"))


@pytest.fixture(scope="session")
def signing(tmp_path_factory: pytest.TempPathFactory) -> SignedParties:
    return SignedParties(tmp_path_factory.mktemp("signing"))


@pytest.fixture
def parties(signing: SignedParties) -> Iterator[SignedParties]:
    """Providers that sign what they answer, and have kept nothing yet."""
    yield signing
    signing.forget()
