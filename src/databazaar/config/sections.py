"""The sections of market.toml: names, types, bounds and defaults.

A section whose settings depend on its `kind` is a union with one class for each kind. The rules of the market, for
which installed packages may bring kinds of their own, are in `rules`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from databazaar.config.limits import LONGEST_WAIT, MOST_LAYERS, MOST_PER_ROUND
from databazaar.data.formats import TableFormat
from databazaar.data.schema_message import TaskKind
from databazaar.errors import BazaarError
from databazaar.learning.kinds import OptimizerKind
from databazaar.roster import PriceChange


def _written_amount(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("amount", 'must be a whole number or text such as "12.50"')
    return value


def _printable(value: object) -> object:
    if isinstance(value, str) and (not value.strip() or value != value.strip() or not value.isprintable()):
        raise PydanticCustomError("printable", "must be visible text without control characters or spaces around it")
    return value


def _printable_or_empty(value: object) -> object:
    return value if value == "" else _printable(value)


def _file_safe(value: object) -> object:
    if isinstance(value, str) and (value in {".", ".."} or "/" in value or "\\" in value):
        raise PydanticCustomError("file_safe", "must not hold a path separator (it becomes a file's name)")
    return value


def _file_name(value: object) -> object:
    if isinstance(value, str) and (len(value) > 1000 or any(len(part.encode()) > 255 for part in value.split("/"))):
        raise PydanticCustomError("file_name", "is longer than a file's name can be")
    return value


def _share_or_file(value: object) -> object:
    if isinstance(value, str):
        return Path(str(_file_name(_printable(value))))
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise PydanticCustomError("share", "must be a share of the hold-out below 1, such as 0.5, or a file in quotes")
    return float(value)


def _database(value: object) -> object:
    """Only what SQLAlchemy can read; the address itself is never repeated, as it may hold a password."""
    if not isinstance(value, str):
        return value
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        kind = make_url(value).get_backend_name()
    except (ArgumentError, ValueError):
        raise PydanticCustomError("url", "is no address of a database, or its port is no number") from None
    if kind == "sqlite":
        raise PydanticCustomError("url", "is for a database server, and an SQLite file needs no setting")
    return value


Amount = Annotated[int | str, BeforeValidator(_written_amount)]
Text = Annotated[str, BeforeValidator(_printable), Field(max_length=200)]
MaybeText = Annotated[str, BeforeValidator(_printable_or_empty), Field(max_length=200)]
Id = Annotated[str, BeforeValidator(_file_safe), BeforeValidator(_printable), Field(max_length=100)]
FilePath = Annotated[Path, BeforeValidator(_file_name), BeforeValidator(_printable), Field(strict=False)]
ShareOrFile = Annotated[float | Path, BeforeValidator(_share_or_file)]
Names = Annotated[tuple[Text, ...], Field(strict=False, min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Steps = Annotated[int, Field(ge=1, le=10**6)]
Size = Annotated[int, Field(ge=1, le=10**7)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_WAIT, allow_inf_nan=False)]


class Section(BaseModel):
    """Types as TOML writes them, and no unknown settings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _default_kind(kind: str) -> BeforeValidator:
    """Names the kind of a section that does not, so that the union finds its class."""
    return BeforeValidator(lambda given: {"kind": kind, **given} if isinstance(given, Mapping) else given)


class MarketSettings(Section):
    name: Text = "market"
    budget: Amount
    per_round: int = Field(default=10, ge=1, le=MOST_PER_ROUND, description="the number of accesses that a round buys")
    seed: int = Field(default=0, ge=0, lt=2**63)
    patience: Count = Field(default=10, description="the rounds on end that nobody may answer")
    currency: Text = "credits"
    decimals: int = Field(default=0, ge=0, le=9, description="the digits after the decimal point")
    most_per_access: Amount | None = Field(default=None, description="whoever costs more is not asked")
    most_per_round: Amount | None = Field(default=None, description="the pace: no round costs more")


