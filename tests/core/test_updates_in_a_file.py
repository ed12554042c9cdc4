"""Updates that memory has no room for: in a file or on the host, to the same bits; or a sentence that says why not."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from databazaar import (
    OSMD,
    Arbiter,
    BazaarError,
    Consumer,
    Krum,
    LocalSGD,
    Median,
    Progress,
    Provider,
    Thrifty,
    Uniform,
)
from databazaar.aggregators import Aggregator
from databazaar.engines import memory, vectorized
from databazaar.engines.memory import Free, Need, free_bytes, room_for, training_copies
from databazaar.engines.quarantine import SET_ASIDE
from databazaar.engines.room import FileRoom, Room
from databazaar.learning.models import hash_vector
from databazaar.market import fitting, move
from databazaar.market.move import length
from databazaar.market.watch import sketch, watch
from databazaar.samplers import Sampler
from databazaar.scratch import disc_for, in_memory, mapped
from own_samplers import Together

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
GB = 10**9
WIDTH = 6 * 5 + 5 + 5 * 2 + 2


def all_are_large(patch: pytest.MonkeyPatch) -> None:
    for module in (fitting, move, vectorized, watch, sketch):
        patch.setattr(module, "LARGE", 1)


@pytest.fixture
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any model is a large one."""
    all_are_large(monkeypatch)


def fails(w: np.ndarray) -> np.ndarray:
    """So often that it is set aside."""
    return np.full_like(w, np.nan)


def market(
    sampler: Sampler, engine: str, aggregator: Aggregator | None = None, defence: str | None = None, own: bool = False
) -> Arbiter:
    rng = np.random.default_rng(0)

    def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(count, 6)).astype(np.float32)
        return x, (x[:, 0] > 0).astype(np.int64)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    consumer = Consumer(model, holdout=rows(40), budget=60, per_round=5, train=rows(20) if own else None)
    providers = [Provider(f"p{i}", rows(12), LocalSGD(0.1 * 4**i, 4, steps=3)) for i in range(4)]
    if engine == "loop":
        providers.insert(1, Provider("fails", oracle=fails))
    return Arbiter(
        consumer, providers, sampler, aggregator=aggregator, defence=defence, engine=engine, device="cpu", seed=3
    )


@pytest.mark.usefixtures("_large")
@pytest.mark.parametrize(
    ("sampler", "engine", "aggregator", "defence", "own"),
    [
        (Uniform(replacement=False), "loop", None, None, False),
        (OSMD(0.1, 0.2), "vectorized", Median(), "strict", True),
        (Together(), "loop", None, "strict", True),
        (Together(), "vectorized", Median(), None, True),
        (Thrifty(), "loop", Median(), None, True),
        (Thrifty(), "vectorized", None, "strict", False),
    ],
)
def test_a_market_comes_to_the_same_model_and_ledger_wherever_its_updates_lie(
    sampler: Sampler,
    engine: str,
    aggregator: Aggregator | None,
    defence: str | None,
    own: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, rooms = [], []

    def noted(*asked: Any) -> Room | None:
        rooms.append(room_for(*asked))
        return rooms[-1]

    monkeypatch.setattr(fitting, "room_for", noted)
    for name, copies in {"memory": 100, "file": 6}.items():
        free = Free(CPU, 4 * WIDTH * copies, None)
        monkeypatch.setattr(Free, "now", lambda device, free=free: free)
        arbiter = market(sampler, engine, aggregator, defence, own)
        report = arbiter.run(tmp_path / name)
        found.append((hash_vector(arbiter.last_parameters), report.model_hash, report.ledger_head))
        failures = [access.failure for one in report.rounds for access in one.accesses]
        assert SET_ASIDE in failures or not isinstance(sampler, Uniform)
    assert rooms[0] is None and isinstance(rooms[1], FileRoom)
    assert found[0] == found[1]


@pytest.mark.usefixtures("_large")
def test_a_run_that_stopped_goes_on_with_its_updates_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun in memory, resumed in a file, stopped in the middle of a round there, and ended in memory."""

    def stop(progress: Progress) -> None:
        if progress.round in (3, 7):
            raise RuntimeError("stopped by the test")

    whole = market(Thrifty(), "loop", own=True).run(tmp_path / "whole")
    for copies in (100, 6, 100):
        free = Free(CPU, 4 * WIDTH * copies, None)
        monkeypatch.setattr(Free, "now", lambda device, free=free: free)
        with suppress(RuntimeError):
            parted = market(Thrifty(), "loop", own=True).run(tmp_path / "parted", tell=stop)
    assert (parted.ledger_head, parted.last_model_hash) == (whole.ledger_head, whole.last_model_hash)
    assert not [path.name for path in (tmp_path / "parted").iterdir() if path.name.startswith("tmp")]


@pytest.mark.parametrize(
    ("sampler", "defence"), [(Thrifty(), "strict"), (Together(), "strict"), (OSMD(0.1, 0.2), None)]
)
def test_a_large_models_market_is_that_of_any_model(
    sampler: Sampler, defence: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a watch measures row by row, and what is summed up in pieces, is what whole stacks give."""
    small = market(sampler, "vectorized", None, defence, own=True).run()
    all_are_large(monkeypatch)
    large = market(sampler, "vectorized", None, defence, own=True).run()
    for one, other in zip(small.rounds, large.rounds, strict=True):
        assert [access.provider for access in one.accesses] == [access.provider for access in other.accesses]
        assert [access.failure for access in one.accesses] == [access.failure for access in other.accesses]
        assert other.utility == pytest.approx(one.utility, abs=1e-5)


@settings(deadline=None, max_examples=60)
@given(data=st.data(), in_file=st.booleans(), rows=st.integers(1, 6), width=st.sampled_from([1, 7, 300_000]))
def test_rows_are_what_was_put_there_and_spread_without_another_copy(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, in_file: bool, rows: int, width: int
) -> None:
    """As a list of rows would have it, round after round."""
    place = tmp_path_factory.getbasetemp()
    room = FileRoom(place, rows, width, torch.float32) if in_file else Room.on_host(rows, width, torch.float32)
    for _ in range(2):
        places = sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1)))
        answers = [data.draw(st.one_of(st.none(), st.floats(-9, 9, width=32))) for _ in places]
        for row, answer in enumerate(answers):
            room.put(row, None if answer is None else torch.full((width,), answer))
        assert room.rows(len(places))[:, -1].tolist() == [answer or 0.0 for answer in answers]
        expected = [0.0] * rows
        for at, answer in zip(places, answers, strict=True):
            expected[at] = answer or 0.0
        spread = room.spread(places, rows)
        assert torch.equal(spread, torch.tensor(expected)[:, None].expand(rows, width))
        assert spread.data_ptr() == room.rows(1).data_ptr()


