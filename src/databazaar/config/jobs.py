"""Jobs: a market.toml, or the demo, turned into an arbiter. A job can be made again from its recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from databazaar.aggregators import Aggregator
from databazaar.config.chosen_rules import oracle_settings, payment_of
from databazaar.config.limits import refuse_large_model, refuse_long_asks
from databazaar.config.market_data import EncodedTable, MarketData, load_data
from databazaar.config.market_file import MarketFile, load_market, parse_market
from databazaar.config.sections import FederationSettings, ProviderSettings
from databazaar.data.fraud import FraudBanks, fraud_banks
from databazaar.data.profile_record import MarketProfile
from databazaar.data.tables import Schema, TableReference
from databazaar.data.tree_features import with_places
from databazaar.defence import Defence
from databazaar.engines import Engine, make_engine
from databazaar.errors import BazaarError
from databazaar.learners import Averaging, Learner
from databazaar.learning.asked_rows import refuse_few_rows
from databazaar.learning.models import build_model
from databazaar.learning.oracles import LocalSGD
from databazaar.learning.split import split_rows
from databazaar.learning.task import Halving
from databazaar.market.arbiter import Arbiter
from databazaar.market.inspection.coverage import NO_DEFENCE, MarketShape, blind_spots, meaning
from databazaar.models import Columns, ModelForm
from databazaar.parties.consumer import Consumer
from databazaar.parties.provider import Provider
from databazaar.payments import Payment
from databazaar.runs.recipe import without_passwords
from databazaar.samplers import Adaptive, Sampler
from databazaar.settings import plain
from databazaar.stops import Stop

if TYPE_CHECKING:
    from databazaar.federation.engine import FederatedJob


@dataclass(frozen=True)
class Job:
    """All that a run needs. `recipe` is kept in the run's folder, and `from_recipe` reads it; `remarks` say what was
    left out of the files."""

    title: str
    consumer: Consumer
    providers: list[Provider]
    sampler: Sampler
    seed: int
    engine: str
    device: str
    recipe: dict[str, Any]
    learner: Learner = Averaging()  # noqa: RUF009
    aggregator: Aggregator | None = None
    payment: Payment | None = None
    stops: tuple[Stop, ...] = ()
    defence: Defence = field(default_factory=Defence)
    notes: dict[str, str] | None = None
    remarks: tuple[str, ...] = ()
    profile: MarketProfile | None = None
    federation: FederatedJob | None = None
    buyer: str = ""
    values_rows: bool = False
    target_scale: float = 1.0

    def arbiter(self, engine: Engine | None = None) -> Arbiter:
        """The arbiter, ready to run. Building it finds what is wrong with the job before anything is written."""
        if engine is None and self.federation is not None:
            task = self.consumer.task.copied()
            engine = make_engine(self.engine, task, self.providers, self.device, federation=self.federation)
        return Arbiter(
            self.consumer,
            self.providers,
            self.sampler,
            engine=engine or self.engine,
            device=self.device,
            seed=self.seed,
            market=self.title,
            buyer=self.buyer,
            data=self.recipe.get("digests"),
            values_rows=self.values_rows,
            **self.rules(),
        )

    def rules(self) -> dict[str, Any]:
        """The rules beside the sampler, by the names of the arbiter's arguments."""
        names = ("learner", "aggregator", "payment", "stops", "defence")
        return {name: getattr(self, name) for name in names}

    @property
    def meaning(self) -> str:
        """Which defence there is, and what it means for the providers."""
        return NO_DEFENCE if self.defence.off else meaning(self.defence)

    def blind_spots(self, accesses: int) -> tuple[str, ...]:
        """The defence's rules that cannot work here, where so many accesses can be bought."""
        consumer, judged = self.consumer, self.consumer.judged_rows
        owners, parameters = [p.owner for p in self.providers], consumer.parameter_count
        rows = 0 if judged is None else len(judged[1])
        return blind_spots(self.defence, MarketShape(owners, consumer.per_round, rows, parameters, accesses))

    @property
    def can_be_judged(self) -> bool:
        """Whether the consumer has rows to audit a purchase by."""
        return self.consumer.audit is not None and not isinstance(self.consumer.model, np.ndarray)


