"""The Ray engine on a real cluster of this machine: the answers of the reference, to the same bits whatever dies."""

from __future__ import annotations

import os
import signal
import threading
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


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    with closing(RayEngine(Task(model(), cross_entropy), [*sellers(), NOBODY], workers=WORKERS)) as made:
        yield made


def test_it_answers_as_the_reference_does_and_failures_are_replies(engine: RayEngine) -> None:
    task = Task(model(), cross_entropy)
    params = task.layout.flatten(model())
    check_engine(engine, task, [*sellers(), NOBODY], params)
    assert engine.query(Ask(params, [], 0, 1)).updates.shape == (0, len(params))
    assert engine.clusters == 1


def test_the_bits_are_those_of_each_row_by_itself(engine: RayEngine) -> None:
    """However many workers there are, and in whatever order and company they are asked."""
    task = Task(model(), cross_entropy)
    params = task.layout.flatten(model())
    expected = OneByOne(task, [*sellers(), NOBODY]).query(Ask(params, [0, 1, 2, 3, 4], 2, 9)).updates
    for asked in ([0, 1, 2, 3, 4], [4, 2, 0], [1, 5, 3], [3]):
        got = engine.query(Ask(params, asked, 2, 9))
        for row, i in enumerate(asked):
            assert torch.equal(got.updates[row], expected[i] if i < 5 else torch.zeros_like(params))


DEATHS = {"a": this_worker, "b": all_workers, "c": the_whole_cluster}


def mortals(folder: Path) -> list[Provider]:
    return [Provider(name, oracle=Mortal(0.1 * i, folder / name, DEATHS[name])) for i, name in enumerate(DEATHS)]


def bought(engine: Engine, providers: list[Provider], folder: Path) -> Report:
    consumer = Consumer(
        np.zeros(30, dtype=np.float32),
        budget=12,
        per_round=3,
        utility=lambda w: float(1 / (1 + np.square(w - 0.2).sum())),
    )
    arbiter = Arbiter(consumer, providers, Uniform(replacement=False), engine=engine, seed=4)
    return arbiter.run(folder)


def test_workers_and_clusters_that_die_change_nothing(tmp_path: Path) -> None:
    """One worker, two at once, and everything that is Ray's: the model and the ledger of a run that nothing happened
    to, without a single void access."""
    alive, dying = tmp_path / "alive", tmp_path / "dying"
    alive.mkdir()
    dying.mkdir()
    for name in DEATHS:
        (alive / name).touch()
    task = Task(None, cross_entropy)
    undisturbed = bought(OneByOne(task, mortals(alive)), mortals(alive), tmp_path / "undisturbed")
    with closing(RayEngine(task, mortals(dying), workers=WORKERS)) as engine:
        disturbed = bought(engine, mortals(dying), tmp_path / "disturbed")
        assert engine.clusters == 2
    assert sorted(mark.name for mark in dying.iterdir()) == list(DEATHS)
    assert disturbed.model_hash == undisturbed.model_hash
    assert disturbed.ledger_head == undisturbed.ledger_head
    assert [payout.failures for payout in disturbed.payouts] == [0, 0, 0]


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
