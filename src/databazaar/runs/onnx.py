"""A trained model as ONNX, for places where neither databazaar nor torch is."""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from databazaar.errors import BazaarError
from databazaar.files import write_whole
from databazaar.runs.model_folder import ModelCard
from databazaar.runs.trained import TrainedModel

ROWS = 16
"""Rows of random features that the exported model is asked, to compare its answers with our own."""
TOLERANCE = 1e-4


class _Answers(nn.Module):
    """Encoded features [rows, width] to logits and probabilities, or to numbers in the target's own units."""

    def __init__(self, trained: TrainedModel, model: nn.Module, inputs: tuple[int, ...]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs
        self.classifies, units = trained.task == "classification", trained.card.units
        self.names = ("logits", "probabilities") if self.classifies else ("prediction",)
        self.mean, self.scale = (0.0, 1.0) if units is None else (units.mean, units.scale)

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        outputs: Tensor = self.model(features.reshape(-1, *self.inputs))
        return (outputs, torch.softmax(outputs, 1)) if self.classifies else (outputs * self.scale + self.mean,)


def export_onnx(trained: TrainedModel, path: Path) -> float | None:
    """Writes the model as ONNX: encoded features go in, answers come out; the preprocessing stays in schema.json. Where
    onnxruntime is installed, the file's answers are compared with the model's own before it is written, and the largest
    difference is returned."""
    form = trained.card.form
    if not isinstance(trained.model, nn.Module) or form is None:
        raise BazaarError(
            f"{trained.path} holds a model of its maker's own: torch.onnx.export writes it from your module"
        )
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise BazaarError(f"{' and '.join(missing)} is needed to write ONNX: pip install 'databazaar[onnx]'")
    module, width = _Answers(trained, trained.model, form.inputs), int(np.prod(form.inputs))
    content = _exported(module, width, trained.card)
    difference = _checked(content, module, width)
    write_whole(path, content)
    return difference


def _exported(module: _Answers, width: int, card: ModelCard) -> bytes:
    with _quietly():
        program = torch.onnx.export(
            module.eval(),
            (torch.zeros(2, width),),
            input_names=["features"],
            output_names=list(module.names),
            dynamic_shapes=({0: torch.export.Dim("rows")},),
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        about = {"target": card.target or "", "classes": json.dumps(card.classes), "model_hash": card.model_hash}
        program.model.metadata_props.update(about)
        return bytes(program.model_proto.SerializeToString())


def _checked(content: bytes, module: _Answers, width: int) -> float | None:
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    features = torch.randn(ROWS, width, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours = module(features)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    theirs = session.run(None, {"features": features.numpy()})
    pairs = [(mine.numpy(), other) for mine, other in zip(ours, theirs, strict=True)]
    difference = max(float(np.abs(mine - other).max()) for mine, other in pairs)
    if not all(np.allclose(mine, other, rtol=TOLERANCE, atol=TOLERANCE) for mine, other in pairs):
        raise BazaarError(f"the exported model answers otherwise than ours (by {difference:.2g}): nothing was written")
    return difference


@contextmanager
def _quietly() -> Iterator[None]:
    """Keeps from the user what torch's exporter says of its own workings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
