"""A market looked at before anything is bought: every fault of its settings and files, and a profile of its tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from databazaar.config.jobs import Job, job_of
from databazaar.config.market_data import Tables, Use, data_of, uses_of
from databazaar.config.market_file import parse_all, read_settings
from databazaar.config.sections import ConsumerSettings, DataSettings, EngineSettings, ProviderSettings
from databazaar.data.profile_record import MarketProfile
from databazaar.data.schema import TableFaults
from databazaar.display import duration
from databazaar.learners import InRun
from databazaar.learning.oracles import LocalSGD, Oracle, compute_update
from databazaar.parties import Provider
from databazaar.payments import PricePerAccess
from databazaar.randomness import oracle_key
from databazaar.roster import Roster
from databazaar.settings import Faults as Noted
from databazaar.settings import read

AnySection = TypeVar("AnySection")


@dataclass(frozen=True)
class Estimate:
    """What a run will take. `rounds` are of full length; `shortens` says whether there may be more and shorter ones.
    `seconds` are those of one ask after the other; None where providers answer from elsewhere."""

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
        return (
            f"{rounds} and {self.accesses:,} accesses{rows}, for a model of {self.features:,} "
            f"features and {self.parameters:,} parameters{took}"
        )


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
    tables = Tables(data, _uses(settings, data), folder, faults, profiled=True)
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
    """One ask of a provider of middling size is timed, and one look at the hold-out."""
    consumer = job.consumer
    params = consumer.initial_parameters()
    most = min(consumer.budget, *consumer.limits.values()) if consumer.limits else consumer.budget
    sellers = [provider for provider in job.providers if provider.price <= most]
    price = float(np.mean([provider.price for provider in sellers]))
    caps = [provider.most_accesses for provider in sellers]
    accesses = min(int(consumer.budget // price), sum(cap if cap is not None else consumer.budget for cap in caps))
    pace = consumer.per_round if consumer.most_per_round is None else int(consumer.most_per_round // price)
    per_round = max(1, min(consumer.per_round, pace))
    local = sorted((p for p in job.providers if p.data is not None), key=lambda p: len(p.dataset[0]))
    rows, seconds = None, None
    if local and consumer.task.model is not None:
        middle = local[len(local) // 2]
        key, oracle = oracle_key(job.seed, 0, middle.id), _work(job, middle)
        rows = int(np.mean([(oracle.batches(len(p.dataset[0]), key) >= 0).sum() for p in local]))
        evaluator = consumer.evaluator(torch.device("cpu"))
        took = []
        for _ in range(2):  # the first time also warms up
            began = time.perf_counter()
            compute_update(oracle, consumer.task, middle.dataset, params, 0, key)
            evaluator.score(params[None])
            took.append(time.perf_counter() - began)
        seconds = accesses * min(took)
    features = int(np.prod(consumer.holdout[0].shape[1:])) if consumer.holdout is not None else 0
    return Estimate(
        rounds=max(1, accesses // per_round),
        accesses=accesses,
        rows_per_ask=rows,
        features=features,
        parameters=len(params),
        seconds=seconds,
        shortens=job.sampler.wants.short_rounds,
    )


def _work(job: Job, provider: Provider) -> Oracle:
    """What an access makes a provider's rows go through: its oracle, or the steps of a learner that asks for rows."""
    if isinstance(job.learner, InRun):
        return LocalSGD(batch_size=job.learner.batch_size, steps=-(-job.learner.rows // job.learner.batch_size))
    assert isinstance(provider.oracle, Oracle)
    return provider.oracle
