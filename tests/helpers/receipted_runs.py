"""Small runs whose arbiter signs receipts, and audits of them with what the providers kept."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from databazaar import Arbiter, Report, Uniform
from databazaar.cli.app import app
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.receipts import Receipt, receipts_in
from databazaar.runs.folder import RunFolder
from markets import a_consumer, afar
from signed_parties import NAMES, SignedParties

EVERYBODY = Uniform(replacement=False)
ID = "ab" * 16


def play(parties: SignedParties, folder: Path, engine: FederatedEngine | None = None, **more: Any) -> Report:
    """Twelve rounds in which everybody is asked; receipts are due after ten of them, and at the close."""
    kept = RunFolder(folder) if folder.exists() else RunFolder.create(folder, {"id": ID})
    arbiter = Arbiter(a_consumer(), afar(NAMES), EVERYBODY, engine=engine or parties.engine(), seed=3)
    return arbiter.run(kept, **more)


def receipts_of(parties: SignedParties, name: str) -> list[Receipt]:
    found = list(receipts_in(parties.kits[name] / "receipts.jsonl"))
    return [signed.receipt for signed in found if signed is not None and signed.verifies(parties.keys.authority)]


def audit(folder: Path, *kits: Path, code: int, options: Sequence[str] = ()) -> str:
    given = [option for kit in kits for option in ("--receipts", str(kit))]
    result = CliRunner().invoke(app, ["audit", str(folder), *given, *options])
    assert result.exit_code == code, result.output
    return result.output


def kits(parties: SignedParties) -> list[Path]:
    return list(parties.kits.values())


def put_back(folder: Path, older: Path) -> None:
    """The hostile arbiter's ledger of before, with a summary and a model to match."""
    shutil.rmtree(folder)
    shutil.copytree(older, folder)


def heads(folder: Path) -> dict[int, str]:
    with sqlite3.connect(f"file:{folder / 'ledger.sqlite'}?mode=ro", uri=True) as database:
        found = dict(database.execute("SELECT seq, hash FROM bazaar_entries").fetchall())
    database.close()
    return found
