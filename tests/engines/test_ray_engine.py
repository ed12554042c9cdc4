"""The Ray engine on a real cluster of this machine: the answers of the reference, to the same bits whatever dies."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from databazaar import (
    Arbiter,
    Ask,
    BazaarError,
    Consumer,
    Engine,
    LocalSGD,
    Provider,
    Replies,
    Report,
    StochasticGradient,
    Uniform,
    build_model,
    check_engine,
)
from databazaar.cluster import processors_here
from databazaar.cluster.foreman import OUR_CLUSTER
from databazaar.engines import make_engine
from databazaar.engines.ray_engine import RayEngine
from databazaar.engines.ray_worker import one_by_one
from databazaar.learning.losses import cross_entropy
from databazaar.learning.task import Task

pytestmark = pytest.mark.slow

Vector = NDArray[np.floating[Any]]
WORKERS = min(2, processors_here())
NOBODY = Provider("nobody", oracle=lambda w: w * np.float32(np.nan))


@dataclass(frozen=True)
class Mortal:
    """An oracle that pulls the parameters towards `goal`; where the file is missing, it first writes it and kills."""

    goal: float
    mark: Path
    victims: Callable[[], list[int]]

    def __call__(self, params: Vector) -> Vector:
        if not self.mark.exists():
            self.mark.touch()
            for victim in self.victims():
                os.kill(victim, signal.SIGKILL)
        return 0.5 * (self.goal - params)


def this_worker() -> list[int]:
    return [os.getpid()]


def all_workers() -> list[int]:
    """This one last; those that are about to start as well."""
    until(lambda: len(workers_of(os.getppid())) == WORKERS)
    return sorted(workers_of(os.getppid()), key=lambda pid: pid == os.getpid())


def workers_of(raylet: int) -> list[int]:
    return [pid for pid in children_of(raylet) if command_of(pid).startswith(b"ray::Host")]


def the_whole_cluster() -> list[int]:
    """All workers; the raylet, which is their parent; and whatever else of Ray's its parent has started."""
    raylet = os.getppid()
    daemons = [pid for pid in children_of(parent_of(raylet)) if b"session_" in command_of(pid)]
    assert raylet in daemons
    workers = [pid for pid in children_of(raylet) if pid != os.getpid()]
    return [*daemons, *workers, os.getpid()]


