"""What MLflowCallback logs, as MLflow's own client reads it back from a store in files."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from databazaar import Arbiter, BazaarError, Progress
from databazaar.callbacks import MLflowCallback
from databazaar.money import Currency
from small_markets import torch_market, vector_market

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

pytestmark = pytest.mark.process  # MLflow looks whether the machine has IPv6, by a socket
ODD = ["plain-1.2", "Café #1", "Café *1", "../up", ".", "a/b//c", "x" * 400]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlruns").as_uri()


def client(store: str) -> MlflowClient:
    """MLflow takes a second to load, which the processes that do not run these tests are spared."""
    from mlflow.tracking import MlflowClient

    return MlflowClient(store)


def runs(store: str, experiment: str = "databazaar") -> list[Run]:
    found = client(store).get_experiment_by_name(experiment)
    assert found is not None
    return list(client(store).search_runs([found.experiment_id]))


def test_a_run_is_logged_with_terms_curves_outcome_and_proofs(store: str) -> None:
    consumer, providers = torch_market(currency=Currency("EUR", 2))
    callback = MLflowCallback("banks", store, run_name="first")
    report = Arbiter(consumer, providers, device="cpu", seed=7).run(callbacks=[callback])
    (run,) = runs(store, "banks")
    assert run.info.run_id == callback.run_id
    assert (run.info.status, run.info.run_name) == ("FINISHED", "first")
    assert run.data.params["sampler"] == "adaptive" and float(run.data.params["sampler.alpha"]) == 0.01
    assert (run.data.params["seed"], run.data.params["budget"]) == ("7", "0.20 EUR")
    assert run.data.tags["ledger_head"] == report.ledger_head
    assert run.data.metrics["final/utility"] == report.final_utility
    assert run.data.metrics["final/refunded"] == report.refunded / 100
    frame = report.to_frame("rounds")
    for column in ("utility", "loss", "spent"):
        history = client(store).get_metric_history(run.info.run_id, column)
        assert {one.step: one.value for one in history} == dict(zip(frame["round"][1:], frame[column][1:], strict=True))
    assert {line.provider: run.data.metrics[f"pay/{line.provider}"] for line in report.payouts} == {
        line.provider: line.pay / 100 for line in report.payouts
    }


def test_every_provider_has_a_metric_of_its_own_whatever_it_is_called(store: str) -> None:
    consumer, providers = vector_market([0.1] * len(ODD))
    named = [replace(provider, id=name) for provider, name in zip(providers, ODD, strict=True)]
    report = Arbiter(consumer, named, engine="loop").run(callbacks=[MLflowCallback(tracking_uri=store)])
    (run,) = runs(store)
    pay = sorted(value for name, value in run.data.metrics.items() if name.startswith("pay/"))
    assert pay == sorted(line.pay for line in report.payouts)


def test_each_run_of_one_callback_is_a_run_of_its_own_unless_it_goes_on(store: str, tmp_path: Path) -> None:
    def arbiter() -> Arbiter:
        return Arbiter(*vector_market(), engine="loop")

    def interrupt(progress: Progress) -> None:
        if progress.round == 3:
            raise KeyboardInterrupt

    callback = MLflowCallback(tracking_uri=store)
    arbiter().run(callbacks=[callback])
    with pytest.raises(KeyboardInterrupt):
        arbiter().run(tmp_path / "run", callbacks=[callback, interrupt])
    assert sorted(run.info.status for run in runs(store)) == ["FINISHED", "KILLED"]
    report = arbiter().run(tmp_path / "run", callbacks=[MLflowCallback(tracking_uri=store, run_id=callback.run_id)])
    assert [run.info.status for run in runs(store)] == ["FINISHED", "FINISHED"]
    assert callback.run_id is not None
    history = client(store).get_metric_history(callback.run_id, "utility")
    assert {one.step for one in history} == set(range(1, len(report.rounds) + 1))


def test_what_mlflow_lacks_or_refuses_is_one_sentence(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, providers = vector_market()

    def run(callback: MLflowCallback) -> None:
        Arbiter(consumer, providers, engine="loop").run(callbacks=[callback])

    with pytest.raises(BazaarError, match=r"MLflow could not begin this run \(.*not found.*\): check"):
        run(MLflowCallback(tracking_uri=store, run_id="0" * 32))
    monkeypatch.setitem(sys.modules, "alembic", None)
    with pytest.raises(BazaarError, match=r"needs alembic.*, which the full mlflow brings: `pip install mlflow`"):
        run(MLflowCallback(tracking_uri=f"sqlite:///{tmp_path}/ml.db"))
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", None)
    with pytest.raises(BazaarError, match=r"pip install 'databazaar\[mlflow\]'"):
        run(MLflowCallback(tracking_uri=store))
