"""Markets with robust aggregators: they resist, they are resumed to the same hashes, and gains can be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from databazaar import Adaptive, Arbiter, BazaarError, Mean, Provider, Uniform
from databazaar.aggregators import (
    AGGREGATORS,
    Aggregator,
    CentredClipping,
    GeometricMedian,
    Krum,
    Median,
    TrimmedMean,
)
from databazaar.config.market_file import parse_market
from databazaar.engines.protocol import Replies
from databazaar.ledger import Drawn
from databazaar.roster import RoundBudget
from databazaar.runs.folder import RunFolder
from databazaar.training import Lesson
from databazaar.training.averaging import AGGREGATOR, Proposed
from databazaar.training.parameters import Parameters
from small_markets import torch_market

ROBUST: list[Aggregator] = [Median(), TrimmedMean(), Krum(), GeometricMedian(), CentredClipping()]


def market(aggregator: Aggregator | None, *, hostile: int = 0, sampler: Any = None) -> Arbiter:
    """Ten providers of whom the last ones push the model away from where it is good, ten times as hard."""

    def away(params: np.ndarray) -> np.ndarray:
        return np.linspace(30.0, -30.0, len(params))

    consumer, honest = torch_market(flips=(0.0, 0.1) * 5, budget=40, per_round=10)
    bad = [Provider(provider.id, oracle=away) for provider in honest[len(honest) - hostile :]]
    providers = [*honest[: len(honest) - hostile], *bad]
    return Arbiter(consumer, providers, sampler or Adaptive(), aggregator=aggregator, engine="loop", seed=3)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
def test_a_market_goes_on_where_it_was_stopped(aggregator: Aggregator, tmp_path: Path) -> None:
    def dies(progress: Any) -> None:
        if progress.round == 2:
            raise KilledError

    whole = market(aggregator).run()
    with pytest.raises(KilledError):
        market(aggregator).run(tmp_path / "run", tell=dies)
    report = market(aggregator).run(tmp_path / "run")
    assert len(report.rounds) > 3
    assert (report.model_hash, report.ledger_head) == (whole.model_hash, whole.ledger_head)
    assert report.rules["aggregator"]["kind"] == aggregator.kind
    assert RunFolder(tmp_path / "run").audit().ok


@pytest.mark.parametrize("aggregator", [Mean(), *ROBUST], ids=repr)
def test_three_of_ten_who_push_hard_spoil_a_mean_and_nothing_else(aggregator: Aggregator) -> None:
    """Everybody is asked once a round, whatever came of it."""
    arbiter = market(aggregator, hostile=3, sampler=Uniform(replacement=False))
    arbiter.run()
    scored = arbiter.consumer.evaluator(torch.device("cpu")).score(arbiter.last_parameters[None])
    assert scored.loss is not None
    assert (scored.loss[0] < 0.2) == (aggregator != Mean())


@pytest.mark.parametrize("gains", ["alone", "shapley"])
@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
@pytest.mark.parametrize("rows", [1, 2, 3, 10])
def test_gains_are_those_of_what_the_aggregator_reaches_and_shapley_gains_those_of_a_mean(
    aggregator: Aggregator, gains: str, rows: int
) -> None:
    updates = torch.randn(rows, 6, generator=torch.Generator().manual_seed(rows))
    w, step = torch.zeros(6), 0.5
    drawn = Drawn(np.arange(rows), np.ones(rows), RoundBudget(rows, np.ones(rows, dtype=np.int64)))
    memory = {AGGREGATOR: aggregator.init(w)}
    lesson = Lesson(Parameters(w), memory, 0.0, None, drawn, Replies(updates, {}), round=0, gains=gains)
    models = Proposed(aggregator, lesson, step).models

    def reached(taken: Tensor) -> Tensor:
        return aggregator.combine(memory[AGGREGATOR], taken, step)[1] if len(taken) else w

    def part(i: int, whole: float) -> Tensor:
        return torch.stack([update * (whole if j == i else 0.5) for j, update in enumerate(updates)])

    every = range(rows)
    expected = {
        "alone": [step * update for update in updates],
        "shapley": [step * part(i, whole).mean(0) for whole in (1.0, 0.0) for i in every],
    }[gains]
    torch.testing.assert_close(models, torch.stack([*expected, reached(updates)]))
    assert models.isfinite().all()


MARKET = {
    "market": {"budget": 100},
    "data": {"holdout": "h.csv", "target": "y"},
    "providers": [{"id": "a", "file": "a.csv"}, {"id": "b", "file": "b.csv"}],
}


@pytest.mark.parametrize(
    ("section", "built"),
    [
        ({"kind": "median"}, Median()),
        ({"kind": "trimmed-mean"}, TrimmedMean()),
        ({"kind": "krum"}, Krum()),
        ({"kind": "geometric-median"}, GeometricMedian()),
        ({"kind": "centred-clipping"}, CentredClipping()),
    ],
)
def test_market_toml_names_them(section: dict[str, Any], built: Aggregator) -> None:
    settings = parse_market({**MARKET, "aggregator": section}).aggregator.plain()
    assert AGGREGATORS.build(settings) == built


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"kind": "trimmed-mean", "share": 0.6}, "aggregator.share is set from Python alone, as TrimmedMean(share=…)"),
        ({"kind": "krum", "keep": 1}, "aggregator.keep is set from Python alone, as Krum(keep=…): remove it"),
        ({"kind": "median", "share": 0.1}, "aggregator.share is not a setting: use kind, or remove it"),
        ({"kind": "medain"}, "must be one of 'centred-clipping', 'geometric-median', 'krum'"),
    ],
)
def test_a_mistake_gets_one_sentence(section: dict[str, Any], words: str) -> None:
    with pytest.raises(BazaarError) as refused:
        parse_market({**MARKET, "aggregator": section})
    assert words in str(refused.value) and "\n" not in str(refused.value)
