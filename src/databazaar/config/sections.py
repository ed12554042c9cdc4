"""The sections of market.toml, one class each: names, types, bounds and defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from databazaar.errors import BazaarError


def _written_amount(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("amount", 'must be a whole number or text such as "12.50"')
    return value


def _printable(value: object) -> object:
    if isinstance(value, str) and (not value.strip() or value != value.strip() or not value.isprintable()):
        raise PydanticCustomError("printable", "must be visible text without control characters or spaces around it")
    return value


def _file_safe(value: object) -> object:
    if isinstance(value, str) and (value in {".", ".."} or "/" in value or "\\" in value):
        raise PydanticCustomError("file_safe", "must not hold a path separator (it becomes a file's name)")
    return value


Amount = Annotated[int | str, BeforeValidator(_written_amount)]
Text = Annotated[str, BeforeValidator(_printable), Field(max_length=200)]
Id = Annotated[str, BeforeValidator(_file_safe), BeforeValidator(_printable), Field(max_length=100)]
FilePath = Annotated[Path, BeforeValidator(_printable), Field(strict=False)]
Names = Annotated[tuple[Text, ...], Field(strict=False, min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]


class Section(BaseModel):
    """Types as TOML writes them, and no unknown settings."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class MarketSettings(Section):
    name: Text = "market"
    budget: Amount
    per_round: Count = Field(default=10, description="the number of accesses that a round buys")
    seed: int = Field(default=0, ge=0, lt=2**63)
    currency: Text = "credits"
    decimals: int = Field(default=0, ge=0, le=9, description="the digits after the decimal point")


class DataSettings(Section):
    holdout: FilePath = Field(description="the consumer's own CSV or Parquet file")
    target: Text = Field(description="the column to predict")
    task: Literal["classification", "regression"] = "classification"
    features: Names | None = Field(default=None, description="a list; without it all columns are used")
    categorical: Names | None = Field(default=None, description="a list; without it the text columns")


class ModelSettings(Section):
    kind: Literal["linear", "logistic", "mlp", "cnn"] = "mlp"
    hidden: Annotated[tuple[Count, ...], Field(strict=False)] = ()
    image: Annotated[tuple[Count, Count, Count] | None, Field(strict=False)] = Field(
        default=None, description="[channels, height, width]"
    )

    @model_validator(mode="before")
    @classmethod
    def _default_hidden(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("kind", "mlp") == "mlp" and "hidden" not in given:
            return {**given, "hidden": [32]}
        return given

    @model_validator(mode="after")
    def _check(self) -> ModelSettings:
        if self.kind == "mlp" and not self.hidden:
            raise BazaarError("model.hidden = [] leaves an mlp no hidden layer: write sizes such as [32]")
        if self.kind != "mlp" and self.hidden:
            raise BazaarError(_misplaced("model.hidden", "mlp", self.kind))
        if self.kind != "cnn" and self.image:
            raise BazaarError(_misplaced("model.image", "cnn", self.kind))
        return self

    def image_shape(self, width: int) -> tuple[int, int, int]:
        """Channels, height and width of a row of `width` features: `image`, or else a square of one channel.

        >>> ModelSettings(kind="cnn").image_shape(784)
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


class OracleSettings(Section):
    kind: Literal["full-gradient", "stochastic-gradient", "local-sgd"] = "local-sgd"
    step: Positive = Field(default=0.1, description="the providers' learning rate")
    batch_size: Count = 32
    epochs: Count = 1
    momentum: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False, description="0 is plain SGD")


class UtilitySettings(Section):
    kind: Literal["negative-loss", "accuracy", "exp-loss"] = "exp-loss"


class TrainingSettings(Section):
    step: Positive = Field(default=1.0, description="γ, how far the model moves along the average update")
    halve_every: Count | None = Field(default=None, description="the rounds after which the steps halve")


class SamplerSettings(Section):
    """Either `eta` and `alpha`, or `switches`, from which the theory gives both; uniform takes none."""

    kind: Literal["osmd", "uniform", "uniform-without-replacement"] = "osmd"
    eta: Positive | None = Field(default=None, description="the sampler's learning rate")
    alpha: float | None = Field(
        default=None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="the share of draws kept even over all",
    )
    switches: Count | None = Field(default=None, description="the expected changes of the best provider")

    @model_validator(mode="before")
    @classmethod
    def _default_switches(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("kind", "osmd") == "osmd":
            by_hand = any(given.get(name) is not None for name in ("eta", "alpha", "switches"))
            return given if by_hand else {**given, "switches": 1}
        return given

    @model_validator(mode="after")
    def _check(self) -> SamplerSettings:
        given = [name for name in ("eta", "alpha", "switches") if getattr(self, name) is not None]
        if self.kind != "osmd" and given:
            raise BazaarError(_misplaced(f"sampler.{given[0]}", "osmd", self.kind))
        if self.switches is not None and len(given) > 1:
            raise BazaarError(
                f"sampler.switches and sampler.{given[0]} are both given: keep eta and alpha (set by hand), "
                "or switches alone (set from theory)"
            )
        if given in (["eta"], ["alpha"]):
            other = "alpha" if given == ["eta"] else "eta"
            raise BazaarError(f"sampler.{given[0]} is given without sampler.{other}: give both, or switches alone")
        return self


class EngineSettings(Section):
    kind: Literal["loop", "vectorized", "federated"] = "vectorized"
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d{1,3})?)$")] = Field(
        default="auto", description='"auto", "cpu", "cuda" or "cuda:0"'
    )


class FederationSettings(Section):
    folder: FilePath = Field(description="the folder that `bazaar federation init` made")
    deadline: Positive = Field(default=30.0, description="the seconds that a round waits for its providers")
    wait: Positive = Field(default=60.0, description="the seconds that a run waits for providers to connect")


class LedgerSettings(Section):
    url: Annotated[str, Field(pattern=r"^[a-z][a-z0-9+_]*://")] | None = Field(
        default=None, description='an SQLAlchemy URL such as "postgresql+psycopg://host/name"'
    )


class ProviderSettings(Section):
    id: Id
    file: FilePath | None = None
    owner: Text = ""
    price: Amount = "1"
    _price_minor: int = PrivateAttr(default=0)

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


def _misplaced(setting: str, wanted: str, kind: str) -> str:
    section, _, name = setting.rpartition(".")
    return f'{setting} is for kind = "{wanted}" and {section}.kind = "{kind}": remove {name} or change the kind'
