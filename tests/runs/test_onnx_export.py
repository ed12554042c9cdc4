"""An exported model answers as ours does, for any number of rows; what cannot be exported is said in a sentence."""

from __future__ import annotations

import copy
import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from databazaar import BazaarError, build_model, load_model
from databazaar.learning.losses import LOSSES
from databazaar.learning.models import Layout
from databazaar.learning.task import Task
from databazaar.runs.model_folder import Outline, write_model
from databazaar.runs.onnx import export_onnx
from databazaar.runs.trained import TrainedModel


def trained(folder: Path, model: nn.Module) -> TrainedModel:
    write_model(folder, Layout.of(model).flatten(model).numpy(), Outline.of(Task(model, LOSSES["cross-entropy"])))
    return load_model(folder)


def test_a_network_of_images_is_exported(tmp_path: Path) -> None:
    found = trained(tmp_path, build_model("cnn", (3, 9, 8), 4))
    difference = export_onnx(found, tmp_path / "model.onnx")
    assert difference is not None and difference < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for rows in (1, 7):
        x = np.random.default_rng(rows).normal(size=(rows, 3 * 9 * 8)).astype(np.float32)
        logits, shares = session.run(None, {"features": x})
        np.testing.assert_allclose(shares, found.predict_proba(x), atol=1e-6)
        assert logits.shape == (rows, 4)


def test_a_model_of_ones_own_is_exported_by_oneself(tmp_path: Path) -> None:
    found = trained(tmp_path, nn.Linear(2, 2))
    with pytest.raises(BazaarError, match=r"torch\.onnx\.export writes it from your module"):
        export_onnx(found, tmp_path / "model.onnx")


def without(monkeypatch: pytest.MonkeyPatch, *absent: str) -> None:
    real = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in absent else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = trained(tmp_path, build_model("logistic", [2], 2))
    without(monkeypatch, "onnx", "onnxscript")
    with pytest.raises(BazaarError, match=r"onnx and onnxscript is needed .* pip install 'databazaar\[onnx\]'"):
        export_onnx(found, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_answers_that_differ_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = trained(tmp_path, build_model("logistic", [2], 2))
    export = torch.onnx.export
    made: list[object] = []

    def worse(module: nn.Module, *args: object, **more: object) -> object:
        """Writes another model, once and for all."""
        if not made:
            other = copy.deepcopy(module)
            other.model = build_model("logistic", [2], 2, seed=5)
            made.append(export(other.eval(), *args, **more))  # type: ignore[arg-type]
        return made[0]

    with monkeypatch.context() as patch:
        patch.setattr(torch.onnx, "export", worse)
        with pytest.raises(BazaarError, match="answers otherwise than ours"):
            export_onnx(found, tmp_path / "model.onnx")
        assert not (tmp_path / "model.onnx").exists()
        without(patch, "onnxruntime")
        assert export_onnx(found, tmp_path / "model.onnx") is None  # nobody to ask
