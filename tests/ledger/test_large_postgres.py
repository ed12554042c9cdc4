"""A large model's files beside a ledger on a real PostgreSQL server: the transaction is the server's, and the files lie
in the run's folder. Whatever is killed, the two fit together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from databazaar import OSMD, Arbiter, LedgerError, Progress
from databazaar.aggregators import CentredClipping
from databazaar.ledger import snapshot_files
from databazaar.runs.folder import RunFolder
from killed_store import Players, best, model, opened
from postgres import Cutter, Server
from small_markets import MakeMarket

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture(scope="module")
def server(postgres_server: Server) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABAZAAR_LEDGER_URL", postgres_server.url())
        yield postgres_server


@pytest.fixture(autouse=True)
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_files, "LARGE", 1)


@pytest.fixture
def arbiter(make_vector_market: MakeMarket) -> Any:
    """Fresh arbiters of one market, whose best model is not always its last."""

    def made() -> Arbiter:
        consumer, providers = make_vector_market(budget=24, prices=[1, 2, 1, 1], oracles={3: lambda w: -w})
        return Arbiter(consumer, providers, OSMD(0.6, 0.2), aggregator=CentredClipping(), engine="loop", seed=8)

    return made


def files(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("snapshot-*"))


class StoppedError(Exception):
    """As if the process had been killed."""


def test_a_run_is_stopped_and_resumed_to_the_hashes_of_one_in_memory(
    server: Server, arbiter: Any, tmp_path: Path
) -> None:
    """Meanwhile somebody audits it, who reads both the server and the files."""
    expected, path = arbiter().run(), tmp_path / "run"
    seen: list[int] = []

    def look(progress: Progress) -> None:
        audit = RunFolder(path).audit()
        assert audit.ok, audit.first_broken
        seen.append(len(files(path)))
        if progress.round == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        arbiter().run(RunFolder.create(path, {"ledger_url": server.url()}), tell=look)
    assert min(seen) >= 2 and not (path / "ledger.sqlite").exists()
    report = arbiter().run(path)
    assert (report.ledger_head, report.model_hash) == (expected.ledger_head, expected.model_hash)
    assert RunFolder(path).audit().ok and not files(path)


@pytest.mark.parametrize("kept", [True, False])
def test_where_it_is_not_known_whether_a_commit_was_kept_the_right_files_are_read(
    server: Server, arbiter: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, kept: bool
) -> None:
    cutter = Cutter(server, tmp_path_factory.mktemp("c"))
    cutter.lets_through = kept
    url, told = server.url(home=cutter.home), list[Progress]()

    def arm(progress: Progress) -> None:
        told.append(progress)
        cutter.armed = progress.round == 3

    folder = RunFolder.create(tmp_path / "run", {"ledger_url": url})
    with pytest.raises(LedgerError, match="it is not known"):
        arbiter().run(folder, tell=arm)
    server.wait_for_locks()
    report = arbiter().run(RunFolder(folder.path, url))
    assert report.ledger_head == arbiter().run().ledger_head and len(told) == 3
    assert RunFolder(folder.path, url).audit().ok and not files(folder.path)
    cutter.close()


DEATHS = [(1, False), (2, True), (4, False), (5, True), (7, False), (9, True), (11, False), (12, True), (14, False)]


def test_killed_at_a_write_a_sync_or_a_commit_it_goes_on_with_the_files_that_the_server_names(
    server: Server, tmp_path: Path
) -> None:
    """Real processes, each going on where the one before was killed."""
    players, improves, done, rounds = Players(), [2, 5, 6, 11], 0, 16
    for kill, halfway in [*DEATHS, (0, False)]:
        over = players.play(tmp_path, rounds, improves, kill, halfway, server.url())
        store = opened(tmp_path, server.url())
        played, kept = len(list(store.entries())), store.snapshot()
        store.dispose()
        assert done <= played and over == (played == rounds)
        done = played
        if played:
            assert kept is not None and kept.parameters is not None and kept.next_round == played
            assert np.array_equal(kept.parameters, model(played))
            assert np.array_equal(kept.arrays()["best"], model(best(played, improves)))
        assert len(files(tmp_path)) <= 4
    assert done == rounds
    players.close()
