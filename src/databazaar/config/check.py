"""A market looked at before anything is bought: every fault of its settings and files, and a profile of its tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from databazaar.config.jobs import Job, job_of
from databazaar.config.market_data import Tables, Use, data_of, image_of, uses_of
from databazaar.config.market_file import parse_all, read_settings
from databazaar.config.sections import ConsumerSettings, DataSettings, EngineSettings, ProviderSettings
from databazaar.data.profile_record import MarketProfile
from databazaar.data.schema import TableFaults
from databazaar.display import duration
from databazaar.learning.oracles import Oracle
from databazaar.ledger import Accounts
from databazaar.market.loop import play_round
from databazaar.parties import Provider
from databazaar.payments import PricePerAccess
from databazaar.roster import Roster
from databazaar.settings import Faults as Noted
from databazaar.settings import read

AnySection = TypeVar("AnySection")
QUICK = 5.0
"""Seconds."""


@dataclass(frozen=True)
class Estimate:
    """What a run will take. `rounds` are of full length; `shortens` says whether there may be more and shorter ones.
    Trees have no `parameters`. `seconds` is None where providers answer from elsewhere."""

    rounds: int
    accesses: int
    rows_per_ask: int | None
    features: int
    parameters: int
    seconds: float | None
    shortens: bool = False

    @property
    def sentence(self) -> str:
        rows = f", each on about {self.rows_per_ask:,} rows" if self.rows_per_ask else ""
        took = f"; it takes about {duration(self.seconds)}, or less" if self.seconds is not None else ""
        rounds = f"about {self.rounds:,} rounds{' or more' if self.shortens else ''}"
        size = f" and {self.parameters:,} parameters" if self.parameters else ""
        return f"{rounds} and {self.accesses:,} accesses{rows}, for a model of {self.features:,} features{size}{took}"


@dataclass(frozen=True)
class Checked:
    """`faults` are what `bazaar run` would refuse. There is a profile where the hold-out can be read, and an estimate
    where nothing is at fault. `defence` says which there is, and `blind_spots` which of its rules cannot work."""

    faults: tuple[str, ...]
    profile: MarketProfile | None = None
    estimate: Estimate | None = None
    defence: str = ""
    blind_spots: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """Those about a table with its name, then those about the defence."""
        tables = self.profile.tables if self.profile else ()
        found = [f"{table.file}: {warning}" for table in tables for warning in table.warnings]
        return [*found, *self.blind_spots]

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": not self.faults,
            "faults": list(self.faults),
            "warnings": self.warnings,
            "defence": self.defence,
            "profile": self.profile.model_dump(mode="json") if self.profile else None,
            "estimate": asdict(self.estimate) if self.estimate else None,
        }


def check_market(path: Path) -> Checked:
    """All that is wrong with a market.toml and its files, not only the first."""
    faults, folder = TableFaults(), path.resolve().parent
    settings = faults.caught(lambda: read_settings(path))
    if settings is None:
        return Checked(faults.found)
    market, said = parse_all(settings, str(path))
    faults.add(said)
    data = _section(DataSettings, settings.get("data"))
    if data is None:
        return Checked(faults.found)
    kind, image = ("", None) if market is None else (market.model.kind, image_of(market))
    tables = Tables(data, _uses(settings, data), folder, faults, profiled=True, model=kind, image=image)
    job = None
    if market is not None and not faults.found:
        job = faults.caught(lambda: job_of(market, folder, data_of(market, folder, tables)))
    if job is None:
        return Checked(faults.found, tables.profile)
    assert market is not None
    quotes = (job.payment or PricePerAccess()).quote(Roster(tuple(provider.offer for provider in job.providers)))
    faults.add(f"{path}: {fault}" for fault in market.unpayable(quotes.tolist()))
    if faults.found:
        return Checked(faults.found, tables.profile)
    taken = estimate(job)
    return Checked(faults.found, tables.profile, taken, job.meaning, job.blind_spots(taken.accesses))


def _uses(settings: Mapping[str, Any], data: DataSettings) -> list[tuple[Use, Path]]:
    """The tables that settings name, of which some sections may be at fault."""
    consumer = _section(ConsumerSettings, settings.get("consumer", {}))
    engine, given = _section(EngineSettings, settings.get("engine", {})), settings.get("providers")
    sections = (_section(ProviderSettings, one) for one in (given if isinstance(given, Sequence) else ()))
    providers = (section for section in sections if section is not None)
    return uses_of(data, consumer and consumer.train, engine.kind if engine else "", providers)


def _section(section: type[AnySection], given: object) -> AnySection | None:
    return read(section, given, "", Noted())


def estimate(job: Job) -> Estimate:
    """One round is played and timed where the rows are here, and nothing is kept of it."""
    consumer = job.consumer
    most = min(consumer.budget, *consumer.limits.values()) if consumer.limits else consumer.budget
    sellers = [provider for provider in job.providers if provider.price <= most]
    price = float(np.mean([provider.price for provider in sellers]))
    caps = [provider.most_accesses for provider in sellers]
    accesses = min(int(consumer.budget // price), sum(cap if cap is not None else consumer.budget for cap in caps))
    pace = consumer.per_round if consumer.most_per_round is None else int(consumer.most_per_round // price)
    per_round = max(1, min(consumer.per_round, pace))
    local = [p for p in job.providers if p.data is not None]
    rounds = max(1, accesses // per_round)
    rows = int(np.mean([_rows_of(job, provider) for provider in local])) if local else None
    features = int(np.prod(consumer.holdout[0].shape[1:])) if consumer.holdout is not None else 0
    return Estimate(
        rounds=rounds,
        accesses=accesses,
        rows_per_ask=rows,
        features=features,
        parameters=consumer.parameter_count,
        seconds=rounds * _seconds_of_a_round(job) if local else None,
        shortens=job.sampler.wants.short_rounds,
    )


def _rows_of(job: Job, provider: Provider) -> int:
    """The rows that an access uses."""
    count = len(provider.dataset[1])
    if job.learner.rows is not None:
        return min(count, job.learner.rows)
    assert isinstance(provider.oracle, Oracle)
    return int((provider.oracle.batches(count, key=0) >= 0).sum())


def _seconds_of_a_round(job: Job) -> float:
    """The first round also warms up, so it is played once more, if that is quick."""
    with job.consumer.limited_threads(), closing(replace(job, engine="vectorized").arbiter()) as arbiter:
        run, took = arbiter.begin(Accounts(arbiter.rules)), list[float]()
        drawn = arbiter.rules.draw(run.state.sampler, run.accounts.book)
        while not took or (len(took) < 2 and took[0] < QUICK):
            began = time.perf_counter()
            play_round(run, drawn, arbiter.engine)
            took.append(time.perf_counter() - began)
    return min(took)
