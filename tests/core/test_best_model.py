"""The consumer gets the best model that was reached, whatever came after it, and the audit knows which one that is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, Progress, Provider, Uniform, load_run
from databazaar.learning.models import hash_vector
from databazaar.ledger import Ledger, audit_entries
from databazaar.market.loop import play
from databazaar.market.run import MarketRun
from databazaar.runs.close import close_run
from databazaar.runs.folder import LAST, MODEL, RunFolder
from databazaar.runs.notes import PRIVACY, WORTH
from databazaar.vectors import pack, unpack
from records import record_of
from small_markets import blobs

Curve = list[float]
CURVES = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=10)


def on_a_curve(curve: Curve) -> Arbiter:
    """A market whose model after t rounds is the number t, and has the utility curve[t]."""
    consumer = Consumer(np.zeros(1), budget=len(curve) - 1, per_round=1, step=1.0, utility=lambda w: curve[int(w[0])])
    return Arbiter(consumer, [Provider("p", oracle=lambda w: np.ones(1))], Uniform(), engine="loop")


def played(arbiter: Arbiter) -> tuple[MarketRun, Ledger]:
    ledger = Ledger(arbiter.rules)
    run = arbiter.begin(ledger)
    play(run, arbiter.engine)
    return run, ledger


@given(CURVES)
def test_the_best_model_is_the_first_of_the_highest_utility_in_the_ledger(curve: Curve) -> None:
    arbiter = on_a_curve(curve)
    run, ledger = played(arbiter)
    audit = audit_entries(ledger.store.entries(), run.state.snapshot())
    assert audit.ok and audit.best is not None
    utilities = [record_of(audit).rounds[0].utility, *(round.reached for round in record_of(audit).rounds)]
    assert utilities == curve
    first = int(np.argmax(curve))
    assert (run.state.best.round, run.state.best.utility) == (first, curve[first])
    assert (audit.best.round, audit.best.utility) == (first, curve[first])
    assert audit.delivered == audit.best.model == run.state.best.model.stored.hash
    report = arbiter.run()
    assert (arbiter.parameters.tolist(), arbiter.last_parameters.tolist()) == ([first], [len(curve) - 1])
    assert report.model_hash == hash_vector(arbiter.parameters) == audit.delivered
    assert report.last_model_hash == hash_vector(arbiter.last_parameters)
    assert report.best == audit.best and report.final_utility == curve[-1]


def cut_after(round: int) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        if progress.round == round:
            raise KeyboardInterrupt

    return tell


@pytest.mark.parametrize("curve", [[0, 3, 1, 2, 1, 3, 0], [2, 1, 0, 1, 0, 1, 1], [0, 1, 2, 3, 4, 5, 6]])
def test_it_survives_a_stop_after_any_round(curve: Curve, tmp_path: Path) -> None:
    whole = on_a_curve(curve).run()
    for round in range(1, len(curve) - 1):
        path = tmp_path / f"run{round}"
        with pytest.raises(KeyboardInterrupt):
            on_a_curve(curve).run(path, tell=cut_after(round))
        assert RunFolder(path).audit().ok
        arbiter = on_a_curve(curve)
        report = arbiter.run(path)
        assert (report.ledger_head, report.model_hash) == (whole.ledger_head, whole.model_hash)
        assert report.best == whole.best
        assert arbiter.parameters.tolist() == [int(np.argmax(curve))]
        assert RunFolder(path).audit().ok


def test_a_run_that_its_consumer_closes_delivers_the_best_so_far(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        on_a_curve([0, 1, 5, 2, 3, 9]).run(tmp_path / "run", tell=cut_after(4))
    report = close_run(tmp_path / "run")
    assert report.best is not None and (report.best.round, report.best.utility) == (2, 5)
    assert report.model_hash != report.last_model_hash
    assert RunFolder(tmp_path / "run").audit().ok
    np.testing.assert_array_equal(load_run(tmp_path / "run").parameters["w"], [2.0])


@pytest.mark.parametrize("forged", ["another one", "the last one"])
def test_a_forged_best_model_of_an_unfinished_run_is_found(forged: str) -> None:
    arbiter = on_a_curve([0, 3, 1, 2])
    run, ledger = played(arbiter)
    snapshot = run.state.snapshot()
    kept = {name: np.array(value) for name, value in unpack(snapshot.state).items()}
    assert kept["best"].tolist() == [1.0]
    kept["best"] = np.array([2.0]) if forged == "another one" else np.zeros(0)
    changed = replace(snapshot, state=pack(kept))
    assert audit_entries(ledger.store.entries(), snapshot).ok
    found = audit_entries(ledger.store.entries(), changed)
    assert found.first_broken == "the stored best model is not the one of the round that reached it"


def falling_market() -> Arbiter:
    """The first updates help; then the wrong labels, which all have, lead the model away again."""
    rng = np.random.default_rng(2)
    providers = [Provider(f"p{i}", data=blobs(rng, 40, flip=0.9), oracle=LocalSGD(0.1, 8)) for i in range(3)]
    model = torch.nn.Linear(4, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    train, holdout, audit = blobs(rng, 30), blobs(rng, 40), blobs(rng, 40)
    consumer = Consumer(model, holdout=holdout, train=train, audit=audit, budget=12, per_round=3)
    return Arbiter(consumer, providers, device="cpu")


def test_the_folder_holds_the_best_model_and_beside_it_the_last(tmp_path: Path) -> None:
    path = tmp_path / "run"
    arbiter = falling_market()
    report = arbiter.run(path)
    assert report.best is not None and report.best.round < len(report.rounds)
    assert report.model_hash != report.last_model_hash
    finished = load_run(path, torch.nn.Linear(4, 2))
    assert finished.model is not None
    x, y = (part.numpy() for part in arbiter.consumer.holdout)
    task = arbiter.consumer.task
    assert torch.equal(task.layout.flatten(finished.model), arbiter.parameters)
    assert finished.evaluate((x, y))["log_loss"] == pytest.approx(report.best.loss, rel=1e-5)
    assert torch.equal(torch.from_numpy(RunFolder(path).delivered()), arbiter.parameters)
    assert RunFolder(path).audit().ok
    shutil.copy(path / LAST / Path(MODEL).name, path / MODEL)
    with pytest.raises(BazaarError, match=r"it was changed.*put the old file back"):
        RunFolder(path).delivered()
    assert "does not hold the model that the ledger names" in RunFolder(path).audit().message


def test_where_the_last_model_is_the_best_it_is_kept_once(tmp_path: Path) -> None:
    report = on_a_curve([0, 1, 2]).run(tmp_path / "run")
    assert report.model_hash == report.last_model_hash
    assert not (tmp_path / "run" / LAST).exists()


@pytest.mark.parametrize("forgery", ["the last one in place of the best", "another last one"])
def test_no_model_in_the_folder_is_another_than_the_ledgers(tmp_path: Path, forgery: str) -> None:
    path, made = tmp_path / "run", falling_market()
    Arbiter(made.consumer, made.providers, device="cpu", market="shop").run(path)
    best, last = path / MODEL, path / LAST / Path(MODEL).name
    assert RunFolder(path).audit().ok
    if forgery.startswith("the last"):
        shutil.copy(last, best)
    else:
        shutil.copy(best, last)
    assert "does not hold the model that the ledger names" in RunFolder(path).audit().message


@pytest.mark.parametrize("content", ["[" * 100_000, '{"rows": 1e999}', "[]"])
def test_notes_that_cannot_be_read_say_nothing(tmp_path: Path, content: str) -> None:
    on_a_curve([0, 1]).run(tmp_path / "run")
    for name in (WORTH, PRIVACY):
        (tmp_path / "run" / name).write_text(content)
    assert RunFolder(tmp_path / "run").report().worth is None and not RunFolder(tmp_path / "run").privacy()
