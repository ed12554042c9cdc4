"""Jobs: a market.toml, or the demo, turned into an arbiter. A job can be told again from its recipe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from databazaar.config.market_file import Market, load_market, parse_market
from databazaar.config.sections import FederationSettings
from databazaar.config.tables import Examples, MarketTables, load_tables
from databazaar.data.fraud import FraudBanks, fraud_banks
from databazaar.data.tables import Schema
from databazaar.engines import Beginning
from databazaar.errors import BazaarError
from databazaar.learning.models import build_model
from databazaar.learning.oracles import FullGradient, LocalSGD, Oracle, StochasticGradient
from databazaar.learning.task import Halving
from databazaar.market.arbiter import Arbiter, theory_sampler
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.samplers import OSMD, Sampler, Uniform

if TYPE_CHECKING:
    from databazaar.federation.engine import FederatedEngine
    from databazaar.federation.job import FederatedJob
    from databazaar.runs.folder import RunFolder

SMALL_MODEL = 100_000
"""Below this many parameters in a round's stack a second thread costs more than it brings."""


@dataclass(frozen=True)
class Job:
    """All that a run needs. `recipe` is kept in the run's folder, and `from_recipe` reads it."""

    title: str
    consumer: Consumer
    providers: list[Provider]
    sampler: Sampler
    seed: int
    engine: str
    device: str
    recipe: dict[str, Any]
    test: Examples | None = None
    notes: dict[str, str] | None = None
    federation: FederatedJob | None = None

    def arbiter(self, sampler: Sampler | None = None, folder: RunFolder | None = None) -> Arbiter:
        """The arbiter, ready to run in `folder`. Without one, a federated job only looks whether it could run."""
        self._set_threads()
        return Arbiter(
            self.consumer,
            self.providers,
            sampler or self.sampler,
            engine=self.engine if self.federation is None else self._federated_engine(self.federation, folder),
            device=self.device,
            seed=self.seed,
        )

    def _federated_engine(self, federation: FederatedJob, folder: RunFolder | None) -> FederatedEngine:
        engine = federation.engine([provider.id for provider in self.providers])
        if folder is not None:
            engine.on_privacy = folder.note_privacy
            engine.begin(Beginning(str(folder.recipe["id"])))
        return engine

    def _set_threads(self) -> None:
        if len(self.consumer.initial_parameters()) * self.consumer.per_round < SMALL_MODEL:
            torch.set_num_threads(1)


def market_job(path: Path, changes: dict[str, dict[str, Any]] | None = None) -> Job:
    """The job that a market.toml describes. `changes` replace settings, section by section."""
    market = load_market(path)
    if changes:
        told = market.model_dump(mode="json", by_alias=True)
        for section, settings in changes.items():
            told[section] = {**told[section], **settings}
        market = parse_market(told, str(path))
    folder = path.resolve().parent
    return _from_market(market, folder, load_tables(market, folder))


def _from_market(market: Market, folder: Path, tables: MarketTables) -> Job:
    federated = market.federation if market.engine.kind == "federated" else None
    oracle = None if federated is not None else _oracle(market)
    examples = {table.id: (table.x, table.y) for table in tables.providers}
    consumer = _consumer(market, tables)
    providers = [
        Provider(
            p.id,
            _shaped(market, examples[p.id]) if p.id in examples else None,
            oracle,
            owner=p.owner,
            price=p.price_minor,
        )
        for p in market.providers
    ]
    return Job(
        title=market.name,
        consumer=consumer,
        providers=providers,
        sampler=_sampler(market, consumer, providers),
        seed=market.seed,
        engine=market.engine.kind,
        device=market.engine.device,
        recipe={
            "job": "market",
            "market": market.model_dump(mode="json", by_alias=True),
            "folder": str(folder),
            "digests": tables.digests,
            "ledger_url": market.ledger.url,
            "schema": tables.schema.to_dict(),
        },
        federation=None if federated is None else _federated_job(market, federated, folder, tables),
    )


