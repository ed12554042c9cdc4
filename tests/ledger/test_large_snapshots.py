"""HashedArray models are kept in files that take turns: whole at any moment, and the same hashes as in the database."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

from databazaar import OSMD, Arbiter, LedgerError, Progress
from databazaar.aggregators import CentredClipping
from databazaar.canonical import GENESIS
from databazaar.errors import BazaarError
from databazaar.ledger import Snapshot, snapshot_files
from databazaar.ledger.snapshot_files import ArrayFile
from databazaar.ledger.sql import SqlStore
from databazaar.runs.close import close_run
from databazaar.runs.folder import RunFolder
from databazaar.vectors import HashedArray, pack
from killed_store import LEDGER, Players, best, entry, model
from small_markets import MakeMarket

IN_FILES, IN_DATABASE = 1, 2**40
HASH = b"0" * 64


class StoppedError(Exception):
    """As if the process had been killed."""


@pytest.fixture(scope="module")
def arbiter(make_vector_market: MakeMarket) -> Any:
    """Fresh arbiters of one market, whose best model is not always its last."""

    def made() -> Arbiter:
        consumer, providers = make_vector_market(budget=24, prices=[1, 2, 1, 1], oracles={3: lambda w: -w})
        return Arbiter(consumer, providers, OSMD(0.6, 0.2), aggregator=CentredClipping(), engine="loop", seed=8)

    return made


def stop_after(rounds: int) -> Any:
    def stop(progress: Progress) -> None:
        if progress.round == rounds:
            raise StoppedError

    return stop


def outcome(path: Path) -> tuple[str, str]:
    audit = RunFolder(path).audit()
    assert audit.ok, audit.first_broken
    summary = RunFolder(path).summary()
    return summary["ledger_head"], summary["model_hash"]


def files(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("snapshot-*"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, arbiter: Any) -> Path:
    """The run that nothing happened to, in the database."""
    path = tmp_path_factory.mktemp("whole") / "run"
    arbiter().run(path)
    return path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, arbiter: Any) -> dict[int, Path]:
    """The same, stopped after three rounds, kept in either way."""
    paths = {size: tmp_path_factory.mktemp("stopped") / "run" for size in (IN_FILES, IN_DATABASE)}
    for size, path in paths.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(snapshot_files, "LARGE", size)
            with pytest.raises(StoppedError):
                arbiter().run(path, tell=stop_after(3))
    return paths


@pytest.fixture
def run(tmp_path: Path, stopped: dict[int, Path]) -> Path:
    """A copy of the one that was stopped, in files."""
    return Path(shutil.copytree(stopped[IN_FILES], tmp_path / "run"))


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_files, "LARGE", IN_FILES)


@pytest.mark.usefixtures("in_files")
def test_the_same_run_comes_to_the_same_hashes_in_the_database_and_in_files(
    tmp_path: Path, whole: Path, arbiter: Any
) -> None:
    seen = []
    arbiter().run(tmp_path / "files", tell=lambda _: seen.append(len(files(tmp_path / "files"))))
    assert outcome(tmp_path / "files") == outcome(whole)
    assert seen[0] == 2 and 3 <= max(seen) <= 5  # model and aggregator; both twice, and the best model
    names = [sorted(file.name for file in path.rglob("*")) for path in (tmp_path / "files", whole)]
    assert names[0] == names[1] and not files(tmp_path / "files")


@pytest.mark.parametrize("first", [IN_FILES, IN_DATABASE])
@pytest.mark.parametrize("then", [IN_FILES, IN_DATABASE])
def test_a_run_goes_on_whichever_way_it_was_begun(
    tmp_path: Path,
    whole: Path,
    stopped: dict[int, Path],
    arbiter: Any,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    then: int,
) -> None:
    """With its arrays in files, or with all of it in the database."""
    path = Path(shutil.copytree(stopped[first], tmp_path / "run"))
    assert bool(files(path)) == (first == IN_FILES)
    assert RunFolder(path).audit().ok
    monkeypatch.setattr(snapshot_files, "LARGE", then)
    arbiter().run(path)
    assert outcome(path) == outcome(whole) and not files(path)


def test_a_run_is_closed_by_its_folder_alone(tmp_path: Path, stopped: dict[int, Path]) -> None:
    heads = []
    for size, begun in stopped.items():
        path = Path(shutil.copytree(begun, tmp_path / str(size)))
        close_run(path)
        heads.append(outcome(path))
        assert not files(path)
    assert heads[0] == heads[1]


def named(path: Path) -> dict[str, ArrayFile]:
    """The files that the ledger names, by their arrays."""
    store = SqlStore.file(path / LEDGER, RunFolder(path).id)
    row = store._snapshot_row()
    store.dispose()
    assert row is not None
    return snapshot_files.places_in(row[2])


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-3, 2)
        byte = file.read(1)
        file.seek(-3, 2)
        file.write(bytes([byte[0] ^ 64]))


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


DAMAGE = {
    "does not hold the numbers": flip,
    "has another size": lambda path: path.write_bytes(path.read_bytes()[:-4]),
    "is missing": lambda path: path.unlink(),
    "no plain file": link,
}


@pytest.mark.parametrize("array", ["params", "aggregator"])
@pytest.mark.parametrize("told", DAMAGE)
def test_a_file_that_is_not_what_was_written_is_named_in_one_sentence(
    run: Path, stopped: dict[int, Path], whole: Path, arbiter: Any, told: str, array: str
) -> None:
    file = named(run)[array].file
    DAMAGE[told](run / file)
    found = RunFolder(run).audit()
    assert not found.ok and told in found.message and file in found.message and "\n" not in found.message
    with pytest.raises(BazaarError, match=told):
        arbiter().run(run)
    with pytest.raises(BazaarError, match=told):
        close_run(run)
    (run / file).unlink(missing_ok=True)
    shutil.copy(stopped[IN_FILES] / file, run / file)  # as the sentence says
    arbiter().run(run)
    assert outcome(run) == outcome(whole)


@pytest.mark.usefixtures("in_files")
def test_what_lies_in_a_files_place_is_not_written_to(run: Path, tmp_path: Path, arbiter: Any) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(StoppedError):
        arbiter().run(tmp_path / "ahead", tell=stop_after(4))
    new = {place.file for place in named(tmp_path / "ahead").values()} - set(files(run))
    assert new
    for name in new:  # what the next round will write
        (run / name).symlink_to(tmp_path / "mine")
    arbiter().run(run)
    assert outcome(run) and (tmp_path / "mine").read_text() == "precious"
    assert not files(run)


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"{}[",
        b'{"params": 3}',
        b'{"params": {"hash": "%s"}}' % HASH,
        b'{"params": {"type": "<f4", "shape": [1], "hash": "../mine"}}',
        b'{"params": {"type": "<f4", "shape": [1], "hash": ["%s"]}}' % HASH,
        b'{"params": {"file": "../mine", "type": "<f4", "shape": [1], "hash": "%s"}}' % HASH,
        b'{"params": {"type": "O", "shape": [1], "hash": "%s"}}' % HASH,
        b'{"params": {"type": "<f4", "shape": [-1], "hash": "%s"}}' % HASH,
        b'{"params": {"type": "<f4", "shape": [999999999999], "hash": "%s"}}' % HASH,
        b'{"params": {"type": "<f4", "shape": [65536, 65536], "hash": "%s"}}' % HASH,
    ],
)
def test_a_row_that_names_no_file_of_ours_is_refused(tmp_path: Path, text: bytes) -> None:
    store = SqlStore.file(tmp_path / LEDGER, "run")
    store.append([entry(0, GENESIS)], Snapshot(1, b"", text))
    with pytest.raises(LedgerError):
        store.snapshot()
    store.dispose()


def test_a_file_can_be_read_by_whoever_reads_safetensors(tmp_path: Path) -> None:
    store = SqlStore.file(tmp_path / LEDGER, "run")
    numbers = np.arange(snapshot_files.LARGE // 4, dtype=np.float32)
    large = HashedArray(numbers)
    store.append([entry(0, GENESIS)], Snapshot.of(1, {}, large))
    assert np.array_equal(load_file(tmp_path / f"snapshot-{large.hash}.safetensors")["w"], numbers)
    small = Snapshot.of(1, {}, HashedArray(numbers[1:]))
    assert not small.large and small.params  # below a million numbers nothing changes
    store.dispose()


@pytest.mark.usefixtures("in_files")
def test_a_database_without_a_folder_holds_all_of_it(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path / LEDGER}", "run")
    store.append([entry(0, GENESIS)], Snapshot.of(1, {"best": HashedArray(model(2))}, HashedArray(model(1))))
    kept = store.snapshot()
    assert kept is not None and kept.parameters is not None and not files(tmp_path)
    assert np.array_equal(kept.parameters, model(1)) and np.array_equal(kept.arrays()["best"], model(2))
    store.dispose()


@pytest.mark.usefixtures("in_files")
def test_a_reader_of_a_run_that_goes_on_reads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that it was about to read is written anew two rounds later."""
    writer = SqlStore.file(tmp_path / LEDGER, "run")
    head = GENESIS

    def rounds(*numbers: int) -> None:
        nonlocal head
        for number in numbers:
            one = entry(number - 1, head)
            writer.append([one], Snapshot.of(number, {}, HashedArray(model(number))))
            head = one.hash

    rounds(1)
    read, ahead = ArrayFile.read, [(2, 3), (4,), (5, 6, 7)]

    def late(place: ArrayFile, folder: Path) -> HashedArray:
        rounds(*(ahead.pop(0) if ahead else ()))
        return read(place, folder)

    monkeypatch.setattr(ArrayFile, "read", late)
    reader = SqlStore.file(tmp_path / LEDGER, "run")
    kept = reader.snapshot()
    assert kept is not None and kept.parameters is not None
    assert kept.next_round == 3 and np.array_equal(kept.parameters, model(3))
    monkeypatch.setattr("databazaar.ledger.sql.READINGS", 1)
    with pytest.raises(BazaarError, match="faster than its files can be read"):
        ahead.insert(0, (5, 6))
        reader.snapshot()
    reader.dispose()
    writer.dispose()