def children_of(parent: int) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if parent_of(pid) == parent]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def until(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it has not come about in two minutes")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


DEATHS: dict[str, Callable[[], list[int]]] = {"one": this_worker, "both": all_workers}


@dataclass(frozen=True)
class Head:
    address: str
    process: subprocess.Popen[bytes]


class OneByOne(Engine):
    """What the workers compute, in this process."""

    name = "one-by-one"

    def __init__(self, task: Task, providers: list[Provider]) -> None:
        self.device = torch.device("cpu")
        self._engine = one_by_one(task, providers)

    def query(self, ask: Ask) -> Replies:
        each = [self._engine.query(Ask(ask.params, [i], ask.round, ask.seed)) for i in ask.providers]
        failures = {i: reason for replies in each for i, reason in replies.failures.items()}
        return Replies(torch.cat([replies.updates for replies in each]), failures)


def sellers(count: int = 5) -> list[Provider]:
    generator = torch.Generator().manual_seed(3)
    oracles: list[LocalSGD | StochasticGradient] = [
        LocalSGD(step=0.1, batch_size=8, epochs=2),
        StochasticGradient(batch_size=7),
    ]
    rows = [20 + 13 * i for i in range(count)]
    return [
        Provider(
            f"p{i}",
            (torch.randn(n, 12, generator=generator), torch.randint(0, 3, (n,), generator=generator)),
            oracles[i % 2],
        )
        for i, n in enumerate(rows)
    ]


def model() -> torch.nn.Module:
    return build_model("mlp", [12], 3, hidden=[16], seed=1)


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    """A cluster that is there: it listens on the loopback address, on ports that were free, and asks for a token.

    All of it ends with the process of the command: the kernel sees to that.
    """
    (tmp_path / "token").write_text(secrets.token_hex(32))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    folder = Path(tempfile.mkdtemp(prefix="bz", dir="/tmp"))  # short, as the names of sockets must be
    options = {
        "port": 0,
        "node-ip-address": "127.0.0.1",
        "include-dashboard": "false",
        "dashboard-agent-listen-port": 0,
        "ray-client-server-port": free_port(),
        "min-worker-port": 0,
        "max-worker-port": 0,
        "num-cpus": WORKERS,
        "object-store-memory": 128 * 2**20,
        "temp-dir": folder,
    }
    environment = {**os.environ, **OUR_CLUSTER, "RAY_AUTH_MODE": "token", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with (tmp_path / "head.txt").open("w") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
    try:
        written = folder / "ray_current_cluster"
        while not (written.exists() and (address := written.read_text().strip())):
            assert process.poll() is None, (tmp_path / "head.txt").read_text()
            time.sleep(0.1)
        yield Head(address, process)
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


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
        assert engine.clusters == 1
        raylets = [pid for pid in children_of(head.process.pid) if workers_of(pid)]
        assert len(raylets) == 1
    until(lambda: not workers_of(raylets[0]))
    assert parent_of(raylets[0]) == head.process.pid
    assert head.process.poll() is None


def bought(engine: Engine, providers: list[Provider], folder: Path) -> Report:
    consumer = Consumer(
        np.zeros(30, dtype=np.float32),
        budget=4,
        per_round=2,
        utility=lambda w: float(1 / (1 + np.square(w - 0.2).sum())),
    )
    arbiter = Arbiter(consumer, providers, Uniform(replacement=False), engine=engine, seed=4)
    return arbiter.run(folder)


def test_a_cluster_of_our_own_that_dies_changes_nothing(tmp_path: Path) -> None:
    """Everything that is Ray's is killed: the model and the ledger of a run that nothing happened to, without a single
    void access."""
    mark = tmp_path / "mark"
    providers = [Provider("a", oracle=Mortal(0.1, mark, the_whole_cluster)), Provider("b", oracle=lambda w: 0.1 - w)]
    task = Task(None, cross_entropy)
    with closing(RayEngine(task, providers, workers=1)) as engine:
        disturbed = bought(engine, providers, tmp_path / "disturbed")
        assert engine.clusters == 2
    assert mark.exists()
    undisturbed = bought(OneByOne(task, providers), providers, tmp_path / "undisturbed")
    assert disturbed.model_hash == undisturbed.model_hash
    assert disturbed.ledger_head == undisturbed.ledger_head
    assert [payout.failures for payout in disturbed.payouts] == [0, 0]


def test_what_cannot_work_is_said_before_a_cluster_is_started() -> None:
    task = Task(model(), cross_entropy)
    many = processors_here() + 1
    with pytest.raises(BazaarError, match=rf"engine\.workers = {many} and this machine has {many - 1} processors"):
        RayEngine(task, sellers(), workers=many)
    with pytest.raises(BazaarError, match="workers = 0 must be a whole number"):
        RayEngine(task, sellers(), workers=0)
    with pytest.raises(BazaarError, match="compute on processors: use auto or cpu"):
        make_engine("ray", task, sellers(), "cuda")
    with pytest.raises(BazaarError, match="provider far has neither data nor an oracle"):
        make_engine("ray", task, [*sellers(), Provider("far")])
    lock = threading.Lock()
    stuck = RayEngine(task, [Provider("stuck", oracle=lambda w: w * lock.locked())])
    with pytest.raises(BazaarError, match=r"one of them cannot .*locks and open files"):
        stuck.query(Ask(task.layout.flatten(model()), [0], 0, 1))
    stuck.close()
    with pytest.raises(BazaarError, match="this engine is closed"):
        stuck.query(Ask(task.layout.flatten(model()), [0], 0, 1))


def test_where_no_cluster_is_the_address_is_named_at_once() -> None:
    task = Task(model(), cross_entropy)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        lost = RayEngine(task, sellers(), address=address, workers=1)
        with pytest.raises(BazaarError, match=f"no Ray cluster answers at {address} .*refused.*mend engine.address"):
            lost.query(Ask(task.layout.flatten(model()), [0], 0, 1))
        lost.close()
