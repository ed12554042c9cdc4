"""Settings for all tests, and what makes them small markets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, settings

from small_markets import MakeMarket, torch_market, vector_market

torch.set_num_threads(1)
settings.register_profile(
    "databazaar",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("databazaar")
collect_ignore = ["rules/acme"]  # a package outside ours: collecting it would install it for every test


@pytest.fixture(scope="session")
def make_vector_market() -> MakeMarket:
    return vector_market


@pytest.fixture(scope="session")
def make_torch_market() -> MakeMarket:
    return torch_market
