"""Only what is trained travels: frozen parameters and still buffers stay, and nobody mistakes others for them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, Provider, Uniform, load_run
from databazaar.engines import Ask, Engine, LoopEngine
from databazaar.engines.vectorized import VectorizedEngine
from databazaar.learning.losses import cross_entropy
from databazaar.learning.models import Layout
from databazaar.learning.parameter_exchange import frozen_digest, lean_copy
from databazaar.learning.task import Task
from databazaar.learning.torch_state import seeded
from databazaar.randomness import oracle_key
from databazaar.runs.folder import RunFolder

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("no_figures_here")


def rows(size: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(size) % 2
    return (np.random.default_rng(seed).normal(size=(size, 4)) + y[:, None]).astype(np.float32), y


def mlp(*trained: bool, seed: int = 0) -> nn.Sequential:
    """Linear layers with tanh between them, of which some are trained."""
    with seeded(seed):
        layers = [nn.Linear(4, 4) for _ in trained[1:]] + [nn.Linear(4, 2)]
    for layer, learns in zip(layers, trained, strict=True):
        layer.requires_grad_(learns)
    return nn.Sequential(*(part for layer in layers for part in (nn.Tanh(), layer)))


class Scaled(nn.Module):
    """Has a buffer, and a way to use it."""

    def __init__(self, how: str, *, persistent: bool = True) -> None:
        super().__init__()
        self.how, self.calls = how, 0
        self.layer = nn.Linear(4, 2)
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(4), persistent=persistent)
        self.register_buffer("whole", torch.arange(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.training and (self.how == "in place" or (self.how == "later" and self.calls > 1)):
            self.scale.lerp_(x.detach().abs().mean(0), 0.5)
        if self.training and self.how == "replaced":
            self.scale = self.scale.lerp(x.detach().abs().mean(0), 0.5)
        outputs: Tensor = self.layer(x / self.scale)
        return outputs


def scaled(how: str, **more: Any) -> Scaled:
    with seeded(0):
        return Scaled(how, **more)


def market(model: nn.Module, engine: str | Engine = "loop", budget: int = 30) -> Arbiter:
    consumer = Consumer(model, holdout=rows(40, 99), budget=budget, per_round=3)
    providers = [Provider(f"p{i}", rows(9 + i, i), LocalSGD(0.2, 4)) for i in range(3)]
    return Arbiter(consumer, providers, Uniform(), engine=engine, device="cpu")


def by_hand(model: nn.Module, provider: Provider, ask: Ask) -> Tensor:
    """The provider's update, of a module of which those parameters move that have a gradient."""
    own = copy.deepcopy(model).train()
    layout, oracle = Layout.of(own), provider.oracle
    assert isinstance(oracle, LocalSGD) and isinstance(oracle.step, float)
    layout.load(own, ask.params)
    x, y = provider.dataset
    assert isinstance(x, Tensor)
    for batch in oracle.batches(len(x), oracle_key(ask.seed, ask.round, provider.id)):
        chosen = torch.from_numpy(batch[batch >= 0])
        moved = [parameter for parameter in own.parameters() if parameter.requires_grad]
        gradients = torch.autograd.grad(cross_entropy(own(x[chosen]), y[chosen]).mean(), moved)
        with torch.no_grad():
            for parameter, gradient in zip(moved, gradients, strict=True):
                parameter.sub_(gradient, alpha=oracle.step)
    return layout.flatten(own) - ask.params


@settings(max_examples=25, deadline=None)
@given(trained=st.lists(st.booleans(), min_size=1, max_size=4).filter(any), round=st.integers(0, 5))
def test_whatever_is_frozen_the_engines_train_the_rest_as_torch_does(trained: list[bool], round: int) -> None:
    model = mlp(*trained)
    task = Task(model, cross_entropy)
    assert task.layout.width == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert bool(task.frozen_digest) != all(trained)
    providers = [Provider(f"p{i}", rows(9 + i, i), LocalSGD(0.2, 4)) for i in range(2)]
    ask = Ask(task.layout.flatten(model) + 0.1, [0, 1], round, 3)
    expected = torch.stack([by_hand(model, provider, ask) for provider in providers])
    before = copy.deepcopy(model.state_dict())
    for engine in (LoopEngine(task, providers, CPU), VectorizedEngine(task, providers, CPU)):
        torch.testing.assert_close(engine.query(ask).updates, expected, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())