def _federated_job(market: Market, settings: FederationSettings, folder: Path, tables: MarketTables) -> FederatedJob:
    from databazaar.federation.job import FederatedJob

    step, every = market.oracle.step, market.training.halve_every
    return FederatedJob(
        folder=folder / settings.folder,
        task=FederatedJob.describe(
            kind=market.model.kind,
            inputs=_shaped(market, tables.holdout)[0].shape[1:],
            hidden=market.model.hidden,
            schema=tables.schema,
            oracle=market.oracle.model_dump(),
        ),
        step=Halving(step, every) if every else step,
        deadline=settings.deadline,
        wait=settings.wait,
    )


def _shaped(market: Market, examples: tuple[Any, Any]) -> tuple[Any, Any]:
    x, y = examples
    if market.model.kind == "cnn":
        x = x.reshape(len(x), *market.model.image_shape(x.shape[1]))
    return x, y


def _consumer(market: Market, tables: MarketTables) -> Consumer:
    holdout = _shaped(market, tables.holdout)
    model = build_model(
        market.model.kind, holdout[0].shape[1:], tables.schema.outputs, hidden=market.model.hidden, seed=market.seed
    )
    step, every = market.training.step, market.training.halve_every
    return Consumer(
        model,
        budget=market.budget_minor,
        holdout=holdout,
        utility=market.utility.kind,
        per_round=market.per_round,
        step=Halving(step, every) if every else step,
        currency=market.currency,
    )


def _oracle(market: Market) -> Oracle:
    settings, every = market.oracle, market.training.halve_every
    if settings.kind == "full-gradient":
        return FullGradient()
    if settings.kind == "stochastic-gradient":
        return StochasticGradient(settings.batch_size)
    step = Halving(settings.step, every) if every else settings.step
    return LocalSGD(step, settings.batch_size, settings.epochs, settings.momentum)


def _sampler(market: Market, consumer: Consumer, providers: list[Provider]) -> Sampler:
    settings = market.sampler
    if settings.kind != "osmd":
        return Uniform(replacement=settings.kind == "uniform")
    if settings.eta is not None and settings.alpha is not None:
        return OSMD(settings.eta, settings.alpha)
    return theory_sampler(consumer, providers, settings.switches or 1)


def demo_job(budget: int, seed: int) -> Job:
    """One bank buys a fraud model from nine others that differ in relevance and in data quality."""
    story: FraudBanks = fraud_banks(seed)
    schema = Schema.fit(story.holdout, target="fraud", task="classification")
    holdout = schema.encode(story.holdout, "holdout")
    per_round = 5
    consumer = Consumer(
        build_model("mlp", [schema.width], schema.outputs, hidden=[16], seed=seed),
        budget=budget,
        holdout=holdout,
        utility="exp-loss",
        per_round=per_round,
    )
    oracle = LocalSGD(step=0.05, batch_size=32)
    return Job(
        title="Fraud model for a new credit card",
        consumer=consumer,
        providers=[Provider(b.id, schema.encode(b.frame, b.id), oracle) for b in story.banks],
        sampler=OSMD(eta=1.0, alpha=0.1),
        seed=seed,
        engine="vectorized",
        device="cpu",
        recipe={"job": "demo", "budget": budget, "seed": seed},
        test=Examples(*schema.encode(story.test, "test")),
        notes={b.id: b.note for b in story.banks},
    )


def from_recipe(recipe: dict[str, Any]) -> Job:
    """The job of a run's folder, from the same data as before."""
    try:
        return _told_again(recipe)
    except (KeyError, TypeError, AttributeError) as missing:
        raise BazaarError(f"run.json cannot be read ({missing!r}): put the old one back, or run anew") from None


def _told_again(recipe: dict[str, Any]) -> Job:
    if recipe.get("job") == "demo":
        return demo_job(recipe["budget"], recipe["seed"])
    if recipe.get("job") != "market":
        raise BazaarError("this run was begun from Python: go on with Arbiter(…).run(folder) there")
    market, folder = parse_market(recipe["market"]), Path(recipe["folder"])
    tables = load_tables(market, folder)
    for name, digest in recipe["digests"].items():
        if tables.digests.get(name) != digest:
            raise BazaarError(f"{folder / name} has changed since the run began: put the old file back, or run anew")
    job = _from_market(market, folder, tables)
    if json.loads(json.dumps(job.recipe)) != {k: v for k, v in recipe.items() if k != "id"}:
        raise BazaarError("run.json does not describe this market any more: put the old one back, or run anew")
    return job
