"""A bought model comes back as it was, from its folder alone; a folder that does not fit is refused in a sentence."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from cli_markets import bazaar, table, write_market
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import nn

import processes
from databazaar import Arbiter, BazaarError, Consumer, Provider, build_model, load_model, load_run
from databazaar.data.schema import Schema
from databazaar.files import write_whole
from databazaar.learning.losses import LOSSES
from databazaar.learning.models import Layout
from databazaar.learning.task import Task
from databazaar.runs.close import close_run
from databazaar.runs.folder import RunFolder
from databazaar.runs.model_folder import LARGEST_CARD, Outline, read_model, write_model
from databazaar.runs.trained import TrainedModel, load

pytestmark = pytest.mark.usefixtures("no_figures_here")
KINDS = {
    "linear": ((5,), 1, ()),
    "logistic": ((5,), 3, ()),
    "mlp": ((5,), 2, (7, 4)),
    "cnn": ((2, 8, 9), 4, ()),
}


def written(folder: Path, model: nn.Module, loss: str = "cross-entropy", schema: Schema | None = None) -> nn.Module:
    task = Task(model, LOSSES[loss])
    write_model(folder, Layout.of(model).flatten(model).numpy(), Outline.of(task), schema)
    return model.eval()


def inputs_for(shape: tuple[int, ...], rows: int = 6) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(rows, *shape)).astype(np.float32)


@pytest.fixture(scope="module", params=["classification", "regression"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a market.toml."""
    folder = tmp_path_factory.mktemp(request.param)
    market = write_market(folder, request.param, budget='"10.00"')
    assert bazaar("run", market, "--out", folder / "run", "--quiet").code == 0
    return folder / "run"


@pytest.mark.parametrize("kind", KINDS)
def test_every_built_in_kind_comes_back_with_its_answers(kind: str, tmp_path: Path) -> None:
    inputs, outputs, hidden = KINDS[kind]
    loss = "squared-error" if kind == "linear" else "cross-entropy"
    model = written(tmp_path / "model", build_model(kind, inputs, outputs, hidden=hidden, seed=3), loss)
    found = load_model(tmp_path / "model")
    x = inputs_for(inputs)
    with torch.no_grad():
        expected = model(torch.from_numpy(x)).numpy()
    assert found.model is not None and not found.model.training
    assert repr(found.model) == repr(model)
    if kind == "linear":
        np.testing.assert_array_equal(found.predict(x)["prediction"], expected[:, 0])
        with pytest.raises(BazaarError, match="no probabilities"):
            found.predict_proba(x)
    else:
        shares = torch.softmax(torch.from_numpy(expected).double(), 1).numpy()
        np.testing.assert_allclose(found.predict_proba(x), shares, rtol=1e-12)
        assert found.predict(x)["prediction"].tolist() == [str(place) for place in expected.argmax(1)]
    flat = found.encode(x.reshape(len(x), -1))
    np.testing.assert_array_equal(flat, x)
    assert kind in repr(found) and len(repr(found).splitlines()) < 12
    with pytest.raises(BazaarError, match="does not fit the model's inputs"):
        found.predict(np.zeros((2, 3)))
    with pytest.raises(BazaarError, match="not numbers in rows"):
        found.predict([["a", "b"]])


