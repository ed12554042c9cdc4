"""What people bring from Python: datasets and loaders, tokens, named inputs, models with buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, SubsetRandomSampler, TensorDataset

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, Provider, Report
from databazaar.learning.inputs import NamedInputs, as_dataset

Rows = tuple[np.ndarray, np.ndarray]


def tokens(size: int, seed: int) -> Rows:
    """Four words each; the class is whether the first one comes from the upper half of the dictionary."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 10, (size, 4))
    return ids, (ids[:, 0] >= 5).astype(np.int64)


class Words(nn.Module):
    """Takes ids and a mask by name, and has two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 6), nn.Linear(24, 2)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        outputs: Tensor = self.head((self.embed(ids) * mask[..., None]).flatten(1))
        return outputs


class Pairs(Dataset[tuple[Tensor, int]]):
    """A map-style dataset of somebody's own."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows[0])

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.tensor(self.rows[0][row]), int(self.rows[1][row])


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def seeded(build: type[nn.Module] | Any) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: nn.Module = build()
        return model


def run(model: nn.Module, holdout: Any, data: list[Any], engine: str = "vectorized", **more: Any) -> Report:
    consumer = Consumer(model, holdout=holdout, budget=60, per_round=3, **more)
    providers = [Provider(f"p{i}", one, LocalSGD(0.5, 8)) for i, one in enumerate(data)]
    return Arbiter(consumer, providers, engine=engine, device="cpu").run()


def embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(10, 6), nn.Flatten(), nn.Linear(24, 2))


@pytest.mark.parametrize("engine", ["loop", "vectorized"])
def test_integer_tokens_stay_integers_for_a_model_with_an_embedding(engine: str) -> None:
    report = run(seeded(embedding), tokens(60, 9), [tokens(40, i) for i in range(3)], engine, utility="accuracy")
    assert report.final_utility > 0.9
    assert all(access.failure is None for one in report.rounds for access in one.accesses)


def test_whole_numbers_are_floats_for_any_other_model() -> None:
    x, y = np.arange(12).reshape(6, 2), np.array([0, 1] * 3)
    whole, floats = ([(x.astype(kind), y)] for kind in (np.int64, np.float32))
    model = seeded(lambda: nn.Linear(2, 2))
    assert run(model, whole[0], whole).model_hash == run(model, floats[0], floats).model_hash


def test_named_inputs_reach_the_model_by_name_and_the_loop_takes_them() -> None:
    def named(size: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        ids, y = tokens(size, seed)
        return {"ids": ids, "mask": np.ones_like(ids, dtype=np.float64)}, y

    model = seeded(Words)
    with pytest.warns(UserWarning, match="falls back from vectorized to loop: provider p0's inputs have names"):
        report = run(model, named(60, 9), [named(40, i) for i in range(3)], utility="accuracy")
    assert report.final_utility > 0.9
    with pytest.raises(BazaarError, match="takes no named inputs"):
        Consumer("mlp", 10, holdout=named(5, 0))


def test_a_dict_in_a_loader_is_named_too() -> None:
    ids, y = tokens(12, 0)
    samples = [({"ids": torch.tensor(row), "mask": torch.ones(4)}, int(one)) for row, one in zip(ids, y, strict=True)]
    x, targets = as_dataset(DataLoader(samples, batch_size=5), "p")  # type: ignore[arg-type]
    assert isinstance(x, NamedInputs) and len(x) == 12
    assert x.numel() == 96 and x.to(torch.device("cpu")).device.type == "cpu"
    assert torch.equal(x[3:5].tensors["ids"], torch.tensor(ids[3:5])) and torch.equal(targets, torch.tensor(y))


def test_datasets_and_loaders_give_the_rows_that_they_hold_in_their_own_order() -> None:
    x, y = tokens(20, 0)
    pairs = TensorDataset(torch.tensor(x), torch.tensor(y))
    whole = [pairs, Pairs((x, y)), DataLoader(Pairs((x, y)), batch_size=7, shuffle=True), DataLoader(pairs, 3)]
    for data in whole:
        got_x, got_y = as_dataset(data, "p")
        assert isinstance(got_x, Tensor)
        assert torch.equal(got_x, torch.tensor(x)) and torch.equal(got_y, torch.tensor(y))
    chosen = [3, 8, 5]
    for part in (Subset(pairs, chosen), DataLoader(pairs, 2, sampler=SubsetRandomSampler(chosen))):
        got_x, got_y = as_dataset(part, "p")
        assert isinstance(got_x, Tensor)
        assert torch.equal(got_x, torch.tensor(x[chosen])) and torch.equal(got_y, torch.tensor(y[chosen]))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Stream(), "p: Stream is a stream without a length"),
        (DataLoader(Stream()), "p: Stream is a stream without a length"),
        (Pairs((np.zeros((2, 2)), np.zeros(1))), "p: the samples of Pairs do not make one batch"),
        (TensorDataset(torch.zeros(3, 2)), "p: data must be"),
        (torch.zeros(3, 2), "p: data must be \\(x, y\\), a torch Dataset or a DataLoader, not Tensor"),
        (({"a": [1.0], "b": [1.0, 2.0]}, [0]), "p: named inputs must all have the same number of rows"),
        (({}, [0]), "p: named inputs must all have the same number of rows"),
        ((1.0, [0]), "p: the features are a single number"),
        (([1.0], 0), "p: the targets are a single number"),
    ],
)
def test_what_is_no_table_of_rows_is_named(data: Any, words: str) -> None:
    with pytest.raises(BazaarError, match=words):
        as_dataset(data, "p")


def test_a_model_that_counts_its_batches_answers_alike_whenever_it_is_asked() -> None:
    """With momentum=None a batch norm weighs by how many batches it has seen: those of this ask alone."""
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None), nn.ReLU(), nn.Linear(6, 2)))
    rng = np.random.default_rng(0)
    data = rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 2, 20)
    first, again = (run(model, data, [data], "loop").model_hash for _ in range(2))
    assert first == again
    assert int(model.get_buffer("1.num_batches_tracked")) == 0
    from databazaar.engines import Ask, LoopEngine
    from databazaar.learning.losses import cross_entropy
    from databazaar.learning.task import Task

    task = Task(model, cross_entropy)
    engine = LoopEngine(task, [Provider("p", data)], torch.device("cpu"))
    ask = Ask(task.layout.flatten(model), [0], 0, 0)
    assert torch.equal(engine.query(ask).updates, engine.query(ask).updates)