class ConsumerSettings(Section):
    name: MaybeText = Field(default="", description="who buys, as statements and the ledger say it")
    train: ShareOrFile | None = Field(
        default=None, description="your own rows to start from: a share of the hold-out, or a file; 0 is none"
    )


class DataSettings(Section):
    holdout: FilePath = Field(description="the consumer's own CSV or Parquet file")
    target: Text = Field(description="the column to predict")
    task: TaskKind = "classification"
    audit: ShareOrFile | None = Field(
        default=None, description="rows that only say what it was worth: a share of the hold-out, or a file; 0 is none"
    )
    features: Names | None = Field(default=None, description="a list; without it all columns are used")
    categorical: Names | None = Field(default=None, description="a list; without it the columns of names")
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = Field(
        default=None, description="of text files; without it found out"
    )
    decimal: Literal[".", ","] | None = Field(default=None, description="of text files; without it found out")
    encoding: Text | None = Field(default=None, description='of text files, such as "cp1252"; without it found out')
    missing: Annotated[tuple[Text, ...], Field(strict=False)] = Field(
        default=(), description="a list of texts that stand for a missing value"
    )
    dates: Literal["day-first", "month-first"] | None = Field(
        default=None, description="how to read 03/04/2024; without it found out"
    )

    @property
    def format(self) -> TableFormat:
        """How the market's text files are written, as far as it is said."""
        return TableFormat(self.separator, self.decimal, self.encoding, self.missing)


class LinearSettings(Section):
    kind: Literal["linear"]


class LogisticSettings(Section):
    kind: Literal["logistic"]


class MLPSettings(Section):
    kind: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[Size, ...], Field(strict=False, max_length=MOST_LAYERS)] = (32,)

    @model_validator(mode="after")
    def _check(self) -> MLPSettings:
        if not self.hidden:
            raise BazaarError("model.hidden = [] leaves an mlp no hidden layer: write sizes such as [32]")
        return self


class CNNSettings(Section):
    kind: Literal["cnn"]
    image: Annotated[tuple[Size, Size, Size] | None, Field(strict=False)] = Field(
        default=None, description="[channels, height, width]"
    )

    def image_shape(self, width: int) -> tuple[int, int, int]:
        """Channels, height and width of a row of `width` features: `image`, or else a square of one channel.

        >>> CNNSettings(kind="cnn").image_shape(784)
        (1, 28, 28)
        """
        side = math.isqrt(width)
        shape = self.image or (1, side, side)
        if math.prod(shape) != width:
            problem = (
                f"model.image = {list(shape)} holds {math.prod(shape)} numbers"
                if self.image
                else "model.image is not given, so the features must form a square"
            )
            raise BazaarError(
                f"{problem}, and the hold-out gives {width} features: "
                "write model.image = [channels, height, width] whose product is that number"
            )
        return shape


ModelSettings = Annotated[
    LinearSettings | LogisticSettings | MLPSettings | CNNSettings,
    Field(discriminator="kind"),
    _default_kind("mlp"),
]


class LocalSGDSettings(Section):
    kind: Literal["local-sgd"] = "local-sgd"
    step: Positive = Field(default=0.1, description="the providers' learning rate")
    batch_size: Steps = 32
    epochs: Steps = 1
    steps: Steps = Field(default=64, description="the most mini-batches of an ask")
    momentum: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False, description="0 is plain SGD")
    optimizer: OptimizerKind = "sgd"
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="0 is none")

    @model_validator(mode="after")
    def _check(self) -> LocalSGDSettings:
        if self.optimizer == "adam" and self.momentum:
            raise BazaarError("oracle.momentum belongs to optimizer sgd, and adam has its own: take momentum out")
        return self


class StochasticGradientSettings(Section):
    kind: Literal["stochastic-gradient"]
    batch_size: Steps = 32


