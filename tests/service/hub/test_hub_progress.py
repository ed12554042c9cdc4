"""Progress: one line a round, the same from the ledger as it was told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from attacked_market import attacked_market
from databazaar.files import write_whole
from databazaar.runs.folder import RunFolder
from databazaar.service.hub import progress
from databazaar.service.hub.progress import ProgressLog, progress_of
from databazaar.service.settings import Settings

JOB = "1" * 32


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(home=tmp_path / "hub")
    made.job_folder(JOB).mkdir(parents=True)
    return made


def test_what_was_told_follows_from_the_ledger_to_the_last_digit(settings: Settings, tmp_path: Path) -> None:
    """With pay that is held back, released and returned, and with a flag."""
    teller = ProgressLog(settings.job_folder(JOB))
    attacked_market(budget=1500).run(tmp_path / "run", tell=teller.tell)
    teller.close()
    told = progress.rounds(settings, JOB)
    audit = RunFolder(tmp_path / "run").replay()
    assert told == list(progress_of(audit)) and len(told) == audit.rounds > 20
    assert told[-1]["flagged"] == ["spy"] and any(one["paid"] for one in told)
    before = (settings.job_folder(JOB) / progress.FILE).read_bytes()
    ProgressLog(settings.job_folder(JOB), audit).close()
    assert (settings.job_folder(JOB) / progress.FILE).read_bytes() == before
    assert progress.played(settings, JOB) == audit.rounds and progress.rounds(settings, JOB, 5) == told[5:]


def line(number: int) -> bytes:
    return json.dumps({"round": number}).encode() + b"\n"


def numbers(settings: Settings, after: int = 0, most: int | None = None) -> list[int]:
    return [one["round"] for one in progress.rounds(settings, JOB, after, most)]


def test_lines_are_followed_as_they_come(settings: Settings) -> None:
    path = settings.job_folder(JOB) / progress.FILE
    assert numbers(settings) == [] and progress.played(settings, JOB) == 0
    with path.open("ab", buffering=0) as file:
        file.write(line(1) + line(2) + b'{"rou')
        assert numbers(settings) == [1, 2] and numbers(settings, after=2) == []
        file.write(b'nd": 3}\n' + line(4))
        assert numbers(settings, after=2) == [3, 4] and numbers(settings, after=1, most=2) == [2, 3]
        assert numbers(settings, after=9) == [] and progress.played(settings, JOB) == 4


def test_a_file_that_was_made_anew_is_read_anew(settings: Settings) -> None:
    path = settings.job_folder(JOB) / progress.FILE
    write_whole(path, b"".join(map(line, range(1, 8))))
    assert numbers(settings, after=3) == [4, 5, 6, 7]
    write_whole(path, b"".join(map(line, range(1, 6))))
    assert numbers(settings) == [1, 2, 3, 4, 5] and progress.played(settings, JOB) == 5
    os.truncate(path, len(line(1)))
    assert numbers(settings) == [1]


def test_what_a_power_cut_left_is_not_told(settings: Settings) -> None:
    write_whole(settings.job_folder(JOB) / progress.FILE, line(1) + b"\0\0\0\0\n" + line(3))
    assert numbers(settings) == [1]
