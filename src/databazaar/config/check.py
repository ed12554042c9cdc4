"""A market looked at before anything is bought: every fault of its settings and files, and a profile of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from databazaar.config.agreements import Agreements, agreements
from databazaar.config.estimate import Estimate, estimate
from databazaar.config.faults import Faults
from databazaar.config.jobs import job_of
from databazaar.config.market_data import data_of
from databazaar.config.market_file import parse_all, read_settings
from databazaar.config.market_tables import Use, read_tables, uses_of
from databazaar.config.sections import ConsumerSettings, DataSettings, EngineSettings, ProviderSettings
from databazaar.data.profile_record import MarketProfile
from databazaar.settings import Faults as Noted
from databazaar.settings import read

AnySection = TypeVar("AnySection")


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
    faults, folder = Faults(), path.resolve().parent
    settings = faults.caught(lambda: read_settings(path))
    if settings is None:
        return Checked(faults.found)
    market, said = parse_all(settings, str(path))
    faults.add(said)
    data = _section(DataSettings, settings.get("data"))
    if data is None:
        return Checked(faults.found)
    tables = read_tables(data, _uses(settings, data), folder, faults, profiled=True)
    job = None
    if market is not None and not faults.found:
        job = faults.caught(lambda: job_of(market, folder, data_of(market, folder, tables)))
    if job is None:
        return Checked(faults.found, tables.profile)
    agreed = agreements(job)
    faults.add(f"{path}: {fault}" for fault in agreed.faults)
    if agreed.faults:
        return Checked(faults.found, tables.profile, agreements=agreed)
    taken = estimate(job)
    return Checked(faults.found, tables.profile, taken, agreed, job.meaning, job.blind_spots(taken.accesses))


def _uses(settings: Mapping[str, Any], data: DataSettings) -> list[tuple[Use, Path]]:
    """The tables that settings name, of which some sections may be at fault."""
    consumer = _section(ConsumerSettings, settings.get("consumer", {}))
    engine, given = _section(EngineSettings, settings.get("engine", {})), settings.get("providers")
    sections = (_section(ProviderSettings, one) for one in (given if isinstance(given, Sequence) else ()))
    providers = (section for section in sections if section is not None)
    return uses_of(data, consumer and consumer.train, engine.kind if engine else "", providers)


def _section(section: type[AnySection], given: object) -> AnySection | None:
    return read(section, given, "", Noted())