def test_a_run_of_a_market_is_used_as_it_is(run: Path) -> None:
    bought = load_run(run)
    assert bought.model is not None and bought.schema is not None and bought.task is not None
    new = table(50, 9, bought.task).sample(frac=1, random_state=0)
    features = new[["channel", "hour", "amount"]].assign(id=range(50))  # other order, no target, one column more
    predictions = bought.predict(features)
    assert predictions.index.equals(new.index)
    by_hour = bought.predict(features.set_index("hour"))  # an index with a name is a column, as in a Parquet file
    assert by_hour.to_numpy().tolist() == predictions.to_numpy().tolist() and by_hour.index.name == "hour"
    assert bought.evaluate(new.set_index("hour")) == bought.evaluate(new)
    with torch.no_grad():
        outputs = bought.model(torch.from_numpy(bought.schema.encode_features(new, "new"))).double()
    if bought.task == "classification":
        shares = torch.softmax(outputs, 1).numpy()
        assert list(predictions.columns) == ["prediction", "probability_0", "probability_1"]
        np.testing.assert_allclose(predictions.iloc[:, 1:], shares, rtol=1e-12)
        np.testing.assert_allclose(bought.predict_proba(features), shares, rtol=1e-12)
        assert predictions["prediction"].tolist() == shares.argmax(1).tolist()
        assert bought.evaluate(new)["accuracy"] == (predictions["prediction"] == new["target"]).mean()
    else:
        assert list(predictions.columns) == ["prediction"]
        np.testing.assert_allclose(predictions["prediction"], bought.schema.in_units(outputs.numpy()[:, 0]))
        rmse = float(np.sqrt(((predictions["prediction"] - new["target"]) ** 2).mean()))
        assert bought.evaluate(new)["rmse"] == pytest.approx(rmse, rel=1e-6)
    assert bought.to_frame()["pay"].sum() == pytest.approx(bought.report.spent / 100)
    assert bought.report.model_hash == bought.card.model_hash
    assert (
        "settled after" in repr(bought)
        and "settled after" in bought._repr_html_()
        and len(repr(bought).splitlines()) < 25
    )
    assert RunFolder(run).audit().ok


@pytest.mark.parametrize("run", ["classification"], indirect=True)
@pytest.mark.process
def test_the_folder_goes_elsewhere_and_works_there_without_the_run(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "model", tmp_path / "elsewhere")
    bought = load_run(run)
    assert bought.task is not None
    new = table(20, 5, bought.task).drop(columns="target")
    new.to_parquet(tmp_path / "new.parquet")
    code = """
import sys, databazaar, pandas as pd
model = databazaar.load_model("elsewhere")
model.predict(pd.read_parquet("new.parquet")).to_parquet("answers.parquet")
"""
    done = processes.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "answers.parquet"), bought.predict(new))
    assert isinstance(load(tmp_path / "elsewhere"), TrainedModel)


@pytest.mark.parametrize("run", ["classification"], indirect=True)
@pytest.mark.process
def test_reading_needs_no_torch(run: Path) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
from pathlib import Path
from databazaar.runs.folder import RunFolder
from databazaar.runs.model_folder import read_model
path = Path({str(run)!r})
assert RunFolder(path).audit().ok
assert sorted(read_model(path / "model").weights) == ["1.bias", "1.weight"]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def market_of(model: Any, holdout: Any, **more: Any) -> Arbiter:
    consumer = Consumer(model, budget=4, per_round=2, holdout=holdout, **more)
    return Arbiter(consumer, [Provider("p", holdout)], engine="loop")


def test_a_run_from_python_needs_no_schema(tmp_path: Path) -> None:
    x, y = inputs_for((3,), 20), np.arange(20) % 2
    arbiter = market_of("mlp", (x, y))
    arbiter.run(tmp_path / "run")
    bought = load_run(tmp_path / "run")
    with torch.no_grad():
        expected = torch.softmax(arbiter.model(torch.from_numpy(x)).double(), 1).numpy()
    np.testing.assert_allclose(bought.predict_proba(x), expected, rtol=1e-12)
    assert bought.evaluate((x, y))["accuracy"] == (expected.argmax(1) == y).mean()
    assert bought.schema is None and "no preprocessing" in repr(bought)
    with pytest.raises(BazaarError, match="give \\(x, y\\) as arrays"):
        bought.evaluate(pd.DataFrame(x))


class Own(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, width), nn.BatchNorm1d(width)
        self.last = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.norm(self.layer(x)))
        return found


