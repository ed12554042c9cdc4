from __future__ import annotations
from pathlib import Path
from databazaar.service.database.connection import Database
from databazaar.service.settings import Settings
from own_arbiters import own_market

def test_honest(sqlite_database: Database, settings: Settings, tmp_path: Path) -> None:
    with own_market(sqlite_database, settings) as own:
        job = own.job()
        with own.playing(job, tmp_path / "mine") as playing:
            playing.settle()
            report = playing.folder.report()
        audit = own.hub_folder(job).audit()
        assert audit.ok, audit.message
        assert audit.head == report.ledger_head
        print(own.found(job).state, report.message)
