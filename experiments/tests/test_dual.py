"""The dual form of the first layer, as an engine finds it under its name: the same updates as the loop's."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from databazaar import LocalSGD, Provider
from databazaar.engines import VectorizedEngine
from databazaar.learning.losses import cross_entropy
from databazaar.learning.models import build_model
from databazaar.learning.oracles import FullGradient, Oracle
from databazaar.learning.task import Precision, Task
from databazaar.testing import check_engine
from databazaar_experiments.stacks import PAPER_STACKS

CPU = torch.device("cpu")
Market = tuple[Task, list[Provider]]


def market(oracle: Oracle, sizes: list[int], bias: bool = True, precision: Precision = "float32") -> Market:
    model = build_model("mlp", [6], 3, hidden=[5], seed=0)
    if not bias:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(6, 5, bias=False), nn.Tanh(), nn.Linear(5, 3))
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(size, 6)).astype(np.float32), rng.integers(0, 3, size)) for size in sizes]
    providers = [Provider(f"p{i}", data, oracle) for i, data in enumerate(rows)]
    return Task(model, cross_entropy, precision), providers


@settings(max_examples=25, deadline=None)
@given(
    oracle=st.builds(
        LocalSGD,
        step=st.sampled_from([0.05, 0.3]),
        batch_size=st.integers(1, 6),
        epochs=st.integers(1, 2),
        momentum=st.sampled_from([0.0, 0.5, 0.9]),
        steps=st.sampled_from([None, 3]),
    ),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    bias=st.booleans(),
)
def test_updates_are_those_of_the_loop(oracle: LocalSGD, sizes: list[int], bias: bool) -> None:
    task, providers = market(oracle, sizes, bias)
    engine = VectorizedEngine(task, providers, CPU, stacks=PAPER_STACKS)
    assert task.model is not None
    check_engine(engine, task, providers, task.layout.flatten(task.model))


def test_it_is_chosen_where_it_pays() -> None:
    oracle = LocalSGD(0.1, 4)
    assert VectorizedEngine(*market(oracle, [5, 6]), CPU, stacks=PAPER_STACKS).stacks[oracle] == "dual"
    more = market(oracle, [5, 60])  # more samples a round than twice the features
    assert VectorizedEngine(*more, CPU, stacks=PAPER_STACKS).stacks[oracle] == "stacked"
    half = market(oracle, [5, 6], precision="bf16")
    assert VectorizedEngine(*half, CPU, stacks=PAPER_STACKS).stacks[oracle] == "stacked"
    assert VectorizedEngine(*market(oracle, [5, 6]), CPU).stacks[oracle] == "stacked"
    full = FullGradient()
    assert VectorizedEngine(*market(full, [5]), CPU, stacks=PAPER_STACKS).stacks[full] == "stacked"
