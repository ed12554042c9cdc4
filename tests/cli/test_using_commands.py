"""predict, evaluate and export: what a buyer does with the model, from the command line."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from cli_markets import bazaar, contents, edit, executable, table, write_market
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, r2_score, roc_auc_score

from databazaar import load_run

pytestmark = pytest.mark.usefixtures("no_figures_here")
NAMES = {0: "genuine", 1: "fraud"}


def named(rows: int, seed: int) -> pd.DataFrame:
    frame = table(rows, seed, "classification")
    return frame.assign(target=frame["target"].map(NAMES))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of each task in one folder; the classes have names."""
    folder = tmp_path_factory.mktemp("runs")
    for task in ("classification", "regression"):
        market = write_market(folder / task, task, budget='"20.00"')
        for path in (folder / task).glob("*.csv"):
            frame = pd.read_csv(path)
            if task == "classification":
                frame["target"] = frame["target"].map(NAMES)
            frame.to_csv(path, index=False)
        assert bazaar("run", market, "--out", folder / task / "run", "--quiet").code == 0
    return folder


def test_new_rows_are_predicted_in_their_order(runs: Path, tmp_path: Path) -> None:
    new = named(40, 8).drop(columns="target")
    new.to_csv(tmp_path / "new.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet")
    run = runs / "classification/run"
    told = bazaar("predict", run, tmp_path / "new.csv")
    assert (told.code, told.err) == (0, "") and len(told.out.splitlines()) == 41
    found = pd.read_csv(io.StringIO(told.out))
    expected = load_run(run).predict(new)
    pd.testing.assert_frame_equal(found, expected)
    assert list(found.columns) == ["prediction", "probability_fraud", "probability_genuine"]
    likeliest = found[["probability_fraud", "probability_genuine"]].idxmax(axis=1)
    assert ("probability_" + found["prediction"] == likeliest).all()
    assert bazaar("predict", run, tmp_path / "new.parquet").out == told.out
    assert bazaar("predict", run / "model", tmp_path / "new.csv").out == told.out


def test_predictions_go_to_a_file_beside_the_rows(runs: Path, tmp_path: Path) -> None:
    new = named(10, 8)
    new.to_csv(tmp_path / "new.csv", index=False)
    run = runs / "classification/run"
    for out in ("deep/answers.csv", "answers.parquet"):
        told = bazaar("predict", run, "new.csv", "--keep", "--out", out, cwd=tmp_path)
        assert told.out == f"{out}: 10 predictions\n"
        found = pd.read_csv(tmp_path / out) if out.endswith("csv") else pd.read_parquet(tmp_path / out)
        pd.testing.assert_frame_equal(found[list(new.columns)], new)
        pd.testing.assert_frame_equal(found.drop(columns=list(new.columns)), load_run(run).predict(new))
    new.assign(prediction=1).to_csv(tmp_path / "taken.csv", index=False)
    complaint = bazaar("predict", run, tmp_path / "taken.csv", "--keep").complaint
    assert "a column 'prediction' already" in complaint


def test_a_regression_answers_in_the_targets_units(runs: Path, tmp_path: Path) -> None:
    test = table(200, 8, "regression")
    test.to_csv(tmp_path / "test.csv", index=False)
    run = runs / "regression/run"
    found = pd.read_csv(io.StringIO(bazaar("predict", run, tmp_path / "test.csv").out))["prediction"]
    assert found.std() == pytest.approx(test["target"].std(), rel=0.5)
    told = json.loads(bazaar("evaluate", run, tmp_path / "test.csv", "--json", "--out", tmp_path / "q").out)
    assert told["metrics"]["r2"] == pytest.approx(r2_score(test["target"], found), abs=1e-6)
    assert told["metrics"]["mae"] == pytest.approx(mean_absolute_error(test["target"], found), rel=1e-6)
    assert sorted(contents(tmp_path / "q")) == ["metrics.json", "predicted.png"]


def test_an_evaluation_is_scikit_learns(runs: Path, tmp_path: Path) -> None:
    test = named(300, 8)
    test.to_csv(tmp_path / "test.csv", index=False)
    run = Path(shutil.copytree(runs / "classification/run", tmp_path / "run"))
    told = json.loads(bazaar("evaluate", run, tmp_path / "test.csv", "--json").out)
    found = load_run(run).predict(test)
    shares = found[["probability_fraud", "probability_genuine"]].to_numpy()
    assert told["rows"] == 300
    assert told["metrics"]["accuracy"] == accuracy_score(test["target"], found["prediction"])
    assert told["metrics"]["log_loss"] == pytest.approx(log_loss(test["target"], shares))
    assert told["metrics"]["auc"] == pytest.approx(roc_auc_score(test["target"] == "genuine", shares[:, 1]))
    assert all(low < told["metrics"][name] < high for name, (low, high) in told["intervals_95"].items())
    assert json.loads((run / "evaluation/metrics.json").read_text()) == told
    pictures = {"calibration.png", "confusion.png", "roc.png"}
    assert {path.name for path in (run / "evaluation").glob("*.png")} == pictures
    said = bazaar("evaluate", run, tmp_path / "test.csv")
    assert said.code == 0
    assert all(word in said.out for word in ("accuracy", "95 %:", str(run / "evaluation/roc.png")))
    assert bazaar("audit", run).code == 0


def test_rows_without_a_target_are_left_out_and_one_class_has_no_auc(runs: Path, tmp_path: Path) -> None:
    test = named(30, 8)
    test.loc[:4, "target"] = None
    test[test["target"] != "fraud"].to_csv(tmp_path / "test.csv", index=False)
    said = bazaar("evaluate", runs / "classification/run", tmp_path / "test.csv", "--out", tmp_path / "q")
    assert "5 of" in said.err and "have no 'target' and are left out" in said.err
    assert "AUC          –  (all rows are of one class)" in said.out
    told = json.loads((tmp_path / "q/metrics.json").read_text())
    assert told["metrics"]["auc"] is None and told["intervals_95"]["auc"] == [None, None]