def market_job(path: Path, changes: Mapping[str, Mapping[str, Any]] | None = None, profiled: bool = False) -> Job:
    """The job that a market.toml describes. `changes` replace settings, section by section. What is `profiled` has a
    profile of its tables."""
    market, folder = load_market(path, changes), path.resolve().parent
    return job_of(market, folder, load_data(market, folder, profiled))


def job_of(market: MarketFile, folder: Path, data: MarketData | None = None) -> Job:
    """The job of a market whose files are in this folder; they are read where no `data` are given."""
    data = load_data(market, folder) if data is None else data
    federated = market.federation if market.engine.kind == "federated" else None
    oracle = None if federated is not None else market.built("oracle")
    if isinstance(oracle, LocalSGD):
        oracle = replace(oracle, step=_halving(market, market.oracle.settings["step"]))
        refuse_long_asks({id: oracle.step_count(len(y)) * oracle.batch_size for id, (_, y) in data.providers.items()})
    consumer, learner, defence = _consumer(market, data), market.built("learner"), market.defence.chosen
    providers = [
        Provider(
            p.id,
            _shaped(market, data.providers[p.id]) if p.id in data.providers else None,
            oracle,
            owner=p.owner,
            price=p.price_minor,
            most_accesses=p.most_accesses,
            price_changes=p.changes_minor,
            source=_reference(market, folder, data, p),
        )
        for p in market.providers
    ]
    return Job(
        title=market.name,
        consumer=consumer,
        providers=providers,
        sampler=market.built("sampler"),
        seed=market.seed,
        engine=market.engine.kind,
        device=market.engine.device,
        recipe={
            "job": "market",
            "market": plain(market),
            "folder": str(folder),
            "digests": data.digests,
            "ledger_url": market.ledger.url,
            "schema": data.schema.to_dict(),
        },
        learner=learner,
        aggregator=market.built("aggregator"),
        payment=payment_of(market, lambda: [len(provider.dataset[1]) for provider in providers]),
        stops=market.built("stops"),
        defence=defence if learner.rows is None else defence.of_rows(),
        remarks=data.remarks,
        profile=data.profile,
        federation=None if federated is None else _federated_job(market, federated, folder, data),
        buyer=market.consumer.name,
        values_rows=market.market.values_rows,
        target_scale=data.schema.target_scale,
    )


def _reference(market: MarketFile, folder: Path, data: MarketData, provider: ProviderSettings) -> TableReference | None:
    """The provider's table for those who read it themselves."""
    if provider.file is None or provider.id not in data.providers:
        return None
    shape = market.built("model").shape(data.schema.width)
    digest = data.digests[provider.file.as_posix()]
    return TableReference(folder / provider.file, digest, market.data.format, data.schema, shape)


def _federated_job(market: MarketFile, settings: FederationSettings, folder: Path, data: MarketData) -> FederatedJob:
    from databazaar.federation.engine import FederatedJob

    oracle, step = asked_work(market)
    refuse_few_rows(oracle)
    return FederatedJob(
        folder=folder / settings.folder,
        task=FederatedJob.describe(
            kind=market.model.kind,
            inputs=_shaped(market, data.holdout)[0].shape[1:],
            hidden=market.built("model").hidden,
            schema=data.schema,
            oracle=oracle,
        ),
        step=step,
        deadline=settings.deadline,
        wait=settings.wait,
        consumer=settings.consumer or market.consumer.name,
        contract=settings.contract,
    )


def asked_work(market: MarketFile) -> tuple[dict[str, Any], float | Halving]:
    """The oracle's settings as a message to remote providers has them, and its step, which may change by the round."""
    oracle = oracle_settings(market)
    return oracle, _halving(market, oracle["step"])


def _halving(market: MarketFile, step: float) -> float | Halving:
    every = market.training.halve_every
    return Halving(step, every) if every else step


