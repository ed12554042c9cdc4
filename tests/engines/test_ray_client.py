"""A run that joins a cluster by ray://, as from another machine: model and ledger of a run on a cluster of its own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from databazaar import Arbiter, Consumer, Report
from databazaar.engines.ray_engine import RayEngine
from ray_clusters import running_head
from ray_markets import model, sellers

pytestmark = [pytest.mark.slow, pytest.mark.process]


def bought(address: str | None, folder: Path) -> Report:
    providers = sellers(4)
    consumer = Consumer(model(), holdout=sellers()[4].dataset, budget=6, per_round=2, utility="exp-loss")
    with closing(RayEngine(consumer.task.copied(), providers, address=address, workers=1, wait=300.0)) as engine:
        return Arbiter(consumer, providers, engine=engine, seed=4).run(folder)


def test_a_run_from_elsewhere_comes_to_the_same_model_and_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is begun as soon as the head is there, which is before the server is that it connects to."""
    with running_head(1) as head:
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(head.token))
        elsewhere = bought(head.client, tmp_path / "elsewhere")
    here = bought(None, tmp_path / "here")
    assert elsewhere.model_hash == here.model_hash
    assert elsewhere.ledger_head == here.ledger_head
    assert [payout.failures for payout in elsewhere.payouts] == [0] * 4
