"""The benchmark of the hub on a small market: all jobs settle and the books hold, and its figures are all there."""

from __future__ import annotations

import doctest
import json
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select

import bench_service
import service_load
import service_shell
import service_table
from databazaar import Arbiter
from databazaar.config.play import Playing
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job
from processes import Forked
from small_markets import vector_market

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def result(home: Path) -> dict[str, Any]:
    asked = ["--jobs", "2", "--viewers", "4", "--consumers", "2", "--calls", "5", "--shell", "0", "--accesses", "12"]
    asked += ["--cost", "0.5"]
    with pytest.MonkeyPatch.context() as patch:
        start, pipe = partial(Forked, serves=True), subprocess.PIPE
        for module in (bench_service, service_load):
            patch.setattr(module, "subprocess", SimpleNamespace(Popen=start, PIPE=pipe))
        patch.setattr(service_load.Memory, "loaded", lambda self: True)  # what was forked has loaded nothing
        return bench_service.measure(bench_service.parsed(asked), home, "")


def test_every_job_is_settled_and_the_books_hold(result: dict[str, Any], home: Path) -> None:
    database = Database(f"sqlite:///{home / 'hub' / 'hub.sqlite'}")
    with database.read() as session:
        states = list(session.scalars(select(Job.state)))
    database.dispose()
    assert sorted(states) == ["agreed"] * 2 + ["settled"] * 2  # two have made-up rounds
    assert result["load"]["states"] == {"settled": 2}
    assert result["books"]["ok"] and result["books"]["escrow_left"] == 0
    assert result["books"]["entries"] == 8  # a deposit, a fund and a close each; deposits for two that are not played


def test_people_got_their_answers_and_their_rounds(result: dict[str, Any]) -> None:
    load = result["load"]
    assert load["jobs"] == 2 and load["rounds"] >= 2 * 3
    assert load["api"]["refused"] == 0 and load["api"]["count"] == sum(
        one["count"] for one in load["api"]["by"].values()
    )
    assert load["viewers"]["lost"] == 0 and load["viewers"]["rounds"] > 0
    assert load["fund_ms"]["count"] == load["start_ms"]["count"] == load["settle_ms"]["count"] == 2
    assert load["memory_mib"]["hub"]["rss"] >= load["memory_mib"]["hub"]["uss"] > 0


def test_the_hub_was_at_work_for_people(result: dict[str, Any]) -> None:
    cost = result["cost"]
    assert cost["calls"] == 14 and cost["events"] > 0 and cost["call_ms"] > 0
    assert service_table.table(result).startswith(f"hub's CPU: {cost['idle_percent']} % of a core idle")


def test_the_table_compares_with_the_shell(result: dict[str, Any]) -> None:
    assert "| load |" in service_table.table(result)
    shell = {**result["load"], "while_playing": 2 * result["load"]["while_playing"]}
    compared = service_table.table({**result, "shell": shell, "shell again": shell})
    assert "| 0.50, 1.00 |" in compared


def test_the_shell_notes_its_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Playing, "settle", lambda self, tell=None: Arbiter(*vector_market(), engine="loop").run(tell=tell)
    )
    service_shell.note_rounds(tmp_path / "times.json")
    Playing.settle(None)  # type: ignore[arg-type]
    times = json.loads((tmp_path / "times.json").read_text())
    assert times["rounds"] > 1 and times["first"][0] < times["last"][0] and times["first"][1] <= times["last"][1]


def test_the_examples_hold() -> None:
    for module in (bench_service, service_load):
        found = doctest.testmod(module)
        assert found.attempted and not found.failed
