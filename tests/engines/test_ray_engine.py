"""The Ray engine on a real cluster of this machine: the answers of the reference, to the same bits whatever dies."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, Provider, build_model
from databazaar.data.formats import TableFormat
from databazaar.data.tables import Schema, TableReference, read_table
from databazaar.engines import Ask, make_engine
from databazaar.engines import ray_engine as engine_module
from databazaar.engines.ray_cluster import processors_here
from databazaar.engines.ray_engine import RayEngine
from databazaar.learning.losses import cross_entropy
from databazaar.learning.models import LARGE
from databazaar.learning.task import Task
from databazaar.testing import check_engine
from processes import run
from ray_clusters import (
    WORKERS,
    Head,
    Mortal,
    all_workers,
    children_of,
    command_of,
    doomed,
    other_workers,
    parent_of,
    running_head,
    this_worker,
    until,
    workers_of,
)
from ray_markets import OneByOne, model, sellers

pytestmark = [pytest.mark.slow, pytest.mark.process]

NOBODY = Provider("nobody", oracle=lambda w: w * np.float32(np.nan))
DEATHS: dict[str, Callable[[], list[int]]] = {"one": this_worker, "both": all_workers}


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with running_head(WORKERS) as head, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(head.token))
        yield head


ELSEWHERE = """
import json, sys
from pathlib import Path
from databazaar import Arbiter, Consumer
from databazaar.engines.ray_engine import RayEngine
from ray_markets import OneByOne, model, sellers

folder, address = Path(sys.argv[1]), sys.argv[2]
consumer = Consumer(model(), holdout=sellers()[4].dataset, budget=6, per_round=2, utility="exp-loss")
task, providers = consumer.task.copied(), sellers(4)
for name, engine in (
    ("elsewhere", RayEngine(task, providers, address=address, workers=1, wait=300.0)),
    ("here", OneByOne(task, providers)),
):
    report = Arbiter(consumer, providers, engine=engine, seed=4).run(folder / name)
    print(json.dumps([report.model_hash, report.ledger_head, [payout.failures for payout in report.payouts]]))
    engine.close()
