"""Whether it was worth it: the bought model and its alternatives on rows that nobody looked at."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from cli_markets import edit, table, write_market
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from databazaar import Arbiter, BazaarError, Consumer, Provider, judge_purchase, load_run
from databazaar.config.jobs import market_job
from databazaar.engines import Ask, Beginning, Engine, LoopEngine, Replies
from databazaar.learning.inputs import Examples
from databazaar.learning.own_rows import fit_own_rows, refit
from databazaar.learning.split import split_rows
from databazaar.ledger.chain import Entry
from databazaar.market import purchase
from databazaar.market.loop import play
from databazaar.market.purchase import NOTHING_BETTER, alternative
from databazaar.runs.folder import RunFolder
from databazaar.runs.notes import WORTH
from databazaar.runs.purchase import MARKET, OWN, SINGLE, UNIFORM, EvaluatedModel, PurchaseEvaluation
from databazaar.training import Model
from databazaar.training.parameters import vector_of


def rows_of(rng: np.random.Generator, size: int, flip: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes in twelve dimensions, of which few rows say little; a share of the labels is wrong."""
    x = rng.normal(size=(size, 12)).astype(np.float32)
    y = (x @ np.linspace(-1, 1, 12) + 0.5 * rng.normal(size=size) > 0).astype(np.int64)
    return x, np.where(rng.random(size) < flip, 1 - y, y)


def market(seed: int = 0, *, train: bool = True, **more: Any) -> tuple[Consumer, list[Provider]]:
    """Three providers, of which the first is good and the last has all labels wrong."""
    rng = np.random.default_rng(seed)
    settings: dict[str, Any] = {"model": "logistic", "budget": 60, "per_round": 3, **more}
    rows: dict[str, Any] = {"holdout": rows_of(rng, 60), "audit": rows_of(rng, 80)}
    if train:
        rows["train"] = rows_of(rng, 20)
    providers = [Provider(f"p{i}", data=rows_of(rng, 100, flip)) for i, flip in enumerate((0.0, 0.4, 1.0))]
    return Consumer(**settings, **rows), providers