def test_a_table_written_in_another_way_is_found_out(runs: Path, tmp_path: Path) -> None:
    """Semicolons and decimal commas, as a spreadsheet saves them, and an encoding that must be guessed."""
    new = named(20, 8)
    new.assign(channel="café").to_csv(tmp_path / "old.csv", index=False, encoding="cp1252")
    told = bazaar("predict", runs / "classification/run", tmp_path / "old.csv")
    assert told.code == 0 and told.err.startswith("bazaar: note: ") and "Windows-1252" in told.err
    new.to_csv(tmp_path / "plain.csv", index=False)
    new.to_csv(tmp_path / "office.csv", index=False, sep=";", decimal=",")
    run = runs / "classification/run"
    assert bazaar("predict", run, tmp_path / "office.csv").out == bazaar("predict", run, tmp_path / "plain.csv").out


def test_the_markets_own_way_of_writing_is_kept(tmp_path: Path) -> None:
    market = write_market(tmp_path, budget='"5.00"')
    edit(market, 'task = "classification"', 'task = "classification"\nseparator = "|"\nmissing = ["?"]')
    for path in tmp_path.glob("*.csv"):
        pd.read_csv(path).to_csv(path, index=False, sep="|")
    assert bazaar("run", market, "--out", tmp_path / "run", "--quiet").code == 0
    (tmp_path / "new.csv").write_text("amount|hour|channel\n?|3|web\n20,5|4|shop\n")
    bought = load_run(tmp_path / "run")
    frame = bought.read_table(tmp_path / "new.csv").frame
    assert frame["amount"].isna().tolist() == [True, False]
    assert bazaar("predict", tmp_path / "run/model", tmp_path / "new.csv").code == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["predict", "RUN", "lacking.csv"], "lacking.csv: the feature column 'channel' of the hold-out is missing"),
        (["predict", "RUN", "new.csv", "--out", "x.xlsx"], "write to a .csv or a .parquet file"),
        (["predict", "RUN", "absent.csv"], "does not exist"),
        (["predict", "nowhere", "new.csv"], "neither a run's folder nor a model folder"),
        (["evaluate", "RUN", "new.csv"], "the target column 'target' of the hold-out is missing"),
        (["evaluate", "RUN", "unknown.csv"], "has the class forgery in data row 2"),
        (["evaluate", "RUN", "new.csv", "--out", "new.csv/there"], "the target column"),
        (["export", "nowhere"], "neither a run's folder nor a model folder"),
    ],
)
def test_what_does_not_fit_is_one_sentence(runs: Path, tmp_path: Path, args: list[str], words: str) -> None:
    frame = named(5, 8)
    frame.drop(columns="target").to_csv(tmp_path / "new.csv", index=False)
    frame.drop(columns=["target", "channel"]).to_csv(tmp_path / "lacking.csv", index=False)
    frame.assign(target=["fraud", "forgery", "fraud", "fraud", "genuine"]).to_csv(tmp_path / "unknown.csv", index=False)
    before = contents(tmp_path)
    given = [str(runs / "classification/run") if arg == "RUN" else arg for arg in args]
    assert words in bazaar(*given, cwd=tmp_path).complaint
    assert contents(tmp_path) == before


def test_an_unfinished_run_and_a_changed_model_are_one_sentence(runs: Path, tmp_path: Path) -> None:
    named(5, 8).to_csv(tmp_path / "new.csv", index=False)
    run = Path(shutil.copytree(runs / "classification/run", tmp_path / "run"))
    model = run / "model/model.safetensors"
    whole = model.read_bytes()
    model.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "it was changed" in bazaar("predict", run, tmp_path / "new.csv").complaint
    model.write_bytes(whole)
    (run / "summary.json").unlink()
    complaint = bazaar("predict", run, tmp_path / "new.csv").complaint
    assert f"`bazaar run {run}`" in complaint and f"`bazaar close {run}`" in complaint


def test_a_regression_is_exported_in_its_own_units(runs: Path, tmp_path: Path) -> None:
    told = bazaar("export", runs / "regression/run", "--out", tmp_path / "model.onnx")
    assert (told.code, told.err) == (0, "") and "model.onnx is written; checked with onnxruntime" in told.out
    bought, new = load_run(runs / "regression/run"), table(9, 8, "regression")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert bought.schema is not None
    (numbers,) = session.run(None, {"features": bought.schema.encode_features(new, "new")})
    np.testing.assert_allclose(numbers[:, 0], bought.predict(new)["prediction"], rtol=1e-5, atol=1e-5)


@pytest.mark.process
def test_a_model_leaves_the_house_as_onnx_and_answers_alike(runs: Path, tmp_path: Path) -> None:
    """In a process of its own, where nothing that torch's exporter says may reach the user."""
    run = Path(shutil.copytree(runs / "classification/run", tmp_path / "run"))
    told = executable("export", run)
    assert told.code == 0 and told.err == "", told
    assert told.out.startswith(f"{run / 'model.onnx'} is written; checked with onnxruntime")
    bought = load_run(run)
    new = named(9, 8)
    session = onnxruntime.InferenceSession(run / "model.onnx", providers=["CPUExecutionProvider"])
    assert bought.schema is not None
    _, shares = session.run(None, {"features": bought.schema.encode_features(new, "new")})
    np.testing.assert_allclose(shares, bought.predict_proba(new), atol=1e-6)
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == list(bought.class_names)
