"""A market looked at before anything is bought: every fault of its settings and files, and a profile of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from databazaar.config.agreements import Agreements, agreements
from databazaar.config.estimate import Estimate, estimate
from databazaar.config.faults import Faults, TableReader
from databazaar.config.jobs import market_job
from databazaar.config.market_file import parse_all, read_settings
from databazaar.config.sections import ConsumerSettings, DataSettings, EngineSettings, ProviderSettings, Section
from databazaar.data.market_profile import Table, profile_tables
from databazaar.data.profile_record import MarketProfile
from databazaar.errors import BazaarError

AnySection = TypeVar("AnySection", bound=Section)


@dataclass(frozen=True)
class Checked:
    """`faults` are what `bazaar run` would refuse. There is a profile where the hold-out can be read, and an estimate
    where nothing is at fault; `agreements` are what prices, caps and limits come to. `defence` says which there is, and
    `blind_spots` which of its rules cannot work."""

    faults: tuple[str, ...]
    profile: MarketProfile | None = None
    estimate: Estimate | None = None
    agreements: Agreements = field(default_factory=Agreements)
    defence: str = ""
    blind_spots: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """Those about a table with its name, then those about prices and the defence."""
        tables = self.profile.tables if self.profile else ()
        found = [f"{table.file}: {warning}" for table in tables for warning in table.warnings]
        return [*found, *self.agreements.warnings, *self.blind_spots]

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": not self.faults,
            "faults": list(self.faults),
            "warnings": self.warnings,
            "prices": list(self.agreements.said),
            "defence": self.defence,
            "profile": self.profile.model_dump(mode="json") if self.profile else None,
            "estimate": asdict(self.estimate) if self.estimate else None,
        }


def check_market(path: Path) -> Checked:
    """All that is wrong with a market.toml and its files, not only the first."""
    faults = Faults()
    settings = faults.caught(lambda: read_settings(path))
    if settings is None:
        return Checked(faults.found)
    faults.add(parse_all(settings, str(path))[1])
    profile = _profile(settings, path.resolve().parent, faults)
    job = faults.caught(lambda: market_job(path)) if not faults.found else None
    if job is None:
        return Checked(faults.found, profile)
    agreed = agreements(job)
    faults.add(f"{path}: {fault}" for fault in agreed.faults)
    if agreed.faults:
        return Checked(faults.found, profile, agreements=agreed)
    taken = estimate(job)
    return Checked(faults.found, profile, taken, agreed, job.meaning, job.blind_spots(taken.accesses))


def market_profile(path: Path) -> MarketProfile | None:
    """The profile of the tables of a market that can be run, None where there is nothing to profile.

    The ledger's first entry names it. So a table that could be read a moment ago, and now cannot, ends it.
    """
    return _profile(read_settings(path), path.resolve().parent, Faults(), needs_all=True)


def _profile(
    settings: Mapping[str, Any], folder: Path, faults: Faults, needs_all: bool = False
) -> MarketProfile | None:
    """Reads every table that the settings name, notes what cannot be used, and profiles the rest."""
    data = _section(DataSettings, settings.get("data"))
    if data is None:
        return None
    reader = TableReader(data, folder, faults)
    holdout = reader.table("hold-out", data.holdout)
    own = _present(reader.table(role, file) for role, file in _own_files(settings, data))
    providers = _present(
        reader.table(provider.id, provider.file, _who(provider.id))
        for provider in _sellers(settings)
        if provider.file is not None
    )
    if needs_all and faults.found:
        raise BazaarError(faults.found[0])
    if holdout is None:
        return None
    columns = reader.columns(holdout)
    usable = {use.name: schema for use, schema in columns if schema is not None}
    labels = reader.labels(holdout)
    for table in own:
        reader.compare(table, usable, labels)
    for table in providers:
        reader.compare(table, usable, labels, _who(table.id))
    if not usable:
        return None
    return profile_tables(
        [holdout, *own], providers, target=data.target, task=data.task, columns=[use for use, _ in columns]
    )


def _sellers(settings: Mapping[str, Any]) -> list[ProviderSettings]:
    """The providers whose tables are read here: none in a federation, where they stay with their owners."""
    engine, given = _section(EngineSettings, settings.get("engine", {})), settings.get("providers")
    if (engine is not None and engine.kind == "federated") or not isinstance(given, Sequence):
        return []
    sections = (_section(ProviderSettings, provider) for provider in given)
    return [section for section in sections if section is not None]


def _own_files(settings: Mapping[str, Any], data: DataSettings) -> list[tuple[str, Path]]:
    """The consumer's files beside the hold-out: rows to start from, and rows that say what it was worth."""
    consumer = _section(ConsumerSettings, settings.get("consumer", {}))
    files = (("training rows", consumer and consumer.train), ("audit rows", data.audit))
    return [(role, file) for role, file in files if isinstance(file, Path)]


def _present(tables: Iterable[Table | None]) -> list[Table]:
    return [table for table in tables if table is not None]


def _who(id: str) -> str:
    return f"provider {id!r}: "


def _section(section: type[AnySection], given: object) -> AnySection | None:
    try:
        return section.model_validate(given)
    except (ValidationError, BazaarError):
        return None
