"""market.toml: what a market buys, from whom, and how. `load_market` gives settings or one clear sentence.

Imports without pandas and torch. `TEMPLATE` is the commented file that `bazaar init` writes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, model_validator

from databazaar.config.defence import DefenceSettings
from databazaar.config.errors import sentences
from databazaar.config.limits import MOST_PROVIDERS, refuse_endless
from databazaar.config.prices import limits_of, minor, price_faults, unpayable
from databazaar.config.rules import (
    AggregatorSettings,
    MeanSettings,
    PaymentSettings,
    PricePerAccessSettings,
    SamplerSettings,
    StopSettings,
    ThriftySettings,
)
from databazaar.config.sections import (
    ConsumerSettings,
    DataSettings,
    EngineSettings,
    FederationSettings,
    LedgerSettings,
    LocalSGDSettings,
    MarketSettings,
    MLPSettings,
    ModelSettings,
    OracleSettings,
    ProviderSettings,
    Section,
    TrainingSettings,
    UtilitySettings,
)
from databazaar.config.template import TEMPLATE
from databazaar.errors import BazaarError
from databazaar.money import Currency

__all__ = ["TEMPLATE", "MarketFile", "load_market", "parse_all", "parse_market", "read_settings"]

TRAIN, AUDIT = 0.5, 0.2
"""The shares of the hold-out to start from and to audit by where nothing is said."""


class MarketFile(Section):
    """A whole market.toml, checked; `parse_market` reads what `model_dump(mode="json", by_alias=True)` gives.

    >>> import tomllib
    >>> market = parse_market(tomllib.loads(TEMPLATE))
    >>> market.currency.format(market.budget_minor), [provider.id for provider in market.providers]
    ('1000 credits', ['north', 'south'])
    """

    settings: MarketSettings = Field(alias="market")
    consumer: ConsumerSettings = ConsumerSettings()
    data: DataSettings
    model: ModelSettings = MLPSettings()
    oracle: OracleSettings = LocalSGDSettings()
    utility: UtilitySettings = UtilitySettings()
    training: TrainingSettings = TrainingSettings()
    sampler: SamplerSettings = ThriftySettings()
    aggregator: AggregatorSettings = MeanSettings()
    payment: PaymentSettings = PricePerAccessSettings()
    stops: Annotated[tuple[StopSettings, ...], Field(strict=False)] = Field(
        default=(), description="one [[stops]] section each, in double brackets"
    )
    defence: DefenceSettings = DefenceSettings(kind="none")
    engine: EngineSettings = EngineSettings()
    federation: FederationSettings | None = None
    ledger: LedgerSettings = LedgerSettings()
    providers: Annotated[tuple[ProviderSettings, ...], Field(strict=False, max_length=MOST_PROVIDERS)] = Field(
        default=(), description="one [[providers]] section each, in double brackets"
    )
    _budget_minor: int | None = PrivateAttr(default=None)
    _limits_minor: dict[str, int] = PrivateAttr(default_factory=dict)

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def per_round(self) -> int:
        return self.settings.per_round

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def currency(self) -> Currency:
        return Currency(self.settings.currency, self.settings.decimals)

    @property
    def budget_minor(self) -> int:
        """The budget in minor units of the currency."""
        assert self._budget_minor is not None
        return self._budget_minor

    @property
    def limits_minor(self) -> dict[str, int]:
        """The most per access and per round in minor units of the currency, as far as they are given."""
        return self._limits_minor

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> MarketFile:
        """Stops at the first fault, or notes all of them where the context has a list for them."""
        noted = (info.context or {}).get("faults")
        for fault in self._faults():
            if noted is None:
                raise BazaarError(fault)
            noted.append(fault)
        return self

    def _faults(self) -> Iterator[str]:
        try:
            self._budget_minor = minor(self.currency, self.settings.budget, "market.budget")
        except BazaarError as fault:
            yield str(fault)
        self._limits_minor, faults = limits_of(self.currency, self.settings)
        yield from faults
        yield from self._provider_faults()
        yield from self._round_faults()
        yield from self._task_faults()
        yield from self._share_faults()

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
        if self.engine.precision != "float32" and self.engine.kind == "federated":
            yield (
                f'engine.precision = "{self.engine.precision}" is for engines of this machine, and with '
                'engine.kind = "federated" providers compute by themselves: leave it out'
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
            setting = f"providers[{place}]"
            if provider.id in seen:
                yield (
                    f"{setting}.id = {provider.id!r} is also the id of providers[{seen[provider.id]}]: "
                    "give every provider its own id"
                )
            seen[provider.id] = place
            if provider.file is None and self.engine.kind != "federated":
                yield (
                    f"{setting}.file is missing for {provider.id!r}: name its CSV or Parquet file, "
                    'or set engine.kind = "federated"'
                )
            yield from price_faults(self.currency, provider, setting)

    def _round_faults(self) -> Iterator[str]:
        if self.sampler.kind == "uniform-without-replacement" and self.per_round > len(self.providers):
            yield (
                f"market.per_round = {self.per_round} is more than the {len(self.providers)} providers, and "
                f"sampler.kind = {self.sampler.kind!r} draws each at most once: "
                "lower per_round or choose another sampler"
            )
        prices = [provider.price_minor for provider in self.providers]
        yield from unpayable(self.currency, self._budget_minor, self._limits_minor, self.per_round, prices)

    def _task_faults(self) -> Iterator[str]:
        task, kind = self.data.task, self.model.kind
        if (kind, task) == ("linear", "classification"):
            yield (
                'model.kind = "linear" is for regression and data.task = "classification": '
                'use model.kind = "logistic", or set data.task = "regression"'
            )
        if (kind, task) == ("logistic", "regression"):
            yield (
                'model.kind = "logistic" is for classification and data.task = "regression": '
                'use model.kind = "linear", or set data.task = "classification"'
            )
        if (self.utility.kind, task) == ("accuracy", "regression"):
            yield (
                'utility.kind = "accuracy" is not defined for data.task = "regression": '
                'use utility.kind = "exp-loss" or "negative-loss"'
            )


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
    try:
        refuse_endless(settings)
        return MarketFile.model_validate(settings)
    except BazaarError as error:
        raise BazaarError(f"{where}: {error}") from None
    except ValidationError as error:
        raise BazaarError(f"{where}: {sentences(error, MarketFile)[0]}") from None


def parse_all(settings: Mapping[str, Any], where: str = "market.toml") -> tuple[MarketFile | None, list[str]]:
    """The market, if its sections can be read at all, and every fault of its settings."""
    faults: list[str] = []
    market = None
    try:
        refuse_endless(settings)
        market = MarketFile.model_validate(settings, context={"faults": faults})
    except BazaarError as error:
        faults.append(str(error))
    except ValidationError as error:
        faults += sentences(error, MarketFile)
    return market, [f"{where}: {fault}" for fault in faults]


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