def _shaped(market: MarketFile, table: EncodedTable) -> tuple[Any, Any]:
    x, y = table
    return x.reshape(len(x), *market.built("model").shape(x.shape[1])), y


def _consumer(market: MarketFile, data: MarketData) -> Consumer:
    holdout = _shaped(market, data.holdout)
    train, audit = (None if rows is None else _shaped(market, rows) for rows in (data.train, data.audit))
    return Consumer(
        _model(market, data, tuple(holdout[0].shape[1:])),
        budget=market.budget_minor,
        holdout=holdout,
        utility=market.built("utility"),
        per_round=market.per_round,
        step=_halving(market, market.training.step),
        currency=market.currency,
        train=train,
        audit=audit,
        **market.limits_minor,
    )


def _model(market: MarketFile, data: MarketData, inputs: tuple[int, ...]) -> nn.Module | Columns:
    chosen = market.built("model")
    if isinstance(chosen, Columns):
        return with_places(chosen, data.schema)
    form = ModelForm(chosen.kind, inputs, data.schema.outputs, chosen.hidden)
    refuse_large_model(form, min(market.per_round, len(market.providers)))
    return build_model(form.kind, form.inputs, form.outputs, hidden=form.hidden, seed=market.seed)


def demo_job(budget: int, seed: int) -> Job:
    """One bank buys a fraud model from nine others that differ in relevance and in data quality."""
    story: FraudBanks = fraud_banks(seed)
    schema = Schema.fit(story.holdout, target="fraud", task="classification")
    own = EncodedTable(*schema.encode(story.holdout, "holdout"))
    train, holdout = (EncodedTable(own.x[part], own.y[part]) for part in split_rows(own.y, (0.5, 0.5)))
    consumer = Consumer(
        build_model("mlp", [schema.width], schema.outputs, hidden=[16], seed=seed),
        budget=budget,
        holdout=holdout,
        utility="exp-loss",
        per_round=5,
        train=train,
        audit=schema.encode(story.test, "test"),
    )
    return Job(
        title="Fraud model for a new credit card",
        consumer=consumer,
        providers=[Provider(b.id, schema.encode(b.frame, b.id), LocalSGD()) for b in story.banks],
        sampler=Adaptive(),
        seed=seed,
        engine="vectorized",
        device="cpu",
        recipe={"job": "demo", "budget": budget, "seed": seed, "schema": schema.to_dict()},
        notes={b.id: b.note for b in story.banks},
    )


def from_recipe(recipe: dict[str, Any]) -> Job:
    """The job of a run's folder, from the same data as before."""
    try:
        return _from_recipe(recipe)
    except (KeyError, TypeError, AttributeError) as missing:
        raise BazaarError(f"run.json cannot be read ({missing!r}): put the old one back, or run anew") from None


def _from_recipe(recipe: dict[str, Any]) -> Job:
    if recipe.get("job") == "demo":
        return demo_job(recipe["budget"], recipe["seed"])
    if recipe.get("job") != "market":
        raise BazaarError("this run was begun from Python: go on with Arbiter(…).run(folder) there")
    try:
        market, folder = parse_market(recipe["market"], "market"), Path(recipe["folder"])
    except BazaarError as error:
        raise BazaarError(
            f"run.json does not fit this version ({error}): go on with the version that began the run, or run anew"
        ) from None
    data = load_data(market, folder)
    for name, digest in recipe["digests"].items():
        if data.digests.get(name) != digest:
            raise BazaarError(f"{folder / name} has changed since the run began: put the old file back, or run anew")
    job = job_of(market, folder, data)
    if not is_recipe_of(job, {**recipe, "market": plain(market)}):  # with settings that came later
        raise BazaarError("run.json does not describe this market any more: put the old one back, or run anew")
    return job


def is_recipe_of(job: Job, recipe: dict[str, Any]) -> bool:
    """Whether a run's folder has been made for this job, with the same settings and the same files."""
    kept = {name: value for name, value in recipe.items() if name not in ("id", "title", "began")}
    return bool(json.loads(json.dumps(without_passwords(job.recipe))) == kept)
