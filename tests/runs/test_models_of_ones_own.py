"""Models of the user's own, and tables with a named index, through a run's folder and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from databazaar import Arbiter, Consumer, Provider, load_run


def one_logit() -> nn.Module:
    return nn.Linear(3, 1)


def flat_logit() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 1), nn.Flatten(0))


def two_logits() -> nn.Module:
    return nn.Linear(3, 2)


@pytest.mark.parametrize(
    ("make", "loss"), [(one_logit, None), (flat_logit, None), (two_logits, None), (two_logits, nn.CrossEntropyLoss())]
)
def test_a_classifier_of_ones_own_is_kept_and_predicts(tmp_path: Path, make: type[nn.Module], loss: nn.Module) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = (x[:, 0] > 0).astype(int)
    torch.manual_seed(0)
    consumer = Consumer(make(), budget=40, per_round=2, holdout=(x[:100], y[:100]), loss=loss)
    Arbiter(consumer, [Provider("p", (x[100:], y[100:]))]).run(tmp_path / "run")
    bought = load_run(tmp_path / "run", model=make())
    told = bought.predict(x)
    assert list(told.columns) == ["prediction", "probability_0", "probability_1"]
    assert bought.evaluate((x, y))["accuracy"] == (told["prediction"].astype(int) == y).mean() > 0.9
    assert bought.model is not None
    with torch.no_grad():
        outputs = bought.model(torch.from_numpy(x.astype(np.float32)))
    logit = outputs[:, 1] - outputs[:, 0] if make is two_logits else outputs.reshape(-1)
    assert np.allclose(told["probability_1"], torch.sigmoid(logit), atol=1e-6)
