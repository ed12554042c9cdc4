"""A run that joins a cluster by ray://, as from another machine: model and ledger are those of a run without Ray."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from processes import run
from ray_clusters import running_head

pytestmark = [pytest.mark.slow, pytest.mark.process]

BOUGHT = """
import json, sys
from pathlib import Path
from databazaar import Arbiter, Consumer
from databazaar.engines.ray_engine import RayEngine
from ray_markets import OneByOne, model, sellers

folder, address = Path(sys.argv[1]), sys.argv[2]
consumer = Consumer(model(), holdout=sellers()[4].dataset, budget=6, per_round=2, utility="exp-loss")
task, providers = consumer.task.copied(), sellers(4)
for name, engine in (
    ("elsewhere", RayEngine(task, providers, address=address, workers=1, wait=300.0)),
    ("here", OneByOne(task, providers)),
):
    report = Arbiter(consumer, providers, engine=engine, seed=4).run(folder / name)
    print(json.dumps([report.model_hash, report.ledger_head, [payout.failures for payout in report.payouts]]))
    engine.close()
"""


def test_a_run_from_elsewhere_comes_to_the_same_model_and_ledger(tmp_path: Path) -> None:
    """It is begun as soon as the head is there, which is before the server is that it connects to. It has a process of
    its own, because a process reads one token."""
    with running_head(1) as head:
        more = {"RAY_AUTH_TOKEN_PATH": str(head.token), "PYTHONPATH": os.pathsep.join(sys.path)}
        found = run([sys.executable, "-c", BOUGHT, str(tmp_path), head.client], env={**os.environ, **more})
    assert found.returncode == 0, found.stderr
    elsewhere, here = map(json.loads, found.stdout.splitlines())
    assert elsewhere == here
    assert here[2] == [0] * 4
