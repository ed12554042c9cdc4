"""A market looked at before anything is bought: every fault of its settings and files, and a profile of its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from pydantic import ValidationError

from databazaar.config.estimate import Estimate, estimate
from databazaar.config.jobs import market_job
from databazaar.config.market_file import parse_all, read_settings
from databazaar.config.sections import DataSettings, ProviderSettings, Section
from databazaar.data.market_profile import Table, profile_tables
from databazaar.data.profile_record import MarketProfile, Understood
from databazaar.data.tables import Schema, read_table
from databazaar.errors import BazaarError

Given = TypeVar("Given")
AnySection = TypeVar("AnySection", bound=Section)


@dataclass(frozen=True)
class Checked:
    """`faults` are what `bazaar run` would refuse. There is a profile where the hold-out can be read, and an estimate
    where nothing is at fault."""

    faults: tuple[str, ...]
    profile: MarketProfile | None = None
    estimate: Estimate | None = None

    @property
    def warnings(self) -> list[str]:
        """Each with the table that it is about."""
        tables = self.profile.tables if self.profile else ()
        return [f"{table.file}: {warning}" for table in tables for warning in table.warnings]

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": not self.faults,
            "faults": list(self.faults),
            "warnings": self.warnings,
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
    return Checked(faults.found, profile, None if job is None else estimate(job))


def market_profile(path: Path) -> MarketProfile | None:
    """The profile of the tables alone, None where the hold-out cannot be used."""
    return _profile(read_settings(path), path.resolve().parent, Faults())


class Faults:
    """Sentences in the order found, each once."""

    def __init__(self) -> None:
        self._sentences: dict[str, None] = {}

    @property
    def found(self) -> tuple[str, ...]:
        return tuple(self._sentences)

    def add(self, sentences: list[str]) -> None:
        self._sentences.update(dict.fromkeys(sentences))

    def caught(self, attempt: Callable[[], Given], who: str = "") -> Given | None:
        """What an attempt gives, None where it was at fault."""
        try:
            return attempt()
        except BazaarError as fault:
            self.add([f"{who}{fault}"])
            return None


def _profile(settings: Mapping[str, Any], folder: Path, faults: Faults) -> MarketProfile | None:
    """Reads every table that the settings name, notes what cannot be used, and profiles the rest."""
    data = _section(DataSettings, settings.get("data"))
    if data is None:
        return None
    holdout = _table("hold-out", data.holdout, folder, faults)
    train = settings.get("consumer", {}).get("train")
    own = [_table("training rows", Path(train), folder, faults)] if isinstance(train, str) else []
    given = [_section(ProviderSettings, provider) for provider in settings.get("providers", [])]
    providers = [
        _table(provider.id, provider.file, folder, faults, f"provider {provider.id!r}: ")
        for provider in given
        if provider is not None and provider.file is not None
    ]
    if holdout is None:
        return None
    schemas = _column_schemas(holdout.frame, data, str(folder / holdout.file), faults)
    theirs = [table for table in providers if table is not None]
    for table in theirs:
        _check_columns(table.frame, schemas, str(folder / table.file), f"provider {table.id!r}: ", faults)
    usable = {name: schema for name, schema in schemas.items() if schema is not None}
    if not usable:
        return None
    return profile_tables(
        [holdout, *(table for table in own if table is not None)],
        theirs,
        target=data.target,
        task=data.task,
        understood={
            name: understood(usable[name]) if name in usable else "not usable" if name in schemas else "left out"
            for name in map(str, holdout.frame.columns)
            if name != data.target
        },
    )


def understood(schema: Schema) -> Understood:
    """How a schema of one column reads it."""
    return "number" if schema.numeric else "category"


def _column_schemas(frame: pd.DataFrame, data: DataSettings, where: str, faults: Faults) -> dict[str, Schema | None]:
    """A schema for each feature by itself, so that one that is at fault does not hide the others; None for that one."""
    chosen = data.features or [str(name) for name in frame.columns if name != data.target]

    def fit(name: str) -> Schema:
        columns = [column for column in (name, data.target) if column in frame.columns]
        marked = [name] if name in (data.categorical or ()) else None
        return Schema.fit(
            frame[columns], target=data.target, task=data.task, features=[name], categorical=marked, where=where
        )

    return {name: faults.caught(lambda name=name: fit(name)) for name in chosen}  # type: ignore[misc]


def _check_columns(
    frame: pd.DataFrame, schemas: Mapping[str, Schema | None], where: str, who: str, faults: Faults
) -> None:
    for name, schema in schemas.items():
        if schema is not None:
            columns = [column for column in (name, schema.target) if column in frame.columns]
            part = frame[columns]
            faults.caught(lambda schema=schema, part=part: schema.encode(part, where), who)  # type: ignore[misc]


def _table(id: str, file: Path, folder: Path, faults: Faults, who: str = "") -> Table | None:
    frame = faults.caught(lambda: read_table(folder / file), who)
    return None if frame is None else Table(id, file.as_posix(), frame)


def _section(section: type[AnySection], given: object) -> AnySection | None:
    try:
        return section.model_validate(given)
    except (ValidationError, BazaarError):
        return None
