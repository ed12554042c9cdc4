"""Several processes on one GPU: what is started for them ends with them, and where it does not work nothing changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from databazaar_experiments import sharing
from databazaar_experiments.sharing import CONTROL, LOGS, PIPES, side_by_side

pytestmark = pytest.mark.process
NOTES_CALLS = """#!/bin/sh
echo "$@ $(if [ $# = 0 ]; then cat; fi)" >> "$CALLS"
echo "$CUDA_MPS_PIPE_DIRECTORY" >> "$CALLS"
"""
"""Stands where NVIDIA's program would: it starts nothing, so that a process that asks for a GPU by it gets none."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program, calls = tmp_path / CONTROL, tmp_path / "calls"
    program.write_text(NOTES_CALLS)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CALLS", str(calls))
    monkeypatch.delenv(PIPES, raising=False)
    monkeypatch.delenv(LOGS, raising=False)
    monkeypatch.setattr(sharing, "EVERYBODYS", tmp_path / "nobody")
    return calls


@pytest.mark.parametrize("probe", ["raise SystemExit(1)", "raise SystemExit(0)"])
@pytest.mark.process
def test_it_ends_with_what_it_is_for(calls: Path, monkeypatch: pytest.MonkeyPatch, probe: str) -> None:
    """Where a process gets the GPU by it, those that are started meanwhile do; else nothing is changed for them."""
    works = probe.endswith("(0)")
    monkeypatch.setattr(sharing, "PROBE", probe)
    with pytest.raises(KeyboardInterrupt), side_by_side("cuda:0") as shared:
        assert shared is works and (PIPES in os.environ) is works
        raise KeyboardInterrupt
    assert PIPES not in os.environ and LOGS not in os.environ
    started, place, told, same_place = calls.read_text().splitlines()
    assert (started.strip(), told.strip()) == ("-d", "quit") and place == same_place
    assert not Path(place).exists()


def test_what_somebody_else_runs_is_left_alone(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PIPES, "/elsewhere")
    with side_by_side("cuda") as shared:
        assert not shared and os.environ[PIPES] == "/elsewhere"
    monkeypatch.delenv(PIPES)
    monkeypatch.setattr(sharing, "EVERYBODYS", calls.parent)
    with side_by_side("cuda") as shared:
        assert not shared
    assert not calls.exists()


def test_a_cpu_needs_none(calls: Path) -> None:
    with side_by_side("cpu") as shared:
        assert not shared
    assert not calls.exists()
