"""A hostile arbiter: its questions read a provider's table, through refusals or through overflow."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from databazaar.cli import enrolment as joining
from databazaar.data.schema import Schema
from databazaar.data.schema_message import SchemaMessage
from databazaar.errors import BazaarError
from databazaar.federation.accepted_schemas import AcceptedSchemas, fingerprint
from databazaar.federation.messages import (
    ReplyCode,
    Status,
)
from databazaar.federation.policy import Policy
from databazaar.federation.privacy import clipped_sum, drawn, normal
from databazaar.federation.records import AccessRecord
from databazaar.federation.table import Table
from databazaar.federation.worker import ProviderWorker
from databazaar.learning.losses import LOSSES
from databazaar.learning.models import build_model
from databazaar.learning.task import Task
from questions import HONEST, a_kit, as_message, asked, private

QUESTIONS = 559
"""As many questions once gave every value of a column."""


class Reader:
    """Finds the distinct values of a column by halving: whether any lies in a range shows in the reply.

    It knows the column's name and the range of its values, and counts its questions.
    """

    def __init__(self, says_yes: Callable[[Sequence[int]], bool], most: int) -> None:
        self.says_yes, self.left, self.found = says_yes, most, list[int]()

    def read(self, values: Sequence[int]) -> list[int]:
        if self.left and self._any(values):
            self._halve(values)
        return self.found

    def _any(self, values: Sequence[int]) -> bool:
        self.left -= 1
        return self.says_yes(values)

    def _halve(self, values: Sequence[int]) -> None:
        """One of these values is in the column, or so the replies say."""
        if len(values) == 1:
            self.found.append(values[0])
        elif self.left:
            first, second = values[: len(values) // 2], values[len(values) // 2 :]
            there = self._any(first)
            if there:
                self._halve(first)
            if not there or (self.left and self._any(second)):
                self._halve(second)


UNIVERSE = range(400)


@pytest.fixture
def incomes() -> list[int]:
    return sorted(np.random.default_rng(5).choice(400, 80, replace=False).tolist())


@pytest.fixture
def path(tmp_path: Path, incomes: list[int]) -> Path:
    path = tmp_path / "bank.csv"
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"income": incomes, "amount": rng.normal(size=80), "fraud": ["no", "yes"] * 40})
    frame.to_csv(path, index=False)
    return path


Heard = list[tuple[Status, ReplyCode]]


def through_classes(worker: ProviderWorker, heard: Heard) -> Callable[[Sequence[int]], bool]:
    """The column is the target, and all values but some are its classes: a refusal says that one of those is there."""
    own = as_message(Schema.fit(pd.DataFrame({"amount": [1.0, 2.0], "t": [0, 1]}), target="t", task="classification"))

    def any_of(values: Sequence[int]) -> bool:
        classes = tuple(sorted(set(UNIVERSE) - set(values)))
        if len(classes) < 2:
            return True
        heard.append(asked(worker, own.model_copy(update={"target": "income", "classes": classes}))[:2])
        return heard[-1][0] == "refused"

    return any_of


def through_categories(worker: ProviderWorker, heard: Heard) -> Callable[[Sequence[int]], bool]:
    """The column is one of categories: a refusal says that none of them is there."""
    own = Schema.fit(
        pd.DataFrame({"income": ["a", "b"], "fraud": ["no", "yes"]}), target="fraud", task="classification"
    )

    def any_of(values: Sequence[int]) -> bool:
        wire = own.to_dict()
        wire["categorical"][0]["categories"] = tuple(sorted(map(str, values)))
        heard.append(asked(worker, SchemaMessage.model_validate(wire))[:2])
        return heard[-1][0] == "ok"

    return any_of


WAYS = [through_classes, through_categories]


@pytest.mark.parametrize("way", WAYS)
def test_refusals_read_no_column(path: Path, incomes: list[int], way: Any) -> None:
    """They once gave all 80 values. Now every reply is the same, whatever is asked and whatever the values are."""
    worker, heard = ProviderWorker("bank", Table(path)), Heard()
    assert asked(worker, HONEST)[0] == "ok"
    read = Reader(way(worker, heard), QUESTIONS).read(UNIVERSE)
    assert read != incomes
    assert set(heard) == {("refused", "task-not-allowed")}
    assert asked(worker, HONEST)[0] == "ok"


@pytest.mark.parametrize("way", WAYS)
def test_a_hostile_schema_that_is_the_first_tells_whether_it_fits_and_no_more(path: Path, way: Any) -> None:
    worker, heard = ProviderWorker("bank", Table(path)), Heard()
    Reader(way(worker, heard), QUESTIONS).read(UNIVERSE)
    assert set(heard[1:]) <= {("refused", "task-not-allowed")}


@pytest.mark.parametrize("way", WAYS)
def test_with_differential_privacy_no_reply_tells_even_that(path: Path, tmp_path: Path, way: Any) -> None:
    """Each question as if it were the first: the schema is taken, and every row mapped to something."""
    heard = Heard()
    for values in ([3], list(range(200)), list(range(0, 400, 2))):
        worker = ProviderWorker("bank", Table(path), privacy=private(tmp_path / "account.json"))
        way(worker, heard)(values)
    assert heard == [("ok", "")] * 3


def test_a_refusal_about_the_data_is_decided_once_and_remembered(path: Path, tmp_path: Path) -> None:
    """Also over a restart, until the provider's file is another."""
    kit = tmp_path / "kit"
    kit.mkdir()
    schema = HONEST.model_copy(update={"classes": ("no", "perhaps")})
    for _ in range(2):
        assert asked(ProviderWorker("bank", Table(path, AcceptedSchemas(kit))), schema)[1] == "task-does-not-fit"
    known = AcceptedSchemas(kit).accepted()[fingerprint(schema)]
    assert (known.fits, known.data) == (False, hashlib.sha256(path.read_bytes()).hexdigest())
    path.write_text(path.read_text().replace("yes", "perhaps"))
    assert asked(ProviderWorker("bank", Table(path, AcceptedSchemas(kit))), schema)[0] == "ok"
    assert asked(ProviderWorker("bank", Table(path, AcceptedSchemas(kit))), HONEST)[1] == "task-not-allowed"


