"""The Ray engine on a real cluster of this machine: the answers of the reference, to the same bits whatever dies."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from weakref import ref

import numpy as np
import pytest
import torch

from databazaar import Arbiter, BazaarError, Consumer, LocalSGD, Provider, Report, Uniform, build_model
from databazaar.cluster import Call, Link, Settings, processors_here
from databazaar.engines import Ask, Engine, make_engine
from databazaar.engines.errands import Errand, Start, Training, Walk
from databazaar.engines.ray_engine import RayEngine
from databazaar.engines.ray_worker import one_by_one
from databazaar.learning.losses import cross_entropy
from databazaar.learning.models import LARGE
from databazaar.learning.task import Task
from databazaar.learning.utilities import Evaluator
from databazaar.testing import check_engine
from databazaar.valuation import MaxPermutations, compare
from databazaar.valuation.round_game import Block
from ray_clusters import (
    WORKERS,
    Head,
    Mortal,
    MortalLoss,
    all_workers,
    children_of,
    other_workers,
    parent_of,
    running_head,
    the_whole_cluster,
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


def test_errands_find_the_same_bits_whoever_dies(head: Head, tmp_path: Path) -> None:
    """A worker dies as it computes, and others beside it."""
    task = Task(model(), cross_entropy)
    params = task.layout.flatten(model())
    one = Provider("one", oracle=Mortal(0.1, tmp_path / "one", this_worker))
    others = Provider("others", oracle=Mortal(0.2, tmp_path / "others", other_workers))
    providers = [*sellers(), NOBODY, one, others]
    given = np.random.default_rng(0).normal(0.0, 0.1, (2, len(params))).astype(np.float32)
    errands: list[list[Errand]] = [
        [Training([0, 2, 6], [0.5, 0.4], 3), Training([5, 7], [0.5], 3), Training([], [0.5], 3)],
        [Walk([3, 5, 1], 0.5, 7, 0.1), Walk([1, 3, 0], 0.5, 8, 0.1)],
        [Block(np.eye(2)), Block(np.ones((1, 2)))],
    ]
    evaluator = Evaluator(task.copied(), sellers()[4].dataset, "exp-loss", torch.device("cpu"))
    with closing(RayEngine(task, providers, address=head.address, workers=WORKERS)) as engine:
        for alike in errands:
            start = Start(params, torch.from_numpy(given))
            found = engine.errands(evaluator, start, alike)
            assert found is not None
            assert (tmp_path / "one").exists()
            assert (tmp_path / "others").exists()
            own = one_by_one(task, providers)
            for errand, numbers in zip(alike, found, strict=True):
                assert np.array_equal(numbers, errand.run(own, evaluator, start))
        held = ref(given)
        del start, given
        assert held() is None  # once nobody needs it, the engine has let go of it as well
        mine = Evaluator(task, None, lambda model: 1.0, torch.device("cpu"))
        assert engine.errands(mine, Start(params), [Training([0], [0.5], 3)]) is None
        assert engine.clusters == 1


def test_rounds_are_valued_to_the_same_bits_with_any_number_of_workers_whoever_dies(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The models of a round's coalitions are scored by the workers, one of whom dies of it."""
    for name, value in {"WORTH_A_TRIP": 0, "SENT": 0, "BLOCK": 30_000}.items():
        monkeypatch.setattr(f"databazaar.valuation.round_game.{name}", value)
    x, y = sellers()[4].dataset
    loss = MortalLoss(len(y), tmp_path / "mark")
    consumer = Consumer(model(), holdout=(x, y), budget=6, per_round=3, utility="exp-loss", loss=loss)
    providers, options = [*sellers(4), NOBODY], {"fedsv": {"stop": MaxPermutations(5)}}
    found = []
    for workers in dict.fromkeys((WORKERS, 1)):
        engine = RayEngine(consumer.task.copied(), providers, address=head.address, workers=workers)
        with closing(engine):
            comparison = compare(consumer, providers, ("fedsv", "gtg"), engine=engine, seeds=2, options=options)
        found.append([result.values.tobytes() for outcome in comparison.outcomes for result in outcome.results])
        assert loss.mark.exists()
    assert all(values == found[0] for values in found)


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


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [
        ({}, "5 workers on end died of one ask .*memory for a copy of all data"),
        ({"numpy": "0.1"}, "the Ray cluster has numpy .* and this one has 0.1: install the same"),
    ],
)
def test_a_cluster_that_cannot_do_it_is_said_in_one_sentence(
    head: Head, versions: dict[str, str], sentence: str
) -> None:
    link = Link(Settings(head.address, 1, 60.0, 0, versions), "ray_clusters:Doomed", ())
    with closing(link), pytest.raises(BazaarError, match=sentence):
        link.map("update", [], [Call((), ())], (1,), np.float32)


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
