"""With the default rules the models are, to the last bit, those of the first version."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pinned_markets as markets
import pytest

HERE = Path(__file__).parent
NOTED = json.loads((HERE / "hashes.json").read_text())


@pytest.mark.parametrize("name", markets.MARKETS)
def test_the_model_is_the_one_that_was_noted_down(name: str) -> None:
    """On a machine whose arithmetic differs in the last bit the hash is another, so there the numbers count."""
    noted = NOTED["markets"][name]
    report, params = markets.MARKETS[name]()
    with np.load(HERE / "models.npz") as models:
        np.testing.assert_allclose(params.numpy(), models[name], rtol=1e-3, atol=1e-4)
    assert report.final_utility == pytest.approx(noted["utility"], rel=1e-4)
    assert report.spent == noted["spent"]
    assert {payout.provider: payout.pay for payout in report.payouts} == noted["pay"]
    if markets.canary() == NOTED["canary"]:
        assert report.last_model_hash == noted["model"]


def test_every_noted_market_is_played() -> None:
    assert list(NOTED["markets"]) == list(markets.MARKETS)