def test_a_model_of_ones_own_is_filled_again(tmp_path: Path) -> None:
    x, y = inputs_for((3,), 20), np.arange(20) % 2
    arbiter = market_of(Own(), (x, y))
    arbiter.run(tmp_path / "run")
    bare = load_run(tmp_path / "run")
    assert bare.model is None and bare.parameters["layer.weight"].shape == (3, 3)
    with pytest.raises(BazaarError, match="load_run\\(path, model="):
        bare.predict(x)
    bought = load_run(tmp_path / "run", model=Own())
    with torch.no_grad():
        expected = torch.softmax(arbiter.model(torch.from_numpy(x)).double(), 1).numpy()
    np.testing.assert_allclose(bought.predict_proba(x), expected, rtol=1e-12)
    with pytest.raises(BazaarError, match=r"'layer.weight' is \[3, 3\] in the file and \[4, 3\] in the model"):
        load_run(tmp_path / "run", model=Own(4))
    with pytest.raises(BazaarError, match=r"'layer.weight' is \[3, 3\] in the file and missing in the model"):
        load_run(tmp_path / "run", model=nn.ReLU())


def test_a_built_in_model_that_was_altered_is_ones_own(tmp_path: Path) -> None:
    model = build_model("mlp", [4], 2)
    assert isinstance(model, nn.Sequential)
    model[2] = nn.Tanh()
    written(tmp_path, model)
    assert load_model(tmp_path).model is None


def test_outputs_that_are_no_classes_are_refused(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (2, 2)))
    written(tmp_path, model)
    with pytest.raises(BazaarError, match="not one for each class"):
        load_model(tmp_path, model).predict(np.zeros((2, 4)))


def test_a_model_that_is_a_vector_has_parameters_alone(tmp_path: Path) -> None:
    consumer = Consumer(np.zeros(2), budget=6, per_round=2, utility=lambda w: float(w.sum()))
    Arbiter(consumer, [Provider("p", oracle=lambda w: w + 1)], engine="loop").run(tmp_path / "run")
    bought = load_run(tmp_path / "run")
    assert bought.model is None and bought.parameters["w"].shape == (2,)
    assert "its maker" in repr(bought) and "not known" in repr(bought)
    with pytest.raises(BazaarError, match="does not say what its model answers"):
        bought.predict(np.zeros((1, 2)))


def test_a_run_that_its_consumer_closed_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = inputs_for((3,), 20), np.arange(20) % 2

    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        market_of("logistic", (x, y)).run(tmp_path / "run", tell=stop)
    with pytest.raises(BazaarError, match=r"bazaar run .* goes on with it, `bazaar close .* ends it"):
        load_run(tmp_path / "run")

    def cut(path: Path, content: bytes, **more: Any) -> None:
        if path.name == "summary.json":
            raise KeyboardInterrupt
        write_whole(path, content, **more)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("databazaar.runs.folder.write_whole", cut)
        close_run(tmp_path / "run")
    close_run(tmp_path / "run")
    assert load_run(tmp_path / "run").predict(x).shape == (20, 3)
    assert RunFolder(tmp_path / "run").audit().ok


# What is refused.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with all its files."""
    frame = table(40, 0, "classification")
    schema = Schema.fit(frame, target="target", task="classification")
    written(tmp_path / "model", build_model("mlp", [schema.width], 2, hidden=[3]), schema=schema)
    assert read_model(tmp_path / "model").schema == schema
    return tmp_path / "model"


def card(folder: Path, **changes: Any) -> None:
    told = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**told, **changes}))


class Bomb:
    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return Path.write_text, (Path("exploded"), "boom")  # type: ignore[return-value]


def refused(folder: Path, words: str) -> None:
    with pytest.raises(BazaarError, match=words) as told:
        load_model(folder)
    assert "\n" not in str(told.value) and len(str(told.value)) < 600
    assert folder.name in str(told.value)


def test_a_pickle_is_never_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for content in (pickle.dumps(Bomb()), b"\x80\x04.", b""):
        (folder / "model.safetensors").write_bytes(content)
        refused(folder, "cannot be read as safetensors")
    torch.save({"1.weight": Bomb()}, folder / "model.safetensors")
    refused(folder, "cannot be read as safetensors")
    (folder / "model.json").write_bytes(pickle.dumps(Bomb()))
    refused(folder, "cannot be read as JSON")
    assert not (folder / "exploded").exists()


