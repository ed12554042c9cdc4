"""50,000 mutated messages, frames, files and ledger entries of the 1,000,000 that `make fuzz` reads."""

from __future__ import annotations

import json
import resource

import pytest

import fuzzing
from fuzzing import TARGETS, Target, fuzz, told


@pytest.mark.slow
def test_whatever_comes_from_others_is_read_or_refused() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = fuzz(50_000)
    assert not found.wrong, "\n".join(map(told, found.wrong))
    assert found.outcomes.total() >= 50_000
    assert all(found.outcomes[f"{target.name}: refused"] for target in TARGETS)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 * 1024, f"{grown} kB more than before"


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (json.loads, "RecursionError"),
        (lambda data: bytes(50_000_000) if data.startswith(b"{") else None, "took 50,"),
    ],
)
def test_a_reader_that_falls_is_found(read: object, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target("sham", 1, read, (ValueError,), lambda: [b'{"a": [1, 2]}'], is_json=True)  # type: ignore[arg-type]
    monkeypatch.setattr(fuzzing, "TARGETS", [target])
    found = fuzz(2_000)
    assert found.wrong and why in told(found.wrong[0])