def test_outputs_of_a_model_do_not_ask_for_the_largest_label(tmp_path: Path) -> None:
    x, y = np.zeros((40, 4), np.float32), np.arange(40) % 7
    worker = ProviderWorker("bank", (x, y))
    said = [asked(worker, None, model={"outputs": outputs})[1] for outputs in range(2, 20)]
    assert said == ["task-does-not-fit"] + ["task-not-allowed"] * 17
    worker = ProviderWorker("bank", (x, y), privacy=private(tmp_path / "account.json"))
    assert {asked(worker, None, model={"outputs": outputs})[:2] for outputs in range(2, 20)} == {("ok", "")}


def test_what_is_offered_is_looked_at_and_accepted_by_its_fingerprint(path: Path, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    kit.mkdir()
    worker, pins = ProviderWorker("bank", Table(path, AcceptedSchemas(kit))), AcceptedSchemas(kit)
    assert asked(worker, HONEST)[0] == "ok"
    offered, later = (HONEST.model_copy(update={"target_mean": mean}) for mean in (1.0, 2.0))
    assert asked(worker, offered)[1] == "task-not-allowed"
    assert pins.offers()[-1].schema_ == offered
    assert asked(worker, later)[1] == "task-not-allowed"
    with pytest.raises(BazaarError, match="is none of"):
        pins.accept_offer(fingerprint(offered)[:12])
    assert asked(worker, offered)[1] == "task-not-allowed"
    assert pins.accept_offer(fingerprint(offered)[:12]) == offered
    assert [asked(worker, schema)[0] for schema in (offered, later, HONEST)] == ["ok", "refused", "ok"]
    pins.drop(fingerprint(HONEST)[:12])
    assert asked(ProviderWorker("bank", Table(path, AcceptedSchemas(kit))), HONEST)[1] == "task-not-allowed"


def test_every_question_is_recorded_and_counted(path: Path, tmp_path: Path) -> None:
    clock = [0.0]
    record = AccessRecord(tmp_path / "answers.jsonl")
    worker = ProviderWorker("bank", Table(path), Policy(max_questions=3), record=record, clock=lambda: clock[0])
    said = [asked(worker, HONEST), asked(worker, HONEST, torch.zeros(6)), asked(worker, HONEST), asked(worker, HONEST)]
    assert [code for _, code, _ in said] == ["", "", "", "too-many-questions"]
    clock[0] = 1200.0  # a third of an hour: one question more
    assert [asked(worker, HONEST)[1] for _ in range(2)] == ["", "too-many-questions"]
    assert [(a.run[0], a.kind, a.status) for a in record.questions()] == [
        ("a", "describe", "ok"),
        ("a", "update", "ok"),
        *[("a", "describe", status) for status in ("ok", "refused", "ok", "refused")],
    ]


# Few rows

FEW: list[dict[str, Any]] = [
    {"kind": "stochastic-gradient", "batch_size": 1},
    {"kind": "local-sgd", "batch_size": 31, "steps": 1},
    {"kind": "local-sgd", "batch_size": 1, "steps": 31, "epochs": 10},
]


@pytest.mark.parametrize("with_privacy", [False, True])
def test_no_answer_is_computed_from_few_rows(path: Path, tmp_path: Path, with_privacy: bool) -> None:
    """A gradient of one row is that row: its columns and its label stand in it."""
    privacy = private(tmp_path / "account.json") if with_privacy else None
    worker = ProviderWorker("bank", Table(path), privacy=privacy)
    for oracle in FEW:
        for params in (None, torch.zeros(6)):
            assert asked(worker, HONEST, params, oracle=oracle) == ("refused", "too-few-rows", None)
    for oracle in ({"kind": "full-gradient"}, {"kind": "local-sgd", "batch_size": 1, "steps": 32}):
        assert asked(worker, HONEST, torch.zeros(6), oracle=oracle)[:2] == ("ok", "")


def test_rows_of_which_the_target_is_not_known_are_not_counted(path: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(path)
    for known, code in ((31, "too-few-rows"), (32, "")):
        frame["fraud"] = ["no", "yes"] * (known // 2) + ["no"] * (known % 2) + [None] * (80 - known)
        frame.to_csv(tmp_path / f"{known}.csv", index=False)
        assert asked(ProviderWorker("bank", Table(tmp_path / f"{known}.csv")), HONEST)[1] == code
    private_one = ProviderWorker("bank", Table(tmp_path / "31.csv"), privacy=private(tmp_path / "account.json"))
    assert asked(private_one, HONEST)[1] == "", "with differential privacy no reply depends on a label"


def test_a_table_of_few_rows_does_not_join(path: Path, tmp_path: Path) -> None:
    path.write_text("\n".join(path.read_text().splitlines()[:32]))
    with pytest.raises(BazaarError, match=r"has 31 rows to learn from.* at least 32: add rows"):
        joining.source(path, None, a_kit(tmp_path / "kit"))


# Overflow


def two_banks(rows: int, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Two neighbours: the first row differs."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(rows, 4)).astype(np.float32) * 3)
    y = torch.from_numpy(rng.integers(0, 2, rows))
    other_x, other_y = x.clone(), y.clone()
    other_x[0], other_y[0] = torch.tensor([10.0, -10.0, 0.0, 1e-40]), 1 - y[0]
    return (x, y), (other_x, other_y)


def test_huge_parameters_do_not_let_one_row_decide_between_an_answer_and_an_error(tmp_path: Path) -> None:
    """One row of 10 among zeros overflows where the others do not: it once made an error of the answer."""
    x, y = torch.zeros(40, 4), torch.arange(40) % 2
    other = x.clone()
    other[0] = 10.0
    params = torch.full((10,), 3e38)
    for kind in ("full-gradient", "local-sgd"):
        for rows in (x, other):
            worker = ProviderWorker("bank", (rows, y), privacy=private(tmp_path / "account.json"))
            status, code, update = asked(worker, None, params, oracle={"kind": kind, "epochs": 3})
            assert (status, code) == ("ok", "")
            assert update is not None and update.shape == params.shape


FLOATS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from([3.4e38, -3.4e38, 1e-45, -1e-45, 1e-38, 0.0, 1e19, -1e19]),
)


@settings(max_examples=40)
@given(
    st.lists(FLOATS, min_size=23, max_size=23),
    st.sampled_from([1e-3, 0.5, 100.0]),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from([("logistic", 10), ("mlp", 23)]),
)
def test_for_any_parameters_a_row_changes_the_sum_by_no_more_than_the_clip(
    values: list[float], clip: float, seed: int, same: bool, model: tuple[str, int]
) -> None:
    """And neither status nor code nor shape. A replaced row is one less and one more: twice the clip."""
    kind, width = model
    params = torch.full((width,), values[0]) if same else torch.tensor(values[:width])
    task = Task(build_model(kind, [4], 2, hidden=[3]), LOSSES["cross-entropy"])
    one, other = two_banks(12, seed)
    sums = [clipped_sum(task, bank, params, clip, 4).double() for bank in (one, other, (one[0][1:], one[1][1:]))]
    assert all(bool(torch.isfinite(found).all()) for found in sums)
    assert float((sums[0] - sums[2]).norm()) <= clip * (1 + 1e-5)
    assert float((sums[0] - sums[1]).norm()) <= 2 * clip * (1 + 1e-5)


@settings(max_examples=12)
@given(st.lists(FLOATS, min_size=10, max_size=10), st.integers(0, 5), st.sampled_from(["sgd", "adam"]))
def test_for_any_parameters_a_row_changes_neither_status_nor_code_nor_shape(
    values: list[float], seed: int, optimizer: str
) -> None:
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for bank in two_banks(32, seed):
            worker = ProviderWorker("bank", bank, privacy=private(Path(folder) / "account.json"))
            oracle = {"kind": "local-sgd", "step": 1e6, "optimizer": optimizer, "weight_decay": 1e6}
            status, code, update = asked(worker, None, torch.tensor(values), oracle=oracle)
            assert update is not None
            said.append((status, code, update.shape, bool((update.abs() <= 1e15).all())))
    assert said[0] == said[1] == ("ok", "", torch.Size([10]), True)


def test_a_row_without_a_known_label_adds_nothing() -> None:
    task = Task(build_model("logistic", [4], 2), LOSSES["cross-entropy"])
    (x, y), _ = two_banks(12, 0)
    unknown = torch.where(torch.arange(12) == 5, -1, y)
    others = torch.arange(12) != 5
    expected = clipped_sum(task, (x[others], y[others]), torch.zeros(10), 0.5)
    torch.testing.assert_close(clipped_sum(task, (x, unknown), torch.zeros(10), 0.5), expected)
    numbers = Task(build_model("linear", [4], 1), LOSSES["squared-error"])
    targets = torch.where(others, y.float(), torch.nan)
    expected = clipped_sum(numbers, (x[others], y[others].float()), torch.zeros(5), 0.5)
    torch.testing.assert_close(clipped_sum(numbers, (x, targets), torch.zeros(5), 0.5), expected)


def test_a_seed_of_torch_is_no_secret_and_none_is_used() -> None:
    """Its generator takes 32 bits of a seed: whoever sees noise alone finds it, and takes it off everywhere."""
    low, high = (torch.randn(5, generator=torch.Generator().manual_seed(seed)) for seed in (7, 7 + 2**32))
    assert torch.equal(low, high), "torch has become better; this test may go"
    torch.manual_seed(3)
    first = normal(200_001)
    torch.manual_seed(3)
    second = normal(200_001)
    assert not torch.isclose(first, second).any(0).item() or float((first == second).float().mean()) < 1e-3
    assert abs(float(first.mean())) < 0.02 and abs(float(first.std()) - 1) < 0.02
    assert abs(float((first[:-1] * first[1:]).mean())) < 0.02
    assert abs(float(drawn(400_000, 0.25).float().mean()) - 0.25) < 0.01


def test_a_small_chance_is_not_rounded_up() -> None:
    """In steps of 2⁻²⁴, a chance of 10⁻⁹ would be sixty times as large as it is charged for."""
    taken = sum(int(drawn(2**20, 1e-9).sum()) for _ in range(20))
    assert taken <= 2, "0.02 are expected"
