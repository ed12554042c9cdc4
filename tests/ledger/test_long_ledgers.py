"""Long ledgers: the audit says what an independent slow one says, and neither it nor a report holds T × n numbers."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.ledger import Entry, Rounds, audit_entries
from databazaar.ledger.sql import PAGE, SqlStore
from databazaar.reports.figures import FIGURES
from databazaar.reports.style import as_svg
from databazaar.runs.folder import RunFolder
from databazaar.runs.report import report_from
from forging import reseal
from long_ledgers import make
from slow_audit import first_broken


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Entry]]:
    """The entries of small runs, as their store reads them."""
    found = {}
    for sampler in ("adaptive", "osmd"):
        folder = tmp_path_factory.mktemp("short") / sampler
        make(folder, 24, 5, 3, sampler)
        with RunFolder(folder)._reading() as reader:
            found[sampler] = list(reader.entries())
    return found


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "run"
    make(folder, 2500, 4, 2, "osmd")
    return folder


def test_slow_and_fast_agree_that_a_ledger_holds(short: dict[str, list[Entry]]) -> None:
    for entries in short.values():
        assert first_broken(entries) is None
        for record in (True, False):
            assert audit_entries(entries, record=record).ok


class Picks:
    """Choices by numbers that were drawn beforehand: what is drawn does not depend on what was chosen."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = iter(numbers)

    def __call__(self, among: Sequence[Any]) -> Any:
        return among[next(self._numbers) % len(among)]


@settings(max_examples=60)
@given(numbers=st.lists(st.integers(0, 10**6), min_size=8, max_size=8))
def test_slow_and_fast_name_the_same_first_broken_entry(short: dict[str, list[Entry]], numbers: list[int]) -> None:
    pick = Picks(numbers)
    entries = list(short[pick(sorted(short))])
    at = pick(range(1, len(entries)))
    entries = pick([_changed, _dropped, _doubled, _swapped])(entries, at, pick)
    if pick([False, True]):
        entries = reseal(entries)
    expected = first_broken(entries)
    for record in (True, False):
        audit = audit_entries(entries, record=record)
        assert audit.ok == (expected is None), audit.message
        named = re.match(r"entry (\d+)", audit.message)
        assert audit.ok or (named is not None and audit.entries == expected), (audit.message, expected)


def _changed(entries: list[Entry], at: int, pick: Picks) -> list[Entry]:
    entry, body = entries[at], copy.deepcopy(entries[at].body)
    if entry.kind in ("round", "close"):
        key = pick(sorted(body))
        body[key] = _other(body[key], pick)
        other = entry._replace(body=body)
    else:
        fields = [{"amount": 0}, {"provider": "provider-0"}, {"draw": 7}, {"round": 3}, {"kind": "void"}]
        other = entry._replace(**pick(fields))
    return [*entries[:at], other, *entries[at + 1 :]]


def _other(value: Any, pick: Picks) -> Any:
    if isinstance(value, list):
        place = pick(range(len(value)))
        factor = pick([1 + 1e-6, 1 + 1e-12, 2.0])
        return [one if i != place or one is None else one * factor for i, one in enumerate(value)]
    if isinstance(value, dict):
        return {**value, "kind": "budget"}
    return f"{value}!" if isinstance(value, str) else 0.123 if value is None else value + 1


def _dropped(entries: list[Entry], at: int, pick: Picks) -> list[Entry]:
    return [*entries[:at], *entries[at + 1 :]]


def _doubled(entries: list[Entry], at: int, pick: Picks) -> list[Entry]:
    return [*entries[: at + 1], *entries[at:]]


def _swapped(entries: list[Entry], at: int, pick: Picks) -> list[Entry]:
    at = max(at, 2)
    return [*entries[: at - 1], entries[at], entries[at - 1], *entries[at + 1 :]]


def test_pages_are_read_one_by_one_and_the_end_is_where_it_was_when_reading_began(long: Path, tmp_path: Path) -> None:
    with RunFolder(long)._reading() as source:
        entries = list(source.entries())
    assert len(entries) > 2 * PAGE
    store = SqlStore.file(tmp_path / "l.sqlite", "run")
    for begin in range(0, len(entries) - 10, 3000):
        store.append(entries[begin : min(begin + 3000, len(entries) - 10)], None)
    reading = store.entries()
    found = [next(reading)]
    writer = SqlStore.file(tmp_path / "l.sqlite", "run")
    done = threading.Thread(target=lambda: writer.append(entries[-10:], None))  # no reader holds it up
    done.start()
    done.join(timeout=4)
    assert not done.is_alive()
    found += reading
    assert found == entries[:-10]
    assert list(store.entries()) == entries
    writer.dispose()
    store.dispose()


def test_an_audit_keeps_no_rounds_and_a_figure_is_small(long: Path) -> None:
    audit = RunFolder(long).audit()
    assert audit.ok and audit.record is None
    report = RunFolder(long).report()
    rounds = len(report.rounds)
    assert rounds > 2048 and report.distributions.shape == (rounds + 1, 4)
    assert len(as_svg(FIGURES["learning"](report))) < 300_000


def test_rounds_in_columns_are_the_rounds(long: Path) -> None:
    rounds = RunFolder(long).report().rounds
    assert isinstance(rounds, Rounds) and Rounds(rounds) == rounds
    accesses = [access for one in rounds for access in one.accesses]
    assert rounds.providers.tolist() == [access.provider for access in accesses]
    assert [reason for _, _, reason in rounds.failures] == [a.failure for a in accesses if a.failure is not None]
    assert [number for number, _, _ in rounds.failures] == [
        one.number for one in rounds for access in one.accesses if access.failure is not None
    ]
    assert rounds.failed.tolist() == [sum(a.failure is not None for a in one.accesses) for one in rounds]
    assert rounds.in_rounds(rounds.paid) == [sum(a.paid for a in one.accesses) for one in rounds]
    assert rounds.when.tolist() == [place for place, one in enumerate(rounds) for _ in one.accesses]


def test_a_round_knows_what_was_left_before_it() -> None:
    from known_gains import Seller, arbiter

    sellers = {
        "good": Seller(3.0),
        "fair": Seller(1.0),
        "capped": Seller(2.0, most_accesses=17),
        "dear": Seller(2.0, 60),
    }
    report = arbiter(sellers, budget=9000, per_round=3).run()
    for place in (3, 7, len(report.purses) - 1):
        round_budget = report.purses[place]
        drawn = np.bincount([a.provider for one in report.rounds[:place] for a in one.accesses], minlength=4)
        assert round_budget.accesses_left is not None and round_budget.accesses_left[2] == 17 - drawn[2]
        assert round_budget.left == 9000 - sum(a.quoted for one in report.rounds[:place] for a in one.accesses)


def test_a_uniform_market_of_many_rounds_is_still_asked_alike() -> None:
    from databazaar import Uniform
    from known_gains import Seller, arbiter

    report = arbiter({"a": Seller(1.0, 2), "b": Seller(2.0, 5), "c": Seller(0.5, 3)}, Uniform(), budget=500).run()
    assert {one.why.kind for one in report.brought} == {"alike"}


def test_a_report_without_a_record_has_no_rounds(short: dict[str, list[Entry]]) -> None:
    report = report_from(audit_entries(short["osmd"], record=False))
    assert not report.rounds and report.payouts