"""


def test_a_run_from_elsewhere_comes_to_the_same_model_and_ledger(head: Head, tmp_path: Path) -> None:
    """By ray://, as from another machine. It comes first in this file: it is begun as soon as the head is there, which
    is before the server is that it connects to. It has a process of its own, because a process reads one token."""
    more = {"RAY_AUTH_TOKEN_PATH": str(head.token), "PYTHONPATH": os.pathsep.join(sys.path)}
    found = run([sys.executable, "-c", ELSEWHERE, str(tmp_path), head.client], env={**os.environ, **more})
    assert found.returncode == 0, found.stderr
    elsewhere, here = map(json.loads, found.stdout.splitlines())
    assert elsewhere == here
    assert here[2] == [0] * 4


def test_a_cluster_that_is_there_answers_survives_its_workers_and_outlives_the_engine(
    head: Head, tmp_path: Path
) -> None:
    """As the reference does, and to the bits of each row by itself: in whatever order and company, whoever dies."""
    task = Task(model(), cross_entropy)
    params = task.layout.flatten(model())
    one, both = (Provider(name, oracle=Mortal(0.1, tmp_path / name, DEATHS[name])) for name in ("one", "both"))
    providers = [*sellers(), NOBODY, one, both]
    with closing(RayEngine(task, providers, address=head.address, workers=WORKERS)) as engine:
        killed = engine.query(Ask(params, [7, 0], 2, 9)), engine.query(Ask(params, [6], 2, 9))
        assert (tmp_path / "one").exists()
        assert (tmp_path / "both").exists()
        rows = OneByOne(task, providers).query(Ask(params, range(8), 2, 9)).updates
        assert torch.equal(killed[0].updates, rows[[7, 0]])
        assert torch.equal(killed[1].updates, rows[[6]])
        for asked in ([0, 1, 2, 3, 4], [4, 2, 0], [1, 5, 3], [3]):
            assert torch.equal(engine.query(Ask(params, asked, 2, 9)).updates, rows[asked])
        check_engine(engine, task, providers, params)
        assert engine.query(Ask(params, [], 0, 1)).updates.shape == (0, len(params))
        (raylet,) = [pid for pid in children_of(head.process.pid) if workers_of(pid)]
        held = [pid for pid in workers_of(raylet) if b"compute_update" in command_of(pid)]
    until(lambda: not set(held) & set(workers_of(raylet)))
    assert parent_of(raylet) == head.process.pid
    assert head.process.poll() is None


def test_a_large_model_is_bought_and_a_death_changes_nothing(head: Head, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(5)

    def rows(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(count, 4200, generator=generator), torch.randint(0, 1000, (count,), generator=generator)

    providers = [Provider(f"p{i}", rows(6 + i), LocalSGD(step=0.1, batch_size=4)) for i in range(3)]
    providers.append(Provider("mortal", oracle=Mortal(0.01, tmp_path / "mark", other_workers)))
    large = build_model("logistic", [4200], 1000, seed=1)
    consumer = Consumer(large, holdout=rows(9), budget=8, per_round=4, utility="exp-loss")
    assert consumer.task.layout.width > LARGE
    with closing(RayEngine(consumer.task.copied(), providers, address=head.address, workers=WORKERS)) as engine:
        disturbed = Arbiter(consumer, providers, engine=engine, seed=4).run(tmp_path / "disturbed")
    assert (tmp_path / "mark").exists()
    plain = OneByOne(consumer.task.copied(), providers)
    undisturbed = Arbiter(consumer, providers, engine=plain, seed=4).run(tmp_path / "undisturbed")
    assert disturbed.model_hash == undisturbed.model_hash
    assert disturbed.ledger_head == undisturbed.ledger_head
    assert [payout.failures for payout in disturbed.payouts] == [0, 0, 0, 0]


def test_workers_read_the_tables_themselves(head: Head, tmp_path: Path) -> None:
    """The rows are not sent; a file that has changed, or is not there, is named."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "b": rng.normal(size=40), "y": rng.integers(0, 2, 40)})
    frame.to_csv(tmp_path / "north.csv", index=False)
    schema, table = Schema.fit(frame, target="y", task="classification"), read_table(tmp_path / "north.csv")
    reference = TableReference(tmp_path / "north.csv", table.digest, TableFormat(), schema, (schema.width,))
    provider = Provider("north", reference(), LocalSGD(), source=reference)
    task = Task(build_model("logistic", [schema.width], 2), cross_entropy)
    params = task.layout.flatten(build_model("logistic", [schema.width], 2))
    other, lost = replace(reference, digest="0" * 64), replace(reference, path=tmp_path / "south.csv")
    rows = torch.zeros(1, schema.width), torch.zeros(1, dtype=torch.int64)
    providers = [
        provider,
        Provider("north", rows, LocalSGD(), source=reference),
        Provider("changed", rows, LocalSGD(), source=other),
        Provider("lost", rows, LocalSGD(), source=lost),
    ]
    with closing(RayEngine(task, providers, address=head.address, workers=1)) as engine:
        right = OneByOne(task, [provider]).query(Ask(params, [0], 0, 1)).updates
        for place in (0, 1):
            assert torch.equal(engine.query(Ask(params, [place], 0, 1)).updates, right)
        for place, sentence in ((2, "north.csv has changed since the run began"), (3, "south.csv is not on a worker")):
            with pytest.raises(BazaarError, match=sentence):
                engine.query(Ask(params, [place], 0, 1))


