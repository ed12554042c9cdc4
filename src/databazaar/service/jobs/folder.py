"""The folder of a job: its market.toml and the files that it names, so that `bazaar run` could run it as it stands."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.files import write_whole
from databazaar.service import files, specification
from databazaar.service.database.tables import Contract, File, Job, Offer, OfferVersion
from databazaar.service.jobs.composing import consumer_files, name_of
from databazaar.service.settings import Settings
from databazaar.service.states import ContractState

MARKET = "market.toml"


def write_market(session: Session, settings: Settings, job: Job) -> Path:
    """Writes the market.toml of a job whose contracts are agreed, as it was kept; to write it again changes nothing.

    Files are linked under names that people can read, which the ledger names too: it holds no path of this machine.
    """
    text, folder = specification.text_of(job), settings.job_folder(job.id)
    for made in (folder.parent, folder, folder / "data"):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, file in _links(session, job).items():
        _link(files.path_of(settings, file), folder / name)
    path = folder / MARKET
    write_whole(path, text.encode(), mode=0o600)
    return path


def _links(session: Session, job: Job) -> dict[str, File]:
    """The files that the market names: the consumer's own, and of each provider the version that its contract pins."""
    pinned = {name_of(offer.slug, file): file for _, offer, file in pinned_files(session, job)}
    return {**consumer_files(session, job), **pinned}


def pinned_files(session: Session, job: Job) -> list[tuple[Contract, Offer, File]]:
    """Each contract of the job that is agreed, with its offer and the version of the data that it pins. Sites, whose
    data are elsewhere, have none."""
    agreed = (ContractState.AGREED, ContractState.ACTIVE, ContractState.ENDED)
    found = (
        select(Contract, Offer, File)
        .join(Offer, Offer.id == Contract.offer_id)
        .join(OfferVersion, OfferVersion.id == Contract.version_id)
        .join(File, File.id == OfferVersion.file_id)
        .where(Contract.job_id == job.id, Contract.state.in_(agreed))
    )
    return [(contract, offer, file) for contract, offer, file in session.execute(found)]


def _link(kept: Path, name: Path) -> None:
    """A second name for a kept file, in place of whatever else has that name."""
    if os.path.lexists(name):
        if os.path.samestat(name.lstat(), kept.stat()):
            return
        name.unlink()
    os.link(kept, name)
