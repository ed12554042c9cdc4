"""A job of a hub, played here: the arbiter, the hold-out and the model stay on this machine, and the hub is notary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from databazaar.cli import play
from databazaar.client.own_arbiter import HubEngine, NotaryClient
from databazaar.config.jobs import Job, from_recipe, job_of
from databazaar.config.market_file import parse_market
from databazaar.config.play import Playing, begun, resumed
from databazaar.errors import BazaarError
from databazaar.runs.folder import RunFolder

ROLES = {"holdout": ("data", "holdout"), "train": ("consumer", "train"), "audit": ("data", "audit")}
"""Where market.toml names the consumer's files."""


def play_own(
    address: str, token: str, job_id: str, out: Path | None, files: Mapping[str, Path], output: play.Output
) -> None:
    """Plays a job to its end, or goes on with it."""
    again, end = f"bazaar jobs run {job_id}", f"bazaar jobs stop {job_id}"
    folder = out or Path("runs") / job_id
    with NotaryClient(address, token, job_id) as notary, playing_own(notary, folder, files) as playing:
        play.say_remarks(playing.job, output.quiet)
        play.finish(playing, output, f"{again} --out {out}" if out else again, end)


@contextmanager
def playing_own(notary: NotaryClient, out: Path, files: Mapping[str, Path]) -> Iterator[Playing]:
    """The job of this notary, from its start or from where the folder stands. `files` are the consumer's, by role."""
    told = notary.market()
    if out.exists():
        kept = RunFolder(out)
        if kept.id != notary.job:
            raise BazaarError(f"{out} holds another run than job {notary.job}: give another folder with --out")
        _refuse_others(kept, files)
        terms, job = kept.need_rules(), from_recipe(kept.recipe)
        begun_in = {} if terms is None else terms.environment
        with resumed(job, kept, begun_in, _engine(notary, job, told.consumer)) as playing:
            yield _without_notes(playing)
        return
    if "holdout" not in files:
        raise BazaarError("the hold-out is missing: name its file with --holdout, it stays on this machine")
    folder = files["holdout"].resolve().parent
    job = job_of(parse_market(_with_files(told.market, folder, files), "the job's market"), folder)
    with begun(job, out, id=notary.job, engine=_engine(notary, job, told.consumer)) as playing:
        yield _without_notes(playing)


def _refuse_others(kept: RunFolder, files: Mapping[str, Path]) -> None:
    """A run goes on with the files that it began with."""
    for role, path in files.items():
        section, setting = ROLES[role]
        named = (kept.recipe.get("market", {}).get(section) or {}).get(setting)
        begun_with = Path(kept.recipe.get("folder", "")) / named if isinstance(named, str) else None
        if begun_with is None or begun_with.resolve() != path.resolve():
            used = f"with {begun_with}" if begun_with is not None else "without such a file"
            raise BazaarError(f"the run in {kept.path} has begun {used}: leave --{role} out to go on with it")


def _engine(notary: NotaryClient, job: Job, consumer: str) -> HubEngine:
    asked = job.federation
    assert asked is not None  # the hub gives no other market
    names = [provider.id for provider in job.providers]
    settings: dict[str, Any] = {"step": asked.step, "deadline": asked.deadline, "wait": asked.wait}
    return HubEngine(notary, asked.task, names, consumer=consumer, **settings)


def _without_notes(playing: Playing) -> Playing:
    """The ledger's first entry names no files of this folder: the hub has a copy of the ledger, and not of them."""
    playing.folder.stated["notes"] = {}
    return playing


def _with_files(market: dict[str, Any], folder: Path, files: Mapping[str, Path]) -> dict[str, Any]:
    """Files are named as they are from the hold-out's folder: the hub learns their names, and no others."""
    for role, path in files.items():
        section, setting = ROLES[role]
        place = path.resolve()
        named = place.relative_to(folder) if place.is_relative_to(folder) else place
        market = {**market, section: {**market.get(section, {}), setting: named.as_posix()}}
    return market
