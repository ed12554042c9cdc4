"""market.toml: what a market buys, from whom, and how. `load_market` gives settings or one clear sentence.

Imports without pandas and torch. `template` makes the commented file that `bazaar init` writes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from databazaar.aggregators.protocol import AGGREGATORS
from databazaar.config.chosen_rules import Chosen, chosen, chosen_list
from databazaar.config.limits import MOST_PROVIDERS, minor, price_faults, refuse_endless
from databazaar.config.sections import (
    AUDIT,
    TRAIN,
    ConsumerSettings,
    DataSettings,
    DefenceSettings,
    EngineSettings,
    FederationSettings,
    LedgerSettings,
    MarketSettings,
    ProviderSettings,
    TrainingSettings,
)
from databazaar.errors import BazaarError
from databazaar.learners.protocol import LEARNERS
from databazaar.models import MODELS, Flat
from databazaar.money import Currency
from databazaar.oracles import ORACLES
from databazaar.payments.protocol import PAYMENTS
from databazaar.registry import MarketFacts
from databazaar.samplers.protocol import SAMPLERS
from databazaar.settings import Fault, Faults, declared, read, setting
from databazaar.stops.protocol import STOPS
from databazaar.utilities import UTILITIES

NETWORK, OF_AVERAGING, HERE = "mlp", ("oracle", "aggregator", "training"), ("vectorized", "loop")
"""The default model; sections that say how providers update a model, and how updates move it; and the engines that have
all rows in one place."""
EVERY_RUN = dict.fromkeys(("budget", "patience"), "is a stop of every run: remove it")


@dataclass(frozen=True)
class MarketFile:
    """A whole market.toml, checked; `parse_market` reads what `plain` gives.

    >>> import tomllib
    >>> from databazaar.config.template import template
    >>> market = parse_market(tomllib.loads(template()))
    >>> market.currency.format(market.budget_minor), [provider.id for provider in market.providers]
    ('1000 credits', ['north', 'south'])
    """

    market: MarketSettings = setting(help="what is bought, and the pace")
    data: DataSettings = setting(help="the consumer's rows, and how tables are read")
    consumer: ConsumerSettings = setting(ConsumerSettings(), "who buys")
    model: Chosen = chosen(MODELS, NETWORK, "what is trained")
    oracle: Chosen = chosen(
        ORACLES, "local-sgd", "for learner averaging: what a provider does with the model when it is asked"
    )
    utility: Chosen = chosen(UTILITIES, "exp-loss", "how the hold-out scores a model")
    training: TrainingSettings = setting(TrainingSettings(), "for learner averaging: how the model moves")
    sampler: Chosen = chosen(SAMPLERS, "adaptive", "who is asked")
    learner: Chosen = chosen(LEARNERS, "in-run", "how the model is trained from what is bought")
    aggregator: Chosen = chosen(
        AGGREGATORS, "mean", "for learner averaging: how the updates of a round become one step"
    )
    payment: Chosen = chosen(PAYMENTS, "price-per-access", "what an access is paid")
    stops: tuple[Chosen, ...] = chosen_list(
        STOPS, EVERY_RUN, "reasons to end before the budget is spent: one [[stops]] section each, in double brackets"
    )
    defence: DefenceSettings = setting(
        DefenceSettings("none"), "against those who play for the money: copies, leaks, noise, poison"
    )
    engine: EngineSettings = setting(EngineSettings(), "where answers are computed")
    federation: FederationSettings | None = setting(None, 'for engine.kind = "federated", which needs it')
    ledger: LedgerSettings = setting(LedgerSettings(), "where the ledger is kept")
    providers: tuple[ProviderSettings, ...] = setting(
        (), "who sells: one [[providers]] section each, in double brackets", entries=(0, MOST_PROVIDERS)
    )
    budget_minor: int = field(init=False, default=-1)
    """The budget in minor units of the currency; below zero where it is no amount."""
    limits_minor: dict[str, Any] = field(init=False, default_factory=dict)
    """The most per access and per round in minor units of the currency, as far as they are given."""

    @property
    def name(self) -> str:
        return self.market.name

    @property
    def per_round(self) -> int:
        return self.market.per_round

    @property
    def seed(self) -> int:
        return self.market.seed

    @property
    def currency(self) -> Currency:
        return Currency(self.market.currency, self.market.decimals)

    def facts(self, count_rows: Callable[[], Sequence[int]] | None = None) -> MarketFacts:
        """What rules may know of this market; `count_rows` once its tables are read."""
        prices = [provider.price_minor for provider in self.providers]
        return MarketFacts(self.budget_minor, self.per_round, prices, count_rows)

    def built(self, section: str) -> Any:
        """The rule that a section chooses; the stops are several."""
        chosen, facts = getattr(self, section), self.facts()
        return tuple(one.build(facts) for one in chosen) if section == "stops" else chosen.build(facts)

    def faults(self) -> Iterator[str]:
        """What is wrong with sections that are right each by itself. Amounts are read here."""
        amounts = [*self._amount_faults()]
        yield from amounts
        yield from self._provider_faults()
        yield from self.unpayable([provider.price_minor for provider in self.providers])
        yield from self._task_faults()
        yield from self._share_faults()
        yield from self._learner_faults()
        if not amounts and self.providers:
            yield from self._rule_faults()

    def unpayable(self, prices: Sequence[int]) -> Iterator[str]:
        """What is wrong where the budget or a limit pays for nobody at the first round's prices."""
        money, cheapest = self.currency.format, min(prices, default=0)
        if 0 <= self.budget_minor < self.per_round * cheapest:
            yield Fault(
                f"market.budget = {money(self.budget_minor)} cannot pay for one round of per_round = {self.per_round} "
                f"accesses at {money(cheapest)} or more each: "
                f"raise budget to at least {money(self.per_round * cheapest)}, or lower per_round",
                "market.budget",
            )
        for name, most in self.limits_minor.items():
            if most < max(cheapest, 1):
                yield Fault(
                    f"market.{name} = {money(most)} pays for nobody, because an access costs {money(max(cheapest, 1))} "
                    f"or more in the first round: raise {name} to at least that, or leave it out",
                    f"market.{name}",
                )

    def _amount_faults(self) -> Iterator[str]:
        amounts: dict[str, int] = {}
        for name in ("budget", "most_per_access", "most_per_round"):
            written = getattr(self.market, name)
            try:
                amounts |= {} if written is None else {name: minor(self.currency, written, f"market.{name}")}
            except BazaarError as fault:
                yield Fault(str(fault), f"market.{name}")
        object.__setattr__(self, "budget_minor", amounts.pop("budget", -1))
        object.__setattr__(self, "limits_minor", amounts)
        for place, provider in enumerate(self.providers):
            yield from price_faults(self.currency, provider, f"providers[{place}]")

    def _rule_faults(self) -> Iterator[str]:
        """Every rule is built once, to see that it can be."""
        stops = ((f"stops[{place}]", stop) for place, stop in enumerate(self.stops))
        names = ("model", "oracle", "utility", "sampler", "learner", "aggregator", "payment")
        for place, rule in (*((name, getattr(self, name)) for name in names), *stops):
            fault = rule.fault(self.facts())
            if fault is not None:
                yield Fault(f"{place}: {fault}", place)

    def _learner_faults(self) -> Iterator[str]:
        """What a learner that trains on rows has no use for."""
        kind, first = self.learner.kind, {one.name: one.default for one in declared(MarketFile)}
        if not _trains(kind, self.model.kind):
            yield Fault(
                f'learner.kind = "{kind}" does not train model.kind = "{self.model.kind}": use '
                f'"{_learner_of(self.model.kind)}", or leave learner.kind out',
                "learner.kind",
            )
            return
        if not trains_on_rows(kind):
            if self.market.values_rows:
                yield Fault(
                    'market.values_rows is for learners that train on rows, and learner.kind = "averaging" buys '
                    'updates: use model.kind = "trees" or learner.kind = "in-run", or leave it out',
                    "market.values_rows",
                )
            return
        for section in OF_AVERAGING:
            if getattr(self, section) != first[section]:
                yield Fault(f'{section} is for learner.kind = "averaging", not "{kind}": remove the section', section)
        if self.engine.kind not in HERE:
            yield Fault(
                f'learner.kind = "{kind}" needs the providers\' rows in one place, and engine.kind = '
                f'"{self.engine.kind}" leaves them where they are: use {instead_of_rows(self.model.kind)}',
                "learner.kind",
            )

    def _share_faults(self) -> Iterator[str]:
        """Some rows of the hold-out must be left to judge by."""
        train, audit = self.consumer.train, self.data.audit
        fault = too_much_kept(*(share for share in (train, audit) if isinstance(share, float)))
        if fault:
            yield fault
        if self.payment.kind == "price-per-row" and self.engine.kind == "federated":
            yield (
                'payment.kind = "price-per-row" counts the rows of files, and engine.kind = "federated" has none: '
                'use "price-per-access"'
            )

    def _provider_faults(self) -> Iterator[str]:
        if self.engine.kind == "federated" and self.federation is None:
            yield (
                'engine.kind = "federated" needs a [federation] section: write folder = "federation", '
                "the folder that `bazaar federation init` made"
            )
        if not self.providers:
            yield "providers is empty: add a [[providers]] section with an id and a file"
        seen: dict[str, int] = {}
        for place, provider in enumerate(self.providers):
            where = f"providers[{place}]"
            if provider.id in seen:
                yield (
                    f"{where}.id = {provider.id!r} is also the id of providers[{seen[provider.id]}]: "
                    "give every provider its own id"
                )
            seen[provider.id] = place
            if provider.file is None and self.engine.kind != "federated":
                yield (
                    f"{where}.file is missing for {provider.id!r}: name its CSV or Parquet file, "
                    'or set engine.kind = "federated"'
                )

    def _task_faults(self) -> Iterator[str]:
        for name in ("model", "utility"):
            rule: Chosen = getattr(self, name)
            registry = rule.registry
            tasks = getattr(registry.find(rule.kind), "tasks", (self.data.task,))
            if self.data.task not in tasks:
                ours = [one for one in registry.kinds() if registry.is_bundled(one)]
                fit = [f'"{one}"' for one in ours if self.data.task in registry.find(one).tasks]
                yield Fault(
                    f'{name}.kind = "{rule.kind}" is for {tasks[0]} and data.task = "{self.data.task}": '
                    f"use {name}.kind = {' or '.join(fit)}, or change data.task",
                    f"{name}.kind",
                )


