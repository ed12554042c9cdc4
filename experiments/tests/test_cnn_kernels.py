"""The CUDA source, compiled as plain C++ (phase by phase), against the clear version in engines/stacks.py."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from databazaar import Consumer, Provider
from databazaar.engines import VectorizedEngine
from databazaar.engines.orders import Planner, Rows
from databazaar.engines.stacks import BatchPlan, Data, StackedOracle, Workload
from databazaar.learning.losses import cross_entropy, squared_error
from databazaar.learning.models import build_model, caller, split_fixed_prefix
from databazaar.learning.oracles import FullGradient, LocalSGD, Oracle
from databazaar.learning.task import Task
from databazaar.learning.utilities import Evaluator, UtilityFunction
from databazaar.testing import check_engine
from databazaar_experiments.stacks.cnn import Form, FusedCNN, FusedEvaluator, FusedOutputs, Launch, evaluator_for, suits
from databazaar_experiments.stacks.dual import DualSGD

pytestmark = pytest.mark.process

CPU = torch.device("cpu")
SIDE = 14
ROOM = 227 * 1024


class OnHost:
    """Compiles the kernels with the C++ compiler; remembers the library for a look at its constants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = ctypes.CDLL(None)
        self.built: dict[tuple[Form, int, float], ctypes.CDLL] = {}

    def __call__(self, form: Form, batch: int, momentum: float) -> Launch:
        if (form, batch, momentum) not in self.built:
            self.built[form, batch, momentum] = self.build(form, batch, momentum)
        self.library = library = self.built[form, batch, momentum]

        def launch(name: str, grid: tuple[int, int], args: Sequence[Any]) -> None:
            assert all(arg.is_contiguous() for arg in args if isinstance(arg, Tensor))
            given = [ctypes.c_void_p(arg.data_ptr()) if isinstance(arg, Tensor) else ctypes.c_int(arg) for arg in args]
            getattr(library, name)(ctypes.c_int(grid[0]), ctypes.c_int(grid[1]), *given)

        return launch

    def build(self, form: Form, batch: int, momentum: float) -> ctypes.CDLL:
        source = self.folder / f"kernels-{form.side}-{batch}-{momentum}.cc"
        source.write_text(form.source(batch, momentum))
        built = source.with_suffix(".so")
        subprocess.run(["g++", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", built, source], check=True)
        return ctypes.CDLL(str(built))


@pytest.fixture(scope="module")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> OnHost:
    return OnHost(tmp_path_factory.mktemp("kernels"))


def market(sizes: Sequence[int], seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    total = sum(sizes)
    x = torch.rand(total, 1, SIDE, SIDE, generator=generator) - 0.3
    counts = torch.tensor(sizes)
    return Data(x, torch.randint(0, 10, (total,), generator=generator), counts.cumsum(0) - counts, counts)


def planned(oracle: LocalSGD, data: Data, providers: Sequence[int], steps: Sequence[float]) -> BatchPlan:
    rows = Rows(torch.tensor(providers), torch.tensor(providers) + 7, torch.tensor(steps))
    return Planner(oracle, data.sizes, int(data.sizes.max()))(rows)


def task_and_params(rows: int) -> tuple[Task, Tensor]:
    task = Task(build_model("cnn", (1, SIDE, SIDE), 10, seed=0), cross_entropy)
    models = [build_model("cnn", (1, SIDE, SIDE), 10, seed=seed) for seed in range(rows)]
    return task, torch.stack([task.layout.flatten(model) for model in models])


@pytest.mark.parametrize("momentum", [0.0, 0.4])
@pytest.mark.parametrize("batch", [3, 5, 8])
@pytest.mark.parametrize("rows", [1, 3])
def test_an_epoch_is_the_one_of_the_clear_version(on_host: OnHost, batch: int, momentum: float, rows: int) -> None:
    data = market([11, 23, 17])
    task, params = task_and_params(rows)
    oracle = LocalSGD(0.3, batch, momentum=momentum)
    plan = planned(oracle, data, [1, 0, 2][:rows], [0.3, 0.2, 0.1][:rows])
    assert task.model is not None
    rest, patches = split_fixed_prefix(task.model, data.x)
    before = params.clone()
    clear = StackedOracle(Task(rest, cross_entropy), oracle, replace(data, x=patches))(params, plan)
    fused = FusedCNN(task, momentum, batch, data, on_host)(params, plan)
    assert float(clear.abs().max()) > 0.05
    torch.testing.assert_close(fused, clear, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(params, before, atol=0, rtol=0)  # the caller's parameters are not written to


@pytest.mark.parametrize("at_once", [1, 2, 3, 9])
def test_networks_that_are_launched_in_groups_come_to_the_same_bits(on_host: OnHost, at_once: int) -> None:
    data, (task, params) = market([11, 23, 17]), task_and_params(3)
    plan = planned(LocalSGD(0.3, 5, momentum=0.4), data, [1, 0, 2], [0.3, 0.2, 0.1])
    whole = FusedCNN(task, 0.4, 5, data, on_host)(params, plan)
    grouped = FusedCNN(task, 0.4, 5, data, on_host, together=at_once)(params, plan)
    assert bool(whole.any(dim=1).all())
    torch.testing.assert_close(grouped, whole, atol=0, rtol=0)


def test_a_row_without_a_step_size_spoils_no_other(on_host: OnHost) -> None:
    data, (task, params) = market([10, 10]), task_and_params(2)
    oracle = LocalSGD(0.1, 5, momentum=0.1)
    stack = FusedCNN(task, 0.1, 5, data, on_host)
    spoilt = stack(params, planned(oracle, data, [0, 1], [float("nan"), 0.1]))
    alone = stack(params[1:], planned(oracle, data, [1], [0.1]))
    assert bool(spoilt[0].isnan().any())
    torch.testing.assert_close(spoilt[1], alone[0], atol=0, rtol=0)


@pytest.mark.parametrize("images", [1, 8, 21])
def test_outputs_are_those_of_the_model(on_host: OnHost, images: int) -> None:
    task, params = task_and_params(3)
    x = market([images]).x
    assert task.model is not None
    form = Form.of(task.model, x)
    assert form is not None
    outputs = FusedOutputs(form, task.layout, on_host)(params, x)
    run = caller(task.model)
    clear = torch.stack([run(task.layout.unflatten(row), x) for row in params])
    torch.testing.assert_close(outputs, clear, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("utility", ["accuracy", "exp-loss"])
@pytest.mark.parametrize("room", [None, 2000, 20000])
def test_an_evaluator_scores_alike_with_fused_outputs(
    on_host: OnHost, monkeypatch: pytest.MonkeyPatch, utility: str, room: int | None
) -> None:
    task, params = task_and_params(3)
    data = market([21])
    plain = Evaluator(task, (data.x, data.y), utility, CPU).score(params)
    if room is not None:
        monkeypatch.setattr("databazaar.learning.utilities.CHUNK_FLOATS", room)
    form = Form.of(task.model, data.x)
    assert form is not None
    fused = FusedOutputs(form, task.layout, on_host)
    fast = FusedEvaluator(task, (data.x, data.y), utility, CPU, fused).score(params)
    np.testing.assert_allclose(fast.utility, plain.utility, rtol=1e-5)
    assert fast.loss is not None and plain.loss is not None
    np.testing.assert_allclose(fast.loss, plain.loss, rtol=1e-5)


def test_an_engine_takes_the_kernels_for_the_oracles_that_they_suit(on_host: OnHost) -> None:
    class CompiledHere(FusedCNN):
        @classmethod
        def make(cls, work: Workload, oracle: Oracle, shape: tuple[int, int]) -> FusedCNN | None:
            if not suits(work.task, oracle, work.data, ROOM):
                return None
            assert isinstance(oracle, LocalSGD)
            return cls(work.task, oracle.momentum, shape[1], work.data, on_host)

    data, (task, params) = market([11, 23, 17]), task_and_params(1)
    oracles: list[Oracle] = [LocalSGD(0.3, 5), LocalSGD(0.2, 3, momentum=0.4), FullGradient()]
    providers = [
        Provider(f"p{i}", (data.x[start : start + size], data.y[start : start + size]), oracle)
        for i, (oracle, start, size) in enumerate(zip(oracles, data.starts, data.sizes, strict=True))
    ]
    engine = VectorizedEngine(task, providers, CPU, stacks=[CompiledHere, DualSGD])
    assert engine.stacks == dict(zip(oracles, ["fused", "fused", "stacked"], strict=True))
    check_engine(engine, task, providers, params[0])


def test_both_sides_agree_on_the_shared_memory(on_host: OnHost) -> None:
    for side, batch in ((SIDE, 5), (32, 5), (28, 8)):
        form = Form(side, 6, 120, 10)
        on_host(form, batch, 0.0)
        sizes = (ctypes.c_int * 2)()
        on_host.library.shared_bytes(sizes)
        assert list(sizes) == [form.shared_bytes(batch)[name] for name in ("epoch", "features")]


def test_what_the_kernels_are_for() -> None:
    data = market([10])
    task, _ = task_and_params(1)
    assert suits(task, LocalSGD(0.1, 5), data, ROOM)
    assert not suits(task, LocalSGD(0.1, 9), data, ROOM)
    assert not suits(task, FullGradient(), data, ROOM)
    assert not suits(task, LocalSGD(0.1, 5), data, 0)  # no GPU
    assert not suits(Task(task.model, squared_error), LocalSGD(0.1, 5), data, ROOM)
    assert not suits(Task(build_model("mlp", (1, SIDE, SIDE), 10), cross_entropy), LocalSGD(0.1, 5), data, ROOM)
    assert not suits(replace(task, precision="bf16"), LocalSGD(0.1, 5), data, ROOM)
    frozen = build_model("cnn", (1, SIDE, SIDE), 10)
    next(frozen.parameters()).requires_grad_(False)
    assert not suits(Task(frozen, cross_entropy), LocalSGD(0.1, 5), data, ROOM)
    colour = replace(data, x=data.x.expand(-1, 3, -1, -1))
    assert not suits(Task(build_model("cnn", (3, SIDE, SIDE), 10), cross_entropy), LocalSGD(0.1, 5), colour, ROOM)


@pytest.mark.parametrize("utility", ["accuracy", "exp-loss", lambda model: float(model[-1].bias.sum())])
def test_the_engines_evaluator_scores_as_the_consumers_own(utility: str | UtilityFunction) -> None:
    images = torch.rand(9, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(9) % 3
    consumer = Consumer("cnn", 4, holdout=images, utility=utility, per_round=2)
    assert isinstance(consumer.model, nn.Module)
    stack = consumer.initial_parameters() * torch.tensor([[1.0], [2.0], [-1.0]])
    own, engines = consumer.evaluator(CPU).score(stack), evaluator_for(consumer, CPU).score(stack)
    np.testing.assert_allclose(engines.utility, own.utility, rtol=1e-6)
