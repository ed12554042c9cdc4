"""Ledgers that the first version wrote are still read and audited; only going on with one is refused."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from databazaar import OSMD, Arbiter, BazaarError, LedgerError
from databazaar.ledger.sql import SqlStore, read_only
from databazaar.runs.folder import LEDGER, RunFolder
from small_markets import MakeMarket

OLD = Path(__file__).parent / "format1"
WHAT = {
    "settled": (8, "settled", 24),
    "uniform": (8, "settled", 24),
    "unequal-prices": (3, "settled", 48),
    "nobody-answered": (10, "nobody answered", 0),
    "unfinished": (3, "open", 9),
}


@pytest.mark.parametrize("name", WHAT)
def test_it_is_audited_and_reported_as_ever(name: str) -> None:
    rounds, status, spent = WHAT[name]
    folder = RunFolder(OLD / name)
    audit = folder.audit()
    assert audit.ok, audit.message
    assert (audit.rounds, audit.closed) == (rounds, status != "open")
    report = folder.report()
    assert (report.status, report.spent, len(report.rounds)) == (status, spent, rounds)
    assert report.sampler["kind"] == ("uniform" if name == "uniform" else "osmd")
    assert report.rules["payment"] == {"kind": "price-per-access"}
    assert np.isfinite(report.final_utility)
    assert report.distributions.shape == (rounds + 1, 4)


def test_every_old_ledger_is_looked_at() -> None:
    assert sorted(path.name for path in OLD.iterdir()) == sorted(WHAT)


def test_a_changed_entry_is_found_as_ever(tmp_path: Path) -> None:
    shutil.copytree(OLD / "unequal-prices", tmp_path / "run")
    connection = sqlite3.connect(tmp_path / "run" / LEDGER)
    connection.execute("DROP TRIGGER bazaar_no_UPDATE")
    connection.execute("UPDATE bazaar_entries SET amount = amount + 1 WHERE kind = 'post' AND round = 1 AND draw = 0")
    connection.commit()
    connection.close()
    audit = RunFolder(tmp_path / "run").audit()
    assert not audit.ok and "entry" in audit.message
    with pytest.raises(LedgerError, match="does not hold"):
        RunFolder(tmp_path / "run").report()


def test_only_the_version_that_began_it_goes_on_with_it(make_vector_market: MakeMarket, tmp_path: Path) -> None:
    shutil.copytree(OLD / "unfinished", tmp_path / "run")
    consumer, providers = make_vector_market(budget=24)
    with pytest.raises(BazaarError, match="ledger format 1"):
        Arbiter(consumer, providers, OSMD(0.5, 0.1), engine="loop").run(tmp_path / "run")
    assert RunFolder(tmp_path / "run").audit().rounds == 3


def test_the_old_files_are_not_changed_by_reading() -> None:
    before = {path: path.read_bytes() for path in OLD.rglob("*") if path.is_file()}
    for name in WHAT:
        RunFolder(OLD / name).audit()
        store = SqlStore(read_only(OLD / name / LEDGER), RunFolder(OLD / name).id, create=False)
        assert next(iter(store.entries())).body["format"] == 1
        store.dispose()
    assert {path: path.read_bytes() for path in OLD.rglob("*") if path.is_file()} == before