class FullGradientSettings(Section):
    kind: Literal["full-gradient"]


OracleSettings = Annotated[
    LocalSGDSettings | StochasticGradientSettings | FullGradientSettings,
    Field(discriminator="kind"),
    _default_kind("local-sgd"),
]


class UtilitySettings(Section):
    """One class for all kinds, as none has settings."""

    kind: Literal["negative-loss", "accuracy", "exp-loss"] = "exp-loss"


class TrainingSettings(Section):
    step: Positive = Field(default=1.0, description="γ, how far the model moves along the average update")
    halve_every: Count | None = Field(default=None, description="the rounds after which the steps halve")


class EngineSettings(Section):
    kind: Literal["loop", "vectorized", "ray", "federated"] = "vectorized"
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d{1,3})?)$")] = Field(
        default="auto", description='"auto", "cpu", "cuda" or "cuda:0"'
    )
    precision: Literal["float32", "bf16"] = Field(
        default="float32",
        description='"bf16" trains under autocast, faster for large models on a GPU; they are judged in float32 still',
    )
    address: Annotated[str, Field(pattern=r"^(ray://)?[A-Za-z0-9.\-\[\]:]{1,250}:\d{1,5}$")] | None = Field(
        default=None, description='for kind = "ray": "host:6379" on a machine of the cluster, or "ray://host:10001"'
    )
    workers: Count | None = Field(default=None, description='for kind = "ray": how many processes compute')
    wait: Seconds = Field(
        default=60.0,
        description='for kind = "ray": seconds that a cluster has to come back, or one at ray:// to answer',
    )

    @property
    def cluster(self) -> dict[str, Any]:
        """What only the engine ray is told."""
        return {"address": self.address, "workers": self.workers, "wait": self.wait} if self.kind == "ray" else {}


class FederationSettings(Section):
    folder: FilePath = Field(description="the folder that `bazaar federation init` made")
    deadline: Seconds = Field(
        default=30.0, description="the seconds that a provider has for an answer, from when it is asked"
    )
    wait: Seconds = Field(default=60.0, description="the seconds that a run waits for providers to connect")
    consumer: MaybeText = Field(default="", description="for whom providers are asked; without it, consumer.name")
    contract: MaybeText = Field(default="", description="by which contract they are asked, if there is one")
    compression: Literal["none", "zlib"] = Field(
        default="none", description="of large questions and answers on their way; it pays on slow lines alone"
    )

    @property
    def packs(self) -> bool:
        return self.compression != "none"


class LedgerSettings(Section):
    url: Annotated[str, BeforeValidator(_database), Field(pattern=r"^[a-z][a-z0-9+_]*://")] | None = Field(
        default=None, description='an SQLAlchemy URL such as "postgresql+psycopg://host/name"'
    )


class PriceChangeSettings(Section):
    from_round: int = Field(ge=2, le=10**9, description="the first round at this price; rounds are counted from 1")
    price: Amount


class ProviderSettings(Section):
    id: Id
    file: FilePath | None = None
    owner: Text = ""
    price: Amount = "1"
    most_accesses: Count | None = Field(default=None, description="how often a run may draw it")
    price_changes: Annotated[tuple[PriceChangeSettings, ...], Field(strict=False)] = Field(
        default=(), description='a list such as [{ from_round = 20, price = "3.00" }]'
    )
    _price_minor: int = PrivateAttr(default=0)
    _changes_minor: tuple[PriceChange, ...] = PrivateAttr(default=())

    @model_validator(mode="before")
    @classmethod
    def _default_owner(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "owner" not in given and "id" in given:
            return {**given, "owner": given["id"]}
        return given

    @property
    def price_minor(self) -> int:
        """The price per access in minor units of the market's currency."""
        return self._price_minor

    @property
    def changes_minor(self) -> tuple[PriceChange, ...]:
        """The announced prices in minor units, with rounds as the ledger counts them, from 0."""
        return self._changes_minor
