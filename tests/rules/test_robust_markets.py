"""Markets with robust aggregators: they resist, they are resumed to the same hashes, and gains can be measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from databazaar import Adaptive, Arbiter, BazaarError, Consumer, LocalSGD, Mean, Provider, Uniform
from databazaar.aggregators import (
    AGGREGATORS,
    Aggregator,
    CentredClipping,
    FLTrust,
    GeometricMedian,
    Guided,
    Krum,
    Median,
    TrimmedMean,
)
from databazaar.config.market_file import parse_market
from databazaar.engines.protocol import Replies
from databazaar.learning.oracles import FullGradient, compute_update
from databazaar.learning.own_rows import SCORING_ROWS
from databazaar.ledger import Accounts, Drawn
from databazaar.market.round import conclude, propose
from databazaar.market.state import Best, State
from databazaar.randomness import oracle_key
from databazaar.roster import RoundBudget
from databazaar.runs.folder import RunFolder
from small_markets import torch_market

ROBUST: list[Aggregator] = [Median(), TrimmedMean(), Krum(), GeometricMedian(), CentredClipping(), FLTrust()]


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


@pytest.mark.parametrize("gains", ["alone", "together", "shapley"])
@pytest.mark.parametrize("aggregator", ROBUST, ids=repr)
@pytest.mark.parametrize("rows", [1, 2, 3, 10])
def test_gains_are_those_of_what_the_aggregator_reaches_and_shapley_gains_those_of_a_mean(
    aggregator: Aggregator, gains: str, rows: int
) -> None:
    updates = torch.randn(rows, 6, generator=torch.Generator().manual_seed(rows))
    w, step = torch.zeros(6), 0.5
    state = State(0, w, 0.0, None, np.zeros(1), first(aggregator, w), Best(0, w, 0.0))
    drawn = Drawn(np.arange(rows), np.ones(rows), RoundBudget(rows, np.ones(rows, dtype=np.int64)))
    models = propose(aggregator, state, drawn, Replies(updates, {}), step, None, gains).models

    def reached(taken: Tensor) -> Tensor:
        return aggregator.combine(state.aggregator, taken, step)[1] if len(taken) else w

    def part(i: int, whole: float) -> Tensor:
        return torch.stack([update * (whole if j == i else 0.5) for j, update in enumerate(updates)])

    every = range(rows)
    expected = {
        "alone": [step * update for update in updates],
        "together": [reached(updates[[j for j in every if j != i]]) for i in every],
        "shapley": [step * part(i, whole).mean(0) for whole in (1.0, 0.0) for i in every],
    }[gains]
    torch.testing.assert_close(models, torch.stack([*expected, reached(updates)]))
    assert models.isfinite().all()


def first(aggregator: Aggregator, params: Tensor) -> Tensor:
    state = aggregator.init(params)
    return aggregator.guide(state, torch.ones_like(params)) if isinstance(aggregator, Guided) else state


@pytest.mark.parametrize("oracle", [LocalSGD(step=0.05), FullGradient()], ids=["sgd", "gradient"])
def test_the_reference_is_what_the_hold_out_would_answer(oracle: LocalSGD | FullGradient) -> None:
    """By the providers' own oracle, and with a randomness of its own in every round."""
    consumer, providers = torch_market()
    providers = [Provider(provider.id, data=provider.data, oracle=oracle) for provider in providers]
    run = begun(consumer, providers)
    for round in range(2):
        drawn = run.rules.draw(run.state.sampler, run.accounts.book)
        run.accounts.reserve(round, drawn)
        replies = Replies(torch.ones(len(drawn.asked), len(run.state.params)), {})
        guided = run.round(drawn, replies)
        key = oracle_key(3, round, SCORING_ROWS)
        wanted = compute_update(oracle, consumer.task, consumer.holdout, run.state.params, round, key)
        assert torch.equal(guided.state.aggregator, wanted)
        run.state, settlement = conclude(guided)
        run.accounts.settle(round, drawn, settlement, run.state)
        assert len(run.state.aggregator) == 0  # a snapshot does not carry it along


def begun(consumer: Consumer, providers: Sequence[Provider]) -> Any:
    arbiter = Arbiter(consumer, providers, Uniform(), aggregator=FLTrust(), engine="loop", seed=3)
    return arbiter.begin(Accounts(arbiter.rules))


def test_providers_of_several_sorts_are_compared_with_local_sgd() -> None:
    consumer, providers = torch_market()
    mixed = [Provider("a", data=providers[0].data, oracle=FullGradient()), providers[1]]
    run = begun(consumer, mixed)
    start = consumer.initial_parameters()
    wanted = compute_update(LocalSGD(), consumer.task, consumer.holdout, start, 0, oracle_key(3, 0, SCORING_ROWS))
    assert torch.equal(run.reference(start, 0), wanted)


def test_a_market_without_rows_is_told_that_fltrust_needs_some() -> None:
    consumer = Consumer(np.zeros(2), budget=6, per_round=2, utility=lambda w: float(w.sum()))
    with pytest.raises(BazaarError, match=r"give a torch model and holdout = \(x, y\), or take another aggregator"):
        Arbiter(consumer, [Provider("p", oracle=lambda w: w + 1)], aggregator=FLTrust(), engine="loop")


def test_the_mean_asks_for_no_reference() -> None:
    arbiter = market(Mean())
    assert arbiter.begin(Accounts(arbiter.rules)).reference is None


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
        ({"kind": "trimmed-mean", "share": 0.1}, TrimmedMean(0.1)),
        ({"kind": "krum"}, Krum()),
        ({"kind": "krum", "share": 0.2}, Krum(0.2)),
        ({"kind": "geometric-median"}, GeometricMedian()),
        ({"kind": "centred-clipping"}, CentredClipping()),
        ({"kind": "fltrust"}, FLTrust()),
    ],
)
def test_market_toml_names_them(section: dict[str, Any], built: Aggregator) -> None:
    settings = parse_market({**MARKET, "aggregator": section}).aggregator.plain()
    assert AGGREGATORS.build(settings) == built


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"kind": "trimmed-mean", "share": 0.6}, "aggregator.share = 0.6 must be between 0 and 0.5"),
        ({"kind": "krum", "keep": 1}, "aggregator.keep is not a setting: use kind, share, or remove it"),
        ({"kind": "median", "share": 0.1}, 'aggregator.share is for kind = "krum" or "trimmed-mean"'),
        ({"kind": "medain"}, "must be one of 'centred-clipping', 'fltrust', 'geometric-median', 'krum'"),
    ],
)
def test_a_mistake_gets_one_sentence(section: dict[str, Any], words: str) -> None:
    with pytest.raises(BazaarError) as refused:
        parse_market({**MARKET, "aggregator": section})
    assert words in str(refused.value) and "\n" not in str(refused.value)