def test_wrong_weights_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused(folder, "it was changed")
    path.write_bytes(whole[:-4])
    refused(folder, "cannot be read as safetensors")
    save_file({"1.weight": np.zeros((2, 2), dtype=np.float32)}, path)
    refused(folder, "cannot be read as safetensors")  # not in our order
    path.unlink()
    refused(folder, "is missing: copy the whole model folder")


def test_weights_of_other_shapes_are_refused(folder: Path) -> None:
    model = build_model("mlp", [read_model(folder).schema.width], 2, hidden=[3])  # type: ignore[union-attr]
    flat = Layout.of(model).flatten(model).numpy()
    tensors = Outline.of(Task(model, LOSSES["cross-entropy"])).tensors
    shapes = tuple((name, tuple(reversed(shape))) for name, shape in tensors)
    told = json.loads((folder / "model.json").read_text())
    write_model(folder, flat, Outline(tensors=shapes), read_model(folder).schema)
    card(folder, architecture=told["architecture"])
    refused(folder, "the weights do not fit the model")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2, "by": "databazaar 9"}, "newer version"),
        ({"format": "1"}, "format"),
        ({"more": 1}, "more: Extra inputs"),
        ({"task": "ranking"}, "task"),
        ({"model_hash": "0" * 64}, "it was changed"),
        ({"target": "other"}, "of another model"),
        ({"classes": ["1", "0"]}, "of another model"),
        ({"task": "regression"}, "of another model"),
        ({"architecture": {"kind": "mlp", "inputs": [5], "outputs": 2, "hidden": [2**31]}}, "other parameters"),
        ({"architecture": {"kind": "mlp", "inputs": [5], "outputs": 2, "hidden": [2**40]}}, "architecture.hidden"),
        ({"architecture": {"kind": "mlp", "inputs": [5], "outputs": 2, "hidden": [-3]}}, "architecture.hidden"),
        ({"architecture": {"kind": "os.system", "inputs": [5], "outputs": 2}}, "architecture.kind"),
        ({"architecture": {"kind": "cnn", "inputs": [5], "outputs": 2}}, "a cnn takes images"),
        ({"architecture": {"kind": "linear", "inputs": [1], "outputs": 13}}, "inputs and outputs"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(folder: Path, changes: dict[str, Any], words: str) -> None:
    card(folder, **changes)
    refused(folder, words)


@pytest.mark.parametrize("name", ["model.json", "schema.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff\xfe", b'{"format": 1', b"[" * 200_000])
def test_damaged_descriptions_are_refused(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    refused(folder, name)


def test_a_huge_description_is_not_read(folder: Path) -> None:
    with (folder / "model.json").open("wb") as file:
        file.truncate(50 * LARGEST_CARD)
    refused(folder, "more than 1,048,576 bytes")


@pytest.mark.parametrize("name", ["model.json", "schema.json"])
def test_a_folder_that_is_not_whole_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, f"{name} is missing")


def test_what_is_neither_run_nor_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BazaarError, match="neither a run's folder nor a model folder"):
        load(tmp_path)


def test_a_run_whose_model_was_exchanged_is_refused(run: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    stored = read_model(copied / "model")
    flat = np.concatenate([array.reshape(-1) + 1 for array in stored.weights.values()])
    shapes = tuple((name, array.shape) for name, array in stored.weights.items())
    write_model(copied / "model", flat, Outline(tensors=shapes, architecture=stored.card.architecture), stored.schema)
    load_model(copied / "model")
    with pytest.raises(BazaarError, match="not the one that the run ended with"):
        load_run(copied)
    assert "does not hold the model that the ledger names" in RunFolder(copied).audit().message


@pytest.mark.parametrize("content", [None, b"{", b"{}"])
def test_an_audit_finds_other_preprocessing(run: Path, tmp_path: Path, content: bytes | None) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "run"))
    (copied / "model/schema.json").unlink()
    if content is not None:
        (copied / "model/schema.json").write_bytes(content)
    assert "model/schema.json is not the preprocessing" in RunFolder(copied).audit().message
