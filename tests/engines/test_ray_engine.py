"""The Ray engine on a real cluster of this machine: the answers of the reference, to the same bits whatever dies."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
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
from databazaar.engines import make_engine
from databazaar.engines.ray_cluster import Cluster, here, ray_module
from databazaar.engines.ray_engine import RayEngine
from databazaar.engines.ray_worker import one_by_one
from databazaar.learning.losses import cross_entropy
from databazaar.learning.task import Task

pytestmark = pytest.mark.slow

Vector = NDArray[np.floating[Any]]
WORKERS = min(2, here())


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Cluster]:
    """One cluster for all tests, held by one more user than they are."""
    held = Cluster.shared(None, 120.0)
    held.connect(0)
    ray_module().cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test
    yield held
    held.release()


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
    """This one last."""
    others = [pid for pid in children_of(os.getppid()) if b"RayWorker" in command_of(pid) and pid != os.getpid()]
    return [*others, os.getpid()]


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
    oracles = [LocalSGD(step=0.1, batch_size=8, epochs=2), StochasticGradient(batch_size=7)]
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


def test_it_answers_as_the_reference_does_and_failures_are_replies() -> None:
    task = Task(model(), cross_entropy)
    params = task.layout.flatten(model())
    nobody = Provider("nobody", oracle=lambda w: w * np.float32(np.nan))
    engine = RayEngine(task, [*sellers(), nobody], workers=WORKERS)
    check_engine(engine, task, [*sellers(), nobody], params)
    assert engine.query(Ask(params, [], 0, 1)).updates.shape == (0, len(params))
    engine.close()
    with pytest.raises(BazaarError, match="this engine is closed"):
        engine.query(Ask(params, [0], 0, 1))


def test_the_bits_do_not_depend_on_how_many_workers_there_are() -> None:
    """They are those of each provider's row computed by itself; in one stack they would be others."""
    task = Task(model(), cross_entropy)
    params = task.layout.flatten(model())
    ask = Ask(params, [3, 0, 4, 1, 2], 2, 9)
    expected = OneByOne(task, sellers()).query(ask).updates
    for engine in (RayEngine(task, sellers(), workers=1), make_engine("ray", task, sellers())):
        assert torch.equal(engine.query(ask).updates, expected)
        engine.close()


DEATHS = {"a": this_worker, "b": all_workers, "c": the_whole_cluster, "d": this_worker}


def mortals(folder: Path) -> list[Provider]:
    return [Provider(name, oracle=Mortal(0.1 * i, folder / name, DEATHS[name])) for i, name in enumerate(DEATHS)]


def bought(engine: Engine, providers: list[Provider], folder: Path) -> Report:
    consumer = Consumer(
        np.zeros(30, dtype=np.float32),
        budget=24,
        per_round=4,
        utility=lambda w: float(1 / (1 + np.square(w - 0.2).sum())),
    )
    arbiter = Arbiter(consumer, providers, Uniform(replacement=False), engine=engine, seed=4)
    return arbiter.run(folder)


def test_workers_and_clusters_that_die_change_nothing(tmp_path: Path, cluster: Cluster) -> None:
    """One worker, then two at once, then everything that is Ray's: the model and the ledger of a run that nothing
    happened to, without a single void access."""
    alive = tmp_path / "alive"
    alive.mkdir()
    for name in DEATHS:
        (alive / name).touch()
    task = Task(None, cross_entropy)
    undisturbed = bought(OneByOne(task, mortals(alive)), mortals(alive), tmp_path / "undisturbed")
    dying = tmp_path / "dying"
    dying.mkdir()
    before = cluster.generation
    engine = RayEngine(task, mortals(dying), workers=WORKERS, wait=120.0)
    disturbed = bought(engine, mortals(dying), tmp_path / "disturbed")
    engine.close()
    assert sorted(mark.name for mark in dying.iterdir()) == list(DEATHS)
    assert cluster.generation == before + 1
    assert disturbed.model_hash == undisturbed.model_hash
    assert disturbed.ledger_head == undisturbed.ledger_head
    assert [payout.failures for payout in disturbed.payouts] == [0, 0, 0, 0]