def test_running_statistics_travel_and_tables_do_not() -> None:
    norm = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    assert Layout.of(norm).names[-2:] == ("1.running_mean", "1.running_var")
    assert Task(norm, cross_entropy).frozen_digest == ""  # its ledger is what it was
    assert Layout.of(scaled("never")).names == ("layer.weight", "layer.bias")
    assert Task(scaled("never"), cross_entropy).frozen_digest != ""
    assert Task(scaled("never", persistent=False), cross_entropy).frozen_digest == ""  # it is made anew, anywhere


def test_a_buffer_that_the_models_own_forward_changes_travels_too() -> None:
    model = scaled("in place")
    with pytest.warns(UserWarning, match="falls back from vectorized to loop: the model changes its buffer scale"):
        arbiter = market(model, "vectorized")
    assert arbiter.consumer.task.layout.names == ("layer.weight", "layer.bias", "scale")
    arbiter.run()
    assert not torch.equal(arbiter.model.scale, model.scale)
    assert torch.equal(model.scale, torch.ones(4)) and torch.equal(arbiter.consumer.model.scale, torch.ones(4))  # type: ignore[union-attr,arg-type]


def test_a_buffer_that_is_replaced_or_changed_later_is_named() -> None:
    with pytest.raises(BazaarError, match=r"replaces its buffer 'scale'.* in place, as self.scale.copy_"):
        market(scaled("replaced"))
    report = market(scaled("later")).run()
    assert all(one.failure and "changes its buffer 'scale'" in str(one.failure) for one in report.rounds[0].accesses)
    assert report.spent == 0  # nothing of it was bought


def test_a_model_in_which_nothing_is_trained_is_refused_in_a_sentence() -> None:
    for model in (mlp(False, False), nn.Flatten()):
        with pytest.raises(BazaarError, match=r"no parameter that is trained .*: unfreeze what is to be bought"):
            Consumer(model, holdout=rows(), budget=3)


def test_a_copy_shares_memory_and_writes_to_none_that_it_shares() -> None:
    model = nn.Sequential(mlp(False, True), nn.BatchNorm1d(2))
    layout = Layout.of(model)
    reader, writer = lean_copy(model), lean_copy(model, layout.names)
    for name, own in model.named_parameters():
        assert reader.get_parameter(name).data_ptr() == own.data_ptr()
        assert (writer.get_parameter(name).data_ptr() == own.data_ptr()) == (name not in layout.names)
        assert own.requires_grad == reader.get_parameter(name).requires_grad == writer.get_parameter(name).requires_grad
    before = layout.flatten(model)
    layout.load(writer, before + 1)
    reader.double()
    assert torch.equal(layout.flatten(model), before)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_resuming_with_other_frozen_weights_is_refused(tmp_path: Path) -> None:
    other = mlp(False, True)
    nn.init.ones_(other[1].weight)  # type: ignore[arg-type]
    whole = market(mlp(False, True)).run()

    class StopError(Exception):
        pass

    def stop(progress: Any) -> None:
        if progress.round == 4:
            raise StopError

    with pytest.raises(StopError):
        market(mlp(False, True)).run(tmp_path / "run", tell=stop)
    with pytest.raises(BazaarError, match=r"begun with other frozen weights .*: give the model that it was begun with"):
        market(other).run(tmp_path / "run")
    resumed = market(mlp(False, True)).run(tmp_path / "run")
    assert (resumed.model_hash, resumed.last_model_hash) == (whole.model_hash, whole.last_model_hash)


def test_a_finished_run_is_filled_into_the_same_frozen_weights_alone(tmp_path: Path) -> None:
    arbiter = market(mlp(False, True))
    arbiter.run(tmp_path / "run")
    digest = arbiter.terms().frozen
    assert digest == frozen_digest(mlp(False, True), ["3.weight", "3.bias"])
    with pytest.raises(BazaarError, match="what was not trained is not the same in this model"):
        load_run(tmp_path / "run", model=mlp(False, True, seed=1))
    bought = load_run(tmp_path / "run", model=mlp(False, True))
    assert set(bought.parameters) == {"3.weight", "3.bias"}
    assert bought.model is not None
    assert all(
        torch.equal(one, other)
        for one, other in zip(bought.model.parameters(), arbiter.model.parameters(), strict=True)
    )
    kept = RunFolder.open_or_create(tmp_path / "run")
    assert kept.audit().ok
    card = tmp_path / "run" / "model" / "model.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "frozen": "0" * 64}))
    found = kept.audit()
    assert not found.ok and "names other frozen weights than the ledger's first entry" in found.message
    kept.dispose()