def _learner_of(model: str) -> str:
    """Who trains a kind of model where nobody is named; a package's model may not say."""
    return str(getattr(MODELS.find(model), "learner", Flat.learner))


def _trains(learner: str, model: str) -> bool:
    """Whether a kind of learner trains a kind of model. One that names none trains every model whose own learner names
    none either; a package's learner may not say."""
    named, others = (getattr(LEARNERS.find(one), "models", None) for one in (learner, _learner_of(model)))
    return model in named if named is not None else others is None


def trains_on_rows(learner: str) -> bool:
    """Whether an access to a provider buys rows, and no update; a package's learner may not say."""
    return getattr(LEARNERS.find(learner), "rows", None) is not None


def instead_of_rows(model: str) -> str:
    """The setting that does not need rows."""
    if _trains("averaging", model):
        return 'learner.kind = "averaging"'
    return 'model.kind = "mlp" or another network'


def _with_learner(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings with the learner that trains the model, where none is named: its own; but averaging in place of
    in-run where rows are elsewhere, something is said of updates, or the sampler is the paper's
    (`learners.default_learner`)."""
    chosen = {name: settings.get(name, {}) for name in ("model", "learner", "engine", "sampler")}
    if not all(isinstance(section, Mapping) for section in chosen.values()):
        return settings
    model, sampler = chosen["model"].get("kind", NETWORK), chosen["sampler"].get("kind")
    if "kind" in chosen["learner"] or model not in MODELS.kinds():
        return settings
    own, here = _learner_of(model), chosen["engine"].get("kind") in (None, *HERE)
    updates = not here or any(section in settings for section in OF_AVERAGING) or sampler == "osmd"
    return {**settings, "learner": {"kind": "averaging" if own == "in-run" and updates else own, **chosen["learner"]}}


def learner_of(settings: Mapping[str, Any]) -> tuple[str, str]:
    """The kinds of the learner and of the model that settings choose, which are not checked yet; those of a network
    that is trained by updates where they cannot be read."""
    found, kinds = _with_learner(settings), []
    for name, registry, default in (("learner", LEARNERS, Flat.learner), ("model", MODELS, NETWORK)):
        section = found.get(name)
        kind = section.get("kind") if isinstance(section, Mapping) else None
        kinds.append(kind if kind in registry.kinds() else default)
    return kinds[0], kinds[1]


def too_much_kept(*shares: float) -> str | None:
    """What is wrong where these shares of the hold-out, kept for other purposes, leave too little of it."""
    if sum(shares) <= 0.95:
        return None
    return (
        f"consumer.train and data.audit take {sum(shares):.0%} of the hold-out, so too few rows are left to judge: "
        f"lower one of them, or name a file (where nothing is said they are {TRAIN:g} and {AUDIT:g})"
    )


def parse_market(settings: Mapping[str, Any], where: str = "market.toml") -> MarketFile:
    """A market from a table of TOML or JSON; an error names `where` and the setting."""
    market, faults = parse_all(settings, where)
    if faults:
        raise BazaarError(faults[0], place=faults[0].place)
    assert market is not None
    return market


def parse_all(settings: Mapping[str, Any], where: str = "market.toml") -> tuple[MarketFile | None, list[Fault]]:
    """The market, if its sections can be read at all, and every fault of its settings."""
    faults, market = Faults(), None
    try:
        refuse_endless(settings)
        market = read(MarketFile, _with_learner(settings), "", faults)
        for fault in () if market is None else market.faults():
            faults.add(fault)
    except BazaarError as error:
        faults.add(str(error))
    return market, [Fault(f"{where}: {fault}", fault.place) for fault in faults]


def load_market(path: Path, changes: Mapping[str, Mapping[str, Any]] | None = None) -> MarketFile:
    """The market that a TOML file describes; its paths are relative to the file's folder. `changes` replace settings,
    section by section; one that is None changes nothing."""
    settings = read_settings(path)
    for section, given in (changes or {}).items():
        changed = {name: value for name, value in given.items() if value is not None}
        there = settings.get(section, {})
        if changed and isinstance(there, Mapping):  # the parser says what is wrong with any other
            settings[section] = {**there, **changed}
    return parse_market(settings, str(path))


def read_settings(path: Path) -> dict[str, Any]:
    """What a TOML file holds, not yet checked."""
    try:
        settings = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
        refuse_endless(settings)
        return settings
    except BazaarError as error:
        raise BazaarError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise BazaarError(f"{path}: the file does not exist: write one with `bazaar init`") from None
    except IsADirectoryError:
        raise BazaarError(f"{path} is a folder: give the file in it, such as {path / 'market.toml'}") from None
    except OSError as error:
        raise BazaarError(f"{path}: the file cannot be read ({error.strerror}): check the path") from None
    except UnicodeDecodeError as error:
        raise BazaarError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise BazaarError(f"{path}: the file is not valid TOML: {error}: correct that line") from None
