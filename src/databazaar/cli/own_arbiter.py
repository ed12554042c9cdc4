"""A job of a hub, played here: the arbiter, the hold-out and the model stay on this machine, and the hub is notary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from databazaar.client.own_arbiter import HubEngine, NotaryClient
from databazaar.config.jobs import Job, from_recipe, job_of
from databazaar.config.market_file import parse_market
from databazaar.config.play import Playing, begun, resumed
from databazaar.errors import BazaarError
from databazaar.runs.folder import RunFolder

ROLES = {"holdout": ("data", "holdout"), "train": ("consumer", "train"), "audit": ("data", "audit")}
"""Where market.toml names the consumer's files."""


@contextmanager
def playing_own(notary: NotaryClient, out: Path, files: Mapping[str, Path]) -> Iterator[Playing]:
    """The job of this notary, from its start or from where the folder stands. `files` are the consumer's, by role."""
    told = notary.market()

    def engine(job: Job) -> HubEngine:
        asked = job.federation
        assert asked is not None  # the hub gives no other market
        names = [provider.id for provider in job.providers]
        how: dict[str, Any] = {"step": asked.step, "deadline": asked.deadline, "wait": asked.wait}
        return HubEngine(notary, asked.task, names, consumer=told.consumer, **how)

    if out.exists():
        kept = RunFolder(out)
        if kept.id != notary.job:
            raise BazaarError(f"{out} holds another run than job {notary.job}: give another folder with --out")
        _refuse_others(kept, files)
        terms, job = kept.need_rules(), from_recipe(kept.recipe)
        begun_in = {} if terms is None else terms.environment
        going = resumed(job, kept, begun_in, engine(job))
    else:
        if "holdout" not in files:
            raise BazaarError("the hold-out is missing: name its file with --holdout, it stays on this machine")
        folder = files["holdout"].resolve().parent
        job = job_of(parse_market(_with_files(told.market, folder, files), "the job's market"), folder)
        going = begun(job, out, id=notary.job, engine=engine(job))
    with going as playing:
        playing.folder.stated["notes"] = {}  # the hub has a copy of the ledger, and learns no names of files here
        yield playing


def _refuse_others(kept: RunFolder, files: Mapping[str, Path]) -> None:
    """A run goes on with the files that it began with."""
    for role, path in files.items():
        section, setting = ROLES[role]
        named = (kept.recipe.get("market", {}).get(section) or {}).get(setting)
        begun_with = Path(kept.recipe.get("folder", "")) / named if isinstance(named, str) else None
        if begun_with is None or begun_with.resolve() != path.resolve():
            used = f"with {begun_with}" if begun_with is not None else "without such a file"
            raise BazaarError(f"the run in {kept.path} has begun {used}: leave --{role} out to go on with it")


def _with_files(market: dict[str, Any], folder: Path, files: Mapping[str, Path]) -> dict[str, Any]:
    """Files are named as they are from the hold-out's folder: the hub learns their names, and no others."""
    for role, path in files.items():
        section, setting = ROLES[role]
        place = path.resolve()
        named = place.relative_to(folder) if place.is_relative_to(folder) else place
        market = {**market, section: {**market.get(section, {}), setting: named.as_posix()}}
    return market
