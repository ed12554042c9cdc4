"""The folder of a job: its market.toml and the files that it names, so that `bazaar run` could run it as it stands."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy.orm import Session

from databazaar.config.toml_text import toml_text
from databazaar.files import write_whole
from databazaar.service import files
from databazaar.service.database.tables import Job
from databazaar.service.jobs.composing import market_of
from databazaar.service.settings import Settings

MARKET = "market.toml"


def write_market(session: Session, settings: Settings, job: Job) -> Path:
    """Writes the market.toml of a job whose contracts are agreed; to write it again changes nothing.

    Files are linked under names that people can read, which the ledger names too: it holds no path of this machine.
    """
    market, folder = market_of(session, settings, job), settings.job_folder(job.id)
    for made in (folder.parent, folder, folder / "data"):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, file in market.links.items():
        _link(files.path_of(settings, file), folder / name)
    path = folder / MARKET
    write_whole(path, toml_text(market.settings).encode(), mode=0o600)
    return path


def _link(kept: Path, name: Path) -> None:
    """A second name for a kept file, in place of whatever else has that name."""
    if os.path.lexists(name):
        if os.path.samestat(name.lstat(), kept.stat()):
            return
        name.unlink()
    os.link(kept, name)
