"""Tasks that would fill a provider's memory or keep it busy: refused before anything is built, or given up."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from databazaar.data.schema import Schema
from databazaar.data.schema_message import SchemaMessage
from databazaar.errors import BazaarError
from databazaar.federation.messages import ModelMessage
from databazaar.federation.policy import Policy, work_of
from databazaar.federation.provider import ServerStream, Waiting
from databazaar.federation.table import Table, opened
from databazaar.federation.worker import ProviderWorker
from questions import ORACLE, as_message, asked, private


def test_a_small_question_takes_no_great_memory(tmp_path: Path) -> None:
    """36 kB once took 14 GB: rows × features were built before they were counted."""
    rows, columns, buckets = 18_500, 100, 1000
    names = [f"column {place}" for place in range(columns)]
    frame = pd.DataFrame({"t": np.arange(rows) % 2, **dict.fromkeys(names, 1.0)})
    frame.to_parquet(tmp_path / "bank.parquet")
    wire: dict[str, Any] = as_message(
        Schema.fit(pd.DataFrame({"a": [1.0, 2.0], "t": [0, 1]}), target="t", task="classification")
    ).model_dump()
    wire |= {"numeric": (), "hashed": [{"name": name, "buckets": buckets, "missing": False} for name in names]}
    table = Table(tmp_path / "bank.parquet")
    worker = ProviderWorker("bank", table)
    assert len(table.frame) == rows
    tracemalloc.start()
    try:
        assert asked(worker, SchemaMessage.model_validate(wire))[:2] == ("refused", "task-not-allowed")
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    assert asked(worker, SchemaMessage.model_validate(wire | {"hashed": wire["hashed"][:1]}))[0] == "ok", (
        "what is not allowed is not pinned either"
    )


def test_a_schema_of_ten_million_features_is_refused_before_they_are_named() -> None:
    hashed = tuple({"name": str(place), "buckets": 1000, "missing": False} for place in range(10_000))
    wire = as_message(Schema.fit(pd.DataFrame({"a": [1.0, 2.0], "t": [0, 1]}), target="t", task="classification"))
    huge = SchemaMessage.model_validate(wire.model_dump() | {"hashed": hashed})
    tracemalloc.start()
    try:
        with pytest.raises(BazaarError, match="10000001 features, more than 100000"):
            opened(huge)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


ROWS = 200_000
BIG = ModelMessage(kind="mlp", inputs=(100,), outputs=2, hidden=(3000, 3000))
TASKS: dict[str, tuple[ModelMessage, dict[str, Any], bool, bool]] = {
    "full gradient of a wide model": (BIG, {}, False, False),
    "mini-batches of it": (BIG, {"kind": "local-sgd", "batch_size": 32, "steps": 64}, False, True),
    "its gradients row by row": (BIG, {"kind": "local-sgd", "batch_size": 32, "steps": 2}, True, True),
    "a million steps of one row": (
        ModelMessage(kind="logistic", inputs=(100,), outputs=2, hidden=()),
        {"kind": "local-sgd", "batch_size": 1, "epochs": 100},
        False,
        False,
    ),
    "images": (ModelMessage(kind="cnn", inputs=(1, 10, 10), outputs=2, hidden=()), {}, False, False),
    "no such images": (ModelMessage(kind="cnn", inputs=(1, 2, 50), outputs=2, hidden=()), {}, False, True),
}


@pytest.mark.parametrize("name", TASKS)
def test_what_takes_too_much_is_refused_before_anything_is_built(name: str) -> None:
    model, oracle, private, allowed = TASKS[name]
    policy = Policy(max_memory=10**9, max_seconds=100.0)
    message = ORACLE.model_copy(update=oracle)
    assert policy.allows(model, message, ROWS, private) is allowed
    if private:
        at_once = policy.rows_at_once(model, message, ROWS)
        assert 1 <= at_once < 32, "fewer rows at a time, so that the memory is enough"
        work = work_of(model, message, ROWS, private)
        assert (
            work.memory + at_once * work.row_memory <= policy.max_memory < work.memory + work.at_once * work.row_memory
        )


@pytest.mark.parametrize("with_privacy", [False, True])
def test_an_answer_that_takes_too_long_is_given_up_between_two_steps(tmp_path: Path, with_privacy: bool) -> None:
    ticks = itertools.count()
    x, y = np.zeros((40, 4), np.float32), np.arange(40) % 2
    privacy = private(tmp_path / "account.json") if with_privacy else None
    policy = Policy(max_seconds=5.0)
    worker = ProviderWorker("bank", (x, y), policy, privacy=privacy, clock=lambda: float(next(ticks)))
    several = {"kind": "local-sgd", "batch_size": 10, "epochs": 10}
    assert asked(worker, None, torch.zeros(10), oracle=several)[:2] == ("refused", "task-not-allowed")
    assert next(ticks) < 12, "it went on after its time"
    assert asked(worker, None, torch.zeros(10), oracle={**several, "batch_size": 40, "epochs": 1})[0] == "ok"


def test_waiting_questions_are_bounded_in_number_and_bytes() -> None:
    stream, waiting = ServerStream(), Waiting(3, 100)
    for number in range(5):
        waiting.put((stream, str(number), 0.0, bytes(10)))
    waiting.put((stream, "large", 0.0, bytes(95)))
    waiting.put(None)
    got = [waiting.get(), waiting.get()]
    assert got[0] is not None and got[0][1] == "large" and got[1] is None
