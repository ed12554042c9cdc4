"""Settings for all tests, and what makes them small markets."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
import typer.main
import typer.testing
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from affected import affected
from browsing import close_browser
from compiled import compile_for_workers
from databazaar.aggregators import AGGREGATORS
from databazaar.federation import pki
from databazaar.market import purchase
from databazaar.payments import PAYMENTS
from databazaar.samplers import SAMPLERS
from databazaar.stops import STOPS
from databazaar.utilities import UTILITIES
from databazaar.valuation.method import METHODS
from known_fits import remember_fits
from postgres import Server, running
from processes import fork_the_forkserver
from small_markets import MakeMarket, torch_market, vector_market
from tiers import Tiers
from undrawn import undraw

collect_ignore = ["rules/acme"]  # not ours: imported by the processes that tests start
# Several threads wait for each other on a busy machine, also those of NumPy, here and in what is started.
torch.set_num_threads(1)
threadpool_limits(1)
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "LOKY_MAX_CPU_COUNT": "1"}  # joblib would ask a program for the second
settings.register_profile(
    "databazaar",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("databazaar")
purchase.SINGLES = 1  # core/test_purchase.py tries three, as is shipped; they take most of the time of a small run
pki.KEY_BITS = 2048  # the fewest that we take; those of the shipped size take ten times as long to make
# The tree of commands is made once, not for each of the thousand that the tests give in one process.
typer.main.get_command = functools.cache(typer.main.get_command)
setattr(typer.testing, "_get_command", typer.main.get_command)  # noqa: B010

fork_the_forkserver()
remember_fits()

gc.disable()  # until all is loaded, which stays: to look through torch again and again frees nothing


class OnlyExamples:
    """Modules without an example are not imported to look for one."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        found = yield
        if file_path.suffix != ".py" or b">>>" in file_path.read_bytes():
            return found
        return [one for one in found if not isinstance(one, DoctestModule)]


def pytest_configure(config: pytest.Config) -> None:
    """As plugins they are asked about every folder, not about this one alone."""
    config.pluginmanager.register(OnlyExamples())
    config.pluginmanager.register(Tiers())
    compile_for_workers(config)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000, 10, 30)  # tests keep little; to look so seldom takes a third of the time
    gc.enable()


def pytest_sessionfinish() -> None:
    close_browser()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--affected-first", action="store_true", help="begin with the tests of what has changed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no process is left alone with a long one at the end."""
    files = {item.path for item in items}
    if config.getoption("--affected-first"):
        first = affected(config.rootpath, files)
    else:
        first = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in first)


@pytest.fixture(autouse=True)
def _rules_of_one_test() -> Iterator[None]:
    """A rule that a test makes known to the process is forgotten after it."""
    registries = (SAMPLERS, AGGREGATORS, PAYMENTS, STOPS, METHODS, UTILITIES)
    before = [dict(registry._own) for registry in registries]
    yield
    for registry, known in zip(registries, before, strict=True):
        registry._own = known


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One for all tests of a worker. Its WAL is written late: a commit that does not wait for it is lost in a crash."""
    with running("-c wal_writer_delay=10s") as server:
        yield server


@pytest.fixture(scope="session")
def make_vector_market() -> MakeMarket:
    return vector_market


@pytest.fixture(scope="session")
def make_torch_market() -> MakeMarket:
    return torch_market


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have no drawings: they are not what is tested, and take longer than the market."""
    undraw(monkeypatch.setattr)


@pytest.fixture(scope="module")
def no_figures_here() -> Iterator[None]:
    """The same for all tests of a file, and what they share."""
    with pytest.MonkeyPatch.context() as patch:
        undraw(patch.setattr)
        yield