def test_a_cluster_that_cannot_do_it_is_said_in_one_sentence(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, task = threading.Lock(), Task(model(), cross_entropy)
    params = task.layout.flatten(model())
    providers = [
        Provider("doomed", oracle=doomed),
        Provider("stuck", oracle=lambda w: w * lock.locked()),
        Provider("lost", sellers(1)[0].dataset, source=lambda: 1 / 0),
    ]
    sentences = (
        "did not answer one ask after 1 retries .*memory for the providers' data",
        "one of them cannot .*locks and open files",
        "a worker of the Ray cluster failed .*division by zero.*must be installed on every machine",
    )
    monkeypatch.setattr(engine_module, "RETRIES", 1)
    with closing(RayEngine(task, providers, address=head.address, workers=1)) as engine:
        for place, sentence in enumerate(sentences):
            with pytest.raises(BazaarError, match=sentence):
                engine.query(Ask(params, [place], 0, 1))
    monkeypatch.setattr(engine_module, "versions", lambda: {"numpy": "0.1"})
    with (
        closing(RayEngine(task, sellers(), address=head.address, workers=1)) as engine,
        pytest.raises(BazaarError, match=r"the Ray cluster has numpy .*of the run has 0\.1: install the same"),
    ):
        engine.query(Ask(params, [0], 0, 1))


BOUGHT = """
import json, sys
from pathlib import Path
import numpy as np
from databazaar import Arbiter, Consumer, Provider, Uniform
from databazaar.engines.ray_engine import RayEngine
from databazaar.learning.losses import cross_entropy
from databazaar.learning.task import Task
from ray_clusters import Mortal, the_whole_cluster
from ray_markets import OneByOne

folder = Path(sys.argv[1])
utility = lambda w: float(1 / (1 + np.square(w - 0.2).sum()))
providers = [
    Provider("a", oracle=Mortal(0.1, folder / "mark", the_whole_cluster)), Provider("b", oracle=lambda w: 0.1 - w)
]
task = Task(None, cross_entropy)
for name, engine in (("ray", RayEngine(task, providers, workers=1)), ("here", OneByOne(task, providers))):
    consumer = Consumer(np.zeros(30, dtype=np.float32), budget=4, per_round=2, utility=utility)
    report = Arbiter(consumer, providers, Uniform(replacement=False), engine=engine, seed=4).run(folder / name)
    engine.close()
    print(json.dumps([report.model_hash, report.ledger_head, [payout.failures for payout in report.payouts]]))
"""


def test_a_run_whose_own_cluster_dies_ends_and_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Everything that is Ray's is killed. Ray may end the process of the run with it; what was committed stays."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", BOUGHT, str(tmp_path)]
    killed = run(command, env=environment)
    assert (tmp_path / "mark").exists(), killed.stderr
    assert killed.returncode != 0 and not (tmp_path / "here").exists()
    again = run(command, env=environment)
    assert again.returncode == 0, again.stderr
    goes_on, undisturbed = map(json.loads, again.stdout.splitlines())
    assert goes_on == undisturbed


def test_what_cannot_work_is_said_before_a_cluster_is_started() -> None:
    task = Task(model(), cross_entropy)
    many = processors_here() + 1
    with pytest.raises(BazaarError, match=rf"workers = {many} and this machine has {many - 1} processors"):
        RayEngine(task, sellers(), workers=many)
    with pytest.raises(BazaarError, match="workers = 0 must be a whole number"):
        RayEngine(task, sellers(), workers=0)
    with pytest.raises(BazaarError, match="compute on processors: use auto or cpu"):
        make_engine("ray", task, sellers(), "cuda")
    with pytest.raises(BazaarError, match="provider far has neither data nor an oracle"):
        make_engine("ray", task, [*sellers(), Provider("far")])
    closed = RayEngine(task, sellers())
    closed.close()
    with pytest.raises(BazaarError, match="this engine is closed"):
        closed.query(Ask(task.layout.flatten(model()), [0], 0, 1))


def test_where_no_cluster_is_the_address_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(model(), cross_entropy)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        lost = RayEngine(task, sellers(), workers=1)
        with pytest.raises(BazaarError, match=f"no Ray cluster answers at {address} .*refused.*mend RAY_ADDRESS"):
            lost.query(Ask(task.layout.flatten(model()), [0], 0, 1))
        lost.close()
