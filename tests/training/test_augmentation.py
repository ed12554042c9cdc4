"""Images that are moved and mirrored while a network is trained on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, BazaarError, Consumer, Provider, Uniform
from databazaar.learners import InRun
from databazaar.learning.inputs import NamedInputs
from databazaar.learning.models import build_model, form_of
from databazaar.models import ConvNet, ModelForm, parameter_count
from databazaar.training.augmentation import augmented


def changed(x: torch.Tensor, *settings: int) -> torch.Tensor:
    found = augmented(x, *settings)  # type: ignore[arg-type]
    assert isinstance(found, torch.Tensor)
    return found


def shifted(image: torch.Tensor, down: int, across: int) -> torch.Tensor:
    """Slowly: each pixel is the nearest one of where it came from."""
    found = torch.empty_like(image)
    _, height, width = image.shape
    for row in range(height):
        for column in range(width):
            from_row, from_column = min(max(row + down, 0), height - 1), min(max(column + across, 0), width - 1)
            found[:, row, column] = image[:, from_row, from_column]
    return found


@given(
    sides=st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)),
    shift=st.integers(0, 3),
    flip=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_image_is_moved_by_itself(sides: tuple[int, int, int], shift: int, flip: bool, seed: int) -> None:
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, *sides)).astype(np.float32))
    found = changed(x, shift, flip, seed, 2, 1)
    for image, moved in zip(x, found, strict=True):
        ways = [
            shifted(image, down, across) for down in range(-shift, shift + 1) for across in range(-shift, shift + 1)
        ]
        assert any(torch.equal(moved, one) for one in [*ways, *(one.flip(2) for one in ways if flip)])
    assert torch.equal(found, changed(x, shift, flip, seed, 2, 1))
    assert (shift or flip) or torch.equal(found, x)


def test_rounds_batches_and_seeds_differ_and_other_inputs_stay() -> None:
    x = torch.arange(8 * 36.0).view(8, 1, 6, 6)
    found = [changed(x, 2, True, *which) for which in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))]
    assert not any(torch.equal(one, other) for place, one in enumerate(found) for other in found[:place])
    assert torch.equal(changed(x.flatten(1), 2, True, 0, 0, 0), x.flatten(1))
    named = NamedInputs({"x": x})
    assert augmented(named, 2, True, 0, 0, 0) is named


def test_a_convnet_has_the_parameters_that_are_said() -> None:
    model = build_model("convnet", [3, 30, 21], 7)
    assert sum(p.numel() for p in model.parameters()) == parameter_count("convnet", [3, 30, 21], 7)
    assert form_of(model) == ModelForm("convnet", (3, 30, 21), 7)
    assert model(torch.zeros(2, 3, 30, 21)).shape == (2, 7)
    assert ConvNet((1, 4, 4)).shape(16) == (1, 4, 4)
    for inputs in ([1, 3, 8], [64]):
        with pytest.raises(BazaarError, match="a convnet takes images"):
            build_model("convnet", inputs, 2)


def pictures(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A bright spot that lies anywhere, and is wide or high."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, 0.3, (count, 1, 12, 12)), rng.integers(0, 2, count)
    for image, wide in zip(x, y, strict=True):
        row, column = rng.integers(0, 8, 2)
        image[0, row : row + (1 if wide else 4), column : column + (4 if wide else 1)] += 2
    return x.astype(np.float32), y


def test_a_market_trains_a_convnet_the_same_every_time() -> None:
    hashes, found = [], None
    for _ in range(2):
        consumer = Consumer(build_model("convnet", [1, 12, 12], 2), holdout=pictures(0, 200), budget=40, per_round=4)
        providers = [Provider(f"p{place}", pictures(place + 1, 200)) for place in range(4)]
        arbiter = Arbiter(consumer, providers, Uniform(), learner=InRun(shift=1, flip=True))
        arbiter.run()
        hashes.append(arbiter.reached.stored.hash)
        found = arbiter
    assert hashes[0] == hashes[1] and found is not None
    (x, y), model = pictures(9, 300), found.model
    assert (model(torch.from_numpy(x)).argmax(1).numpy() == y).mean() > 0.9