@given(
    named=st.dictionaries(
        st.sampled_from(["w", "best", "a.b", "ü"]),
        st.tuples(st.sampled_from(["<f4", "<f8", "<i8", "|b1", ">f4"]), st.lists(st.integers(0, 3), max_size=2)),
    )
)
def test_arrays_are_packed_as_safetensors_packs_them_also_the_second_time(
    named: dict[str, tuple[str, list[int]]],
) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        arrays = {name: rng.normal(size=shape).astype(kind) for name, (kind, shape) in named.items()}
        assert pack(arrays) == save(arrays, metadata={"order": json.dumps(list(arrays))})


@pytest.fixture(scope="module")
def players() -> Iterator[Players]:
    made = Players()
    yield made
    made.close()


@given(
    deaths=st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=4),
    improves=st.lists(st.integers(2, 7), max_size=4),
)
@settings(max_examples=15)
@pytest.mark.process
def test_whenever_it_is_killed_the_files_that_the_ledger_names_are_whole(
    players: Players, deaths: list[tuple[int, bool]], improves: list[int]
) -> None:
    """Real processes, killed at a write, a sync or a commit, each going on where the one before was killed."""
    with tempfile.TemporaryDirectory() as place:
        folder, done = Path(place), 0
        for kill, halfway in [*deaths, (0, False)]:
            over = players.play(folder, 8, improves, kill, halfway)
            store = SqlStore.file(folder / LEDGER, "run")
            rounds, kept = len(list(store.entries())), store.snapshot()
            store.dispose()
            assert rounds >= done and over == (rounds == 8)
            done = rounds
            if rounds:
                assert kept is not None and kept.parameters is not None and kept.next_round == rounds
                assert np.array_equal(kept.parameters, model(rounds))
                assert np.array_equal(kept.arrays()["best"], model(best(rounds, improves)))
            assert len(files(folder)) <= 4  # two that take turns, the best one, and it once more after a death
        assert done == 8
