"""Jobs from market.toml: settings of the model and of the steps reach the market that is played."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from cli_markets import PROVIDERS, edit, write_market

from databazaar.config.jobs import market_job


def model_hash(market: Path, halve_every: int | None, oracle: str = "") -> str:
    text = market.read_text()
    training = "" if halve_every is None else f"\n[training]\nhalve_every = {halve_every}\n"
    market.write_text(text + training + oracle)
    report = market_job(market).arbiter().run()
    market.write_text(text)
    return report.model_hash


@pytest.mark.parametrize("kind", ["local-sgd", "full-gradient"])
def test_steps_halve_as_often_as_the_market_says(tmp_path: Path, kind: str) -> None:
    market, oracle = write_market(tmp_path, budget='"8.00"'), f'\n[oracle]\nkind = "{kind}"\n'
    plain = model_hash(market, None, oracle)
    assert model_hash(market, 1000, oracle) == plain  # the run is over before
    assert len({plain, model_hash(market, 1, oracle), model_hash(market, 2, oracle)}) == 3


def test_providers_halve_their_own_steps_too(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    edit(market, "[engine]", "[training]\nhalve_every = 2\n\n[oracle]\nstep = 0.4\n\n[engine]")
    job = market_job(market)
    assert callable(job.consumer.step) and [job.consumer.step(t) for t in range(4)] == [1.0, 0.5, 0.5, 0.25]
    for provider in job.providers:
        step = provider.oracle.step  # type: ignore[union-attr]
        assert callable(step) and [step(t) for t in range(4)] == [0.4, 0.2, 0.2, 0.1]


def test_rows_become_the_images_that_a_cnn_takes(tmp_path: Path) -> None:
    market = write_market(tmp_path, budget='"8.00"')
    edit(market, 'kind = "logistic"', 'kind = "cnn"\nimage = [2, 6, 6]')
    rng = np.random.default_rng(0)
    for name in ("holdout", *PROVIDERS):
        frame = pd.DataFrame(rng.normal(size=(20, 72)), columns=[f"c{i:02}" for i in range(72)])
        frame.assign(target=np.arange(20) % 2).to_csv(tmp_path / f"{name}.csv", index=False)
    job = market_job(market)
    own = [part for part in (job.consumer.train, job.consumer.holdout, job.consumer.audit) if part is not None]
    images = [part[0] for part in (*own, *(provider.dataset for provider in job.providers))]
    assert [x.shape for x in images if isinstance(x, torch.Tensor)] == [(n, 2, 6, 6) for n in (10, 6, 4, 20, 20, 20)]
    assert job.arbiter().run().status == "settled"