def test_the_file_has_no_name_and_a_disc_that_is_full_is_a_sentence(tmp_path: Path) -> None:
    room = FileRoom(tmp_path, 2, 5000, torch.float32)
    room.put(1, torch.ones(5000))
    assert list(tmp_path.iterdir()) == [], "what is killed leaves nothing behind"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(BazaarError, match=r"could not be written in .* \(File too large\): make room .* resume"):
            room.put(1, torch.zeros(5000))
        with pytest.raises(BazaarError, match=r"a file for the updates could not be made in .* set TMPDIR"):
            room_for(Need(5000, 2), Free(CPU, 80_000, None), [tmp_path])
        with pytest.raises(BazaarError, match="could not be written"):
            mapped(30_000, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert torch.equal(room.rows(2)[1], torch.ones(5000))


def test_updates_go_where_there_is_room_for_them(tmp_path: Path) -> None:
    need = Need(1000, 4)  # 28,000 bytes, and 16,000 of them beside the updates
    assert room_for(need, Free(CPU, 28_000, None)) is None
    assert room_for(need, Free(CPU, None, None)) is None, "where nothing is known, nothing is refused"
    room = room_for(need, Free(CPU, 27_999, None), [tmp_path / "not" / "yet"])
    assert isinstance(room, FileRoom) and room.folder == tmp_path and room.rows(9).shape == (4, 1000)
    assert isinstance(room_for(need, Free(CPU, 16_000, None), [tmp_path]), FileRoom)
    on_host = room_for(need, Free(CUDA, 27_999, 24_000))
    assert on_host is not None and not isinstance(on_host, FileRoom) and on_host.rows(4).device == CPU
    assert isinstance(room_for(need, Free(CUDA, 27_999, 23_999), [tmp_path]), FileRoom)
    assert room_for(Need(1000, 4, training=2), Free(CPU, 36_000, None)) is None
    with pytest.raises(BazaarError, match=r"needs 0.0 GB, 9 copies .* still needs 0.0 GB, 6 copies"):
        room_for(Need(1000, 4, training=2), Free(CPU, 23_999, None), [tmp_path])
    assert Need(1000, 4, more=1, ahead=True).copies == 9 and Need(1000, 4, more=1, ahead=True).beside == 6
    assert Need(1000, 4, comes=True).elsewhere == 8


@pytest.mark.parametrize(
    ("need", "free", "sentence"),
    [
        (
            Need(GB, 4, whole="of this"),
            Free(CPU, 27_900_000_000, None),
            "cannot be kept in a file, because of this: lower",
        ),
        (
            Need(GB, 4),
            Free(CPU, 15 * GB, None),
            "15.0 GB are free on cpu; with .* still needs 16.0 GB, 4 copies: train",
        ),
        (Need(GB, 4), Free(CPU, 99 * GB, None, 31 * GB), None),
        (Need(GB, 4), Free(CPU, 99 * GB, None, 27 * GB), "27.0 GB are free by ulimit -v, which counts files as well"),
        (
            Need(10**14, 4),
            Free(CPU, 4 * 10**14 * 5, None),
            "needs 1,600,000.0 GB of a disc, and there is .* set TMPDIR",
        ),
        (Need(GB, 4), Free(CUDA, 15 * GB, 99 * GB), "15.0 GB are free on cuda; .* still needs 16.0 GB"),
    ],
)
def test_what_cannot_fit_is_refused_with_numbers(need: Need, free: Free, sentence: str | None) -> None:
    if sentence is None:
        assert room_for(need, free) is None
        return
    with pytest.raises(
        BazaarError, match=f"copies of the {need.params:,} parameters that are trained, and .*{sentence}"
    ):
        room_for(need, free)


@pytest.mark.usefixtures("_large")
def test_a_rule_that_needs_whole_updates_says_so_and_what_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    free = Free(CPU, 4 * WIDTH * 5, None)
    monkeypatch.setattr(Free, "now", lambda device: free)
    with pytest.raises(BazaarError, match=r"because aggregator krum looks at whole updates .mean, median and trimmed"):
        market(Thrifty(), "loop", Krum()).run()
    arbiter = market(Thrifty(), "loop")
    arbiter.engine.spares_memory = False
    with pytest.raises(BazaarError, match="because engine loop holds all of them"):
        arbiter.run()


def test_optimizers_are_counted() -> None:
    plain, heavy = LocalSGD(), LocalSGD(momentum=0.9)
    adam, decay = LocalSGD(optimizer="adam"), LocalSGD(weight_decay=0.1)
    for oracles, on_cpu, on_gpu in (
        ([plain, fails], 0, 0),
        ([plain, heavy], 1, 1),
        ([adam, heavy], 2, 3),
        ([decay], 0, 1),
    ):
        assert training_copies(oracles, CPU) == on_cpu and training_copies(oracles, CUDA) == on_gpu


def test_memory_in_the_shape_of_a_disc_is_not_one(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    assert in_memory(shared) and disc_for(0, [shared]) is None
    assert disc_for(0, [shared, tmp_path]) == (None if in_memory(tmp_path) else tmp_path)
    free = free_bytes(CPU)
    assert free is None or free > 0


def test_what_is_free_is_what_the_container_or_the_process_may_still_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    (tmp_path / "memory.max").write_text("9000000\n")
    (tmp_path / "memory.current").write_text("5000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1000000\n")
    assert free_bytes(CPU) == 5_000_000
    (tmp_path / "memory.max").write_text("max\n")
    for limit, found in (("RLIMIT_DATA", free_bytes), ("RLIMIT_AS", lambda _: memory.free_addresses())):
        before = resource.getrlimit(getattr(resource, limit))
        resource.setrlimit(getattr(resource, limit), (2**46, before[1]))
        try:
            machine = memory._of_machine()
            least = 2**46 if machine is None or limit == "RLIMIT_AS" else machine
            assert 0 < (found(CPU) or 0) <= least
        finally:
            resource.setrlimit(getattr(resource, limit), before)
    monkeypatch.setattr(memory, "_of_machine", lambda: None)
    assert free_bytes(CPU) is None and memory.free_addresses() is None, "no limit, and nothing is known of the machine"


class Greedy(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise MemoryError("no more")
        return super().forward(x)


def test_memory_that_runs_out_is_not_the_providers_failure() -> None:
    x, y = np.ones((4, 2), dtype=np.float32), np.array([0, 1, 0, 1])
    consumer = Consumer(Greedy(2, 2), holdout=(x, y), budget=4, per_round=2)
    arbiter = Arbiter(consumer, [Provider("p", (x, y))], engine="loop", device="cpu")
    with pytest.raises(
        BazaarError, match=r"memory ran out in the middle of a round \(no more\): nothing of it is paid"
    ):
        arbiter.run()


@pytest.mark.usefixtures("_large")
def test_lengths_and_sketches_in_pieces_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = torch.randn(3, 2000, generator=torch.Generator().manual_seed(0))
    assert [length(v, 300) for v in vectors] == pytest.approx(vectors.double().norm(dim=1).tolist(), rel=1e-12)
    monkeypatch.setattr(sketch, "PIECE", 3 * sketch.SIZE)
    found = sketch.Sketch.of(vectors[0])(vectors)
    monkeypatch.setattr(sketch, "LARGE", 10**6)
    assert torch.allclose(found, sketch.Sketch.of(vectors[0])(vectors), rtol=0, atol=1e-5)
