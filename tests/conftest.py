"""Settings for all tests, and what makes them small markets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

from databazaar.aggregators import AGGREGATORS
from databazaar.engines.stacks import STACKS
from databazaar.payments import PAYMENTS
from databazaar.samplers import SAMPLERS
from databazaar.stops import STOPS
from databazaar.valuation.method import METHODS
from small_markets import MakeMarket, torch_market, vector_market

collect_ignore = ["rules/acme"]  # not ours: imported by the processes that tests start
torch.set_num_threads(1)
settings.register_profile(
    "databazaar",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("databazaar")


@pytest.fixture(autouse=True)
def _rules_of_one_test() -> Iterator[None]:
    """A rule that a test makes known to the process is forgotten after it."""
    registries = (SAMPLERS, AGGREGATORS, PAYMENTS, STOPS, METHODS, STACKS)
    before = [dict(registry._own) for registry in registries]
    yield
    for registry, known in zip(registries, before, strict=True):
        registry._own = known


@pytest.fixture(scope="session")
def make_vector_market() -> MakeMarket:
    return vector_market


@pytest.fixture(scope="session")
def make_torch_market() -> MakeMarket:
    return torch_market