@pytest.fixture(scope="module", autouse=True)
def all_singles() -> Iterator[None]:
    """Elsewhere in the tests one provider is tried alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(purchase, "SINGLES", 3)
        yield


@pytest.fixture(scope="module")
def bought(tmp_path_factory: pytest.TempPathFactory) -> tuple[Arbiter, PurchaseEvaluation, Path]:
    path = tmp_path_factory.mktemp("worth") / "run"
    arbiter = Arbiter(*market(), device="cpu")
    return arbiter, judge_purchase(arbiter, arbiter.run(path)), path


def test_the_metrics_are_those_that_anybody_finds_with_the_model_on_the_same_rows(
    bought: tuple[Arbiter, PurchaseEvaluation, Path],
) -> None:
    arbiter, worth, path = bought
    assert arbiter.consumer.audit is not None
    x, y = (part.numpy() for part in arbiter.consumer.audit)
    finished = load_run(path)
    judged = finished.judge((x, y))
    assert (worth.task, worth.rows, worth.bought.kind) == ("classification", 80, MARKET)
    assert worth.bought.metrics == pytest.approx(judged.metrics, rel=1e-6)
    assert worth.intervals.keys() == judged.intervals.keys()
    for name, interval in judged.intervals.items():
        assert worth.intervals[name] == pytest.approx(interval, rel=1e-6)


def test_every_alternative_is_there_and_how_far_it_is_behind(bought: tuple[Arbiter, PurchaseEvaluation, Path]) -> None:
    arbiter, worth, _ = bought
    assert [other.kind for other in worth.others] == [OWN, UNIFORM, SINGLE]
    for other in worth.others:
        assert other.ahead == pytest.approx(other.metrics["log_loss"] - worth.bought.metrics["log_loss"], abs=1e-9)
        assert other.error is not None and other.error > 0
        assert worth.against(other.kind) is other
    single, uniform = worth.against(SINGLE), worth.against(UNIFORM)
    assert single is not None and single.detail in {f"p{i}, of the 3 paid most" for i in (0, 1)}
    assert uniform is not None and uniform.ahead is not None and uniform.ahead > 0, "a third of its draws do harm"
    assert worth.against("nothing") is None and worth.notes == ()
    own = worth.against(OWN)
    assert own is not None and arbiter.consumer.audit is not None
    outputs = torch.from_numpy(on_audit(arbiter, arbiter.training().own_rows_alone()))
    losses = torch.nn.functional.cross_entropy(outputs, arbiter.consumer.audit[1], reduction="none").numpy()
    assert own.metrics["log_loss"] == pytest.approx(losses.mean(), rel=1e-6)
    mine = torch.from_numpy(on_audit(arbiter, arbiter.reached))
    ahead = losses - torch.nn.functional.cross_entropy(mine, arbiter.consumer.audit[1], reduction="none").numpy()
    assert own.error == pytest.approx(ahead.std(ddof=1) / 80**0.5, rel=1e-6)


def test_judging_changes_neither_the_model_nor_the_ledger(bought: tuple[Arbiter, PurchaseEvaluation, Path]) -> None:
    arbiter, worth, path = bought
    before, audit = arbiter.parameters.clone(), RunFolder(path).audit()
    again = judge_purchase(arbiter, RunFolder(path).report(), bought=before.numpy())
    assert again == worth
    assert torch.equal(arbiter.parameters, before)
    assert audit.ok and RunFolder(path).audit().head == audit.head


def on_audit(arbiter: Arbiter, model: Model) -> NDArray[np.float64]:
    assert arbiter.consumer.audit is not None
    return arbiter.training().outputs(model, arbiter.consumer.audit[0])


def on(rows: Any) -> Examples:
    assert rows is not None
    return rows[0], rows[1]


def test_own_rows_alone_are_all_rows_but_the_audits() -> None:
    consumer, providers = market()
    assert consumer.own_fit is not None
    train, holdout, start = on(consumer.train), on(consumer.holdout), consumer.untrained_parameters()
    alone = refit(consumer.task, start, train, holdout, consumer.own_fit)
    assert torch.equal(vector_of(Arbiter(consumer, providers).training().own_rows_alone()), alone)
    consumer, providers = market(train=False)
    x, y = on(consumer.holdout)
    fit, judge = (torch.from_numpy(part) for part in split_rows(y.numpy(), (0.75, 0.25)))
    parts = (x[fit], y[fit]), (x[judge], y[judge])
    found = fit_own_rows(consumer.task, consumer.untrained_parameters(), *parts)
    alone = refit(consumer.task, consumer.untrained_parameters(), *parts, found)
    assert torch.equal(vector_of(Arbiter(consumer, providers).training().own_rows_alone()), alone)


def test_own_rows_alone_are_about_as_good_as_a_peer_on_the_same_rows() -> None:
    """Else the market would be compared with a straw man."""
    consumer, providers = market(seed=3, train=False)
    (x, y), (new, true) = on(consumer.holdout), on(consumer.audit)
    assert isinstance(x, torch.Tensor) and isinstance(new, torch.Tensor)
    peer = LogisticRegression(max_iter=500).fit(x.numpy(), y.numpy())
    theirs = float(-np.log(peer.predict_proba(new.numpy())[np.arange(80), true.numpy()]).mean())
    arbiter = Arbiter(consumer, providers)
    outputs = torch.from_numpy(on_audit(arbiter, arbiter.training().own_rows_alone()))
    assert float(torch.nn.functional.cross_entropy(outputs, true)) < theirs + 0.1


@pytest.mark.parametrize(("cap", "asked"), [(None, 20), (7, 7)])
def test_a_single_provider_is_asked_alone_and_as_often_as_it_allows(cap: int | None, asked: int) -> None:
    consumer, providers = market()
    providers[1] = replace(providers[1], most_accesses=cap, price=3, price_changes=[(4, 5), (5, 3)])
    arbiter = Arbiter(consumer, providers, device="cpu")
    run = alternative(arbiter, budget=20 * 3 + 2, per_round=1, only=1)
    play(run, arbiter.engine)
    assert run.accounts.book.accesses == {"p1": asked} == run.accounts.book.drawn
    assert run.accounts.book.spent == 3 * asked + 2


def test_alternatives_keep_to_the_caps_and_limits_of_the_market() -> None:
    consumer, providers = market()
    consumer = replace(consumer, most_per_access=2, most_per_round=5)
    offers = zip(providers, (None, 4, None), (1, 2, 3), strict=True)
    arbiter = Arbiter(consumer, [replace(p, most_accesses=cap, price=price) for p, cap, price in offers], device="cpu")
    report = arbiter.run()
    assert report.payouts[1].accesses == 4 and report.payouts[2].accesses == 0
    run = alternative(arbiter, report.spent, consumer.per_round)
    play(run, arbiter.engine)
    assert run.accounts.book.drawn["p1"] == 4 and "p2" not in run.accounts.book.drawn
    assert [other.kind for other in judge_purchase(arbiter, report).others] == [OWN, UNIFORM, SINGLE]


class Counting(Engine):
    """The loop engine with a count of its asks."""

    name, device = "counting", torch.device("cpu")

    def __init__(self, inner: LoopEngine) -> None:
        self.inner, self.asks = inner, 0

    def query(self, ask: Ask) -> Replies:
        self.asks += 1
        return self.inner.query(ask)


class Afar(Counting):
    """The same, whose providers are other parties."""

    def begin(self, beginning: Beginning) -> None:
        pass

    def witness(self, entries: Sequence[Entry]) -> None:
        pass


@pytest.mark.parametrize("remote", [True, False])
def test_real_providers_are_not_asked_again(remote: bool) -> None:
    consumer, providers = market()
    inner = LoopEngine(consumer.task, providers, torch.device("cpu"))
    engine = Afar(inner) if remote else Counting(inner)
    arbiter = Arbiter(consumer, providers, engine=engine)
    report = arbiter.run()
    asked = engine.asks
    worth = judge_purchase(arbiter, report)
    assert (engine.asks == asked) == remote
    assert [other.kind for other in worth.others] == ([OWN] if remote else [OWN, UNIFORM, SINGLE])
    assert [note.split(":")[0] for note in worth.notes] == (
        ["Uniform buying and single providers were not tried"] if remote else []
    )


def test_money_that_bought_nothing_is_said_to_have_bought_nothing() -> None:
    consumer, _ = market()
    rng = np.random.default_rng(5)
    arbiter = Arbiter(consumer, [Provider(f"p{i}", data=rows_of(rng, 100, flip=1.0)) for i in range(3)], device="cpu")
    report = arbiter.run()
    assert report.best is not None and report.best.round == 0 and report.spent > 0
    assert [note.split(":")[0] for note in judge_purchase(arbiter, report).notes] == [NOTHING_BETTER]


def test_a_market_of_one_provider_has_no_single_one_beside_it() -> None:
    consumer, providers = market()
    arbiter = Arbiter(consumer, providers[:1], device="cpu")
    assert [other.kind for other in judge_purchase(arbiter, arbiter.run()).others] == [OWN, UNIFORM]


def test_a_model_with_one_logit_is_judged_as_two_classes() -> None:
    consumer, providers = market(model=torch.nn.Linear(12, 1))
    arbiter = Arbiter(consumer, providers, device="cpu")
    worth = judge_purchase(arbiter, arbiter.run())
    (x, y) = on(consumer.audit)
    with torch.no_grad():
        logit = arbiter.model(x).reshape(-1)
    assert worth.bought.metrics["accuracy"] == pytest.approx(float(((logit > 0) == (y > 0)).double().mean()))
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logit, y.float())
    assert worth.bought.metrics["log_loss"] == pytest.approx(float(loss), rel=1e-5)


class Named(torch.nn.Module):
    """Takes its inputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = torch.nn.Embedding(5, 3), torch.nn.Linear(4, 2)

    def forward(self, token: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.out(torch.cat([self.words(token), number], 1))
        return answer


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.filterwarnings("ignore:engine falls back")
def test_a_model_with_named_inputs_is_judged_too(train: bool) -> None:
    rng = np.random.default_rng(0)

    def rows(size: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        token, number = rng.integers(0, 5, size), rng.normal(size=(size, 1)).astype(np.float32)
        return {"token": token, "number": number}, (token + number[:, 0] > 2).astype(np.int64)

    own = {"train": rows(30)} if train else {}
    consumer = Consumer(Named(), budget=6, per_round=3, holdout=rows(40), audit=rows(20), train=own.get("train"))
    arbiter = Arbiter(consumer, [Provider(f"p{i}", data=rows(30)) for i in range(2)], device="cpu")
    worth = judge_purchase(arbiter, arbiter.run())
    assert [other.kind for other in worth.others] == [OWN, UNIFORM, SINGLE]
    assert consumer.audit is not None
    with torch.no_grad():
        guessed = arbiter.model(**consumer.audit[0].tensors).argmax(1)
    assert worth.bought.metrics["accuracy"] == pytest.approx(float((guessed == consumer.audit[1]).double().mean()))


def test_without_audit_rows_it_cannot_be_told(make_vector_market: Any) -> None:
    consumer, providers = market()
    bare = Consumer("logistic", holdout=consumer.holdout, budget=6, per_round=3)
    for arbiter in (Arbiter(bare, providers, device="cpu"), Arbiter(*make_vector_market(), engine="loop")):
        with pytest.raises(BazaarError, match=r"give Consumer\(…, audit=\(x, y\)\)"):
            judge_purchase(arbiter, arbiter.run())


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_market_of_files_is_judged_as_its_model_is_evaluated_in_units(task: str, tmp_path: Path) -> None:
    path = write_market(tmp_path, task)
    table(50, 77, task).to_csv(tmp_path / "audit.csv", index=False)
    edit(path, 'holdout = "holdout.csv"', 'holdout = "holdout.csv"\naudit = "audit.csv"')
    job = market_job(path)
    folder = RunFolder.create(tmp_path / "run", {**job.recipe, "title": job.title})
    arbiter = job.arbiter()
    worth = judge_purchase(arbiter, arbiter.run(folder), scale=job.target_scale)
    frame = pd.read_csv(tmp_path / "audit.csv")
    assert (worth.task, worth.rows) == (task, 50)
    assert worth.bought.metrics == pytest.approx(load_run(tmp_path / "run").evaluate(frame), rel=1e-4)
    if task == "regression":
        own = worth.against(OWN)
        assert own is not None and worth.loss_name == "squared error"
        assert own.ahead == pytest.approx(own.metrics["rmse"] ** 2 - worth.bought.metrics["rmse"] ** 2, rel=1e-6)
        assert worth.bought.metrics["rmse"] > 0.1, "in units, the target spreads by about 5"


def worth_of(ahead: float | None, error: float | None = 0.1, **more: Any) -> PurchaseEvaluation:
    bought = EvaluatedModel(MARKET, {"accuracy": 0.9, "auc": math.nan})
    settings: dict[str, Any] = {"task": "classification", "rows": 50, "bought": bought, **more}
    return PurchaseEvaluation(
        others=(EvaluatedModel(OWN, {"accuracy": 0.8, "auc": math.nan}, ahead, error, "on its own"),), **settings
    )


@pytest.mark.parametrize(
    ("ahead", "sentence"),
    [
        (
            0.21,
            "It was worth it: the bought model beats your own rows alone by 0.21 ± 0.1 in log loss on 50 audit rows",
        ),
        (-0.21, "It was not worth it: your own rows alone beat the bought model by 0.21 ± 0.1"),
        (0.19, "It cannot be told whether it was worth it: the bought model may be ahead, by 0.19"),
        (-0.19, "It cannot be told whether it was worth it: your own rows alone may be ahead, by 0.19"),
        (None, "there is nothing to compare the bought model with"),
        (math.nan, "there is nothing to compare the bought model with"),
    ],
)
def test_the_verdict_is_a_sentence_that_is_honest_about_chance(ahead: float | None, sentence: str) -> None:
    assert sentence in worth_of(ahead).verdict
    assert "squared error" not in worth_of(ahead).verdict


def test_it_comes_back_from_json_as_it_was() -> None:
    worth = worth_of(0.3, intervals={"auc": (math.nan, math.nan), "accuracy": (0.7, 1.0)}, notes=("a note",))
    kept = json.loads(json.dumps(worth.to_dict(), allow_nan=False))
    assert kept["bought"]["metrics"] == {"accuracy": 0.9, "auc": None}
    assert kept["intervals"]["auc"] == [None, None]
    again = PurchaseEvaluation.from_dict(kept)
    assert again.to_dict() == worth.to_dict()
    assert math.isnan(again.bought.metrics["auc"]) and math.isnan(again.intervals["auc"][0])
    assert (again.others[0].ahead, again.others[0].error, again.others[0].detail) == (0.3, 0.1, "on its own")
    assert (again.verdict, again.notes, again.rows) == (worth.verdict, ("a note",), 50)
    assert again.others[0].title == "your own rows alone"


def test_one_audit_row_has_no_error_and_that_too_can_be_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    consumer, providers = market(budget=6)
    consumer = Consumer("logistic", holdout=consumer.holdout, audit=rows_of(rng, 1), budget=6, per_round=3)
    arbiter = Arbiter(consumer, providers, device="cpu")
    report = arbiter.run(tmp_path / "run")
    worth = judge_purchase(arbiter, report)
    own = worth.against(OWN)
    assert own is not None and own.error is not None and math.isnan(own.error)
    RunFolder(tmp_path / "run").note_worth(worth)
    kept = RunFolder(tmp_path / "run").worth()
    assert kept is not None and kept.to_dict() == worth.to_dict()
    assert kept.verdict == worth.verdict == "One audit row is too few to tell whether it was worth it."
    assert RunFolder(tmp_path / "run").report().worth is not None


@pytest.mark.parametrize("content", ["{", "[]", '{"task": 1}', '{"task": "t", "rows": 3, "bought": {"kind": "x"}}'])
def test_what_is_no_judgement_is_not_shown(content: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    assert folder.worth() is None
    (tmp_path / "run" / WORTH).write_text(content)
    assert folder.worth() is None
