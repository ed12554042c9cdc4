"""The sections of market.toml for the rules of the market: [sampler], [aggregator], [payment] and [[stops]].

Our own kinds have a class each, as elsewhere. Any other kind that the registry knows, from an installed package or
from this process, takes the settings that its class takes: the rule is built to find out. No package is loaded
unless its kind is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator
from pydantic_core import PydanticCustomError

from databazaar.aggregators.protocol import AGGREGATORS
from databazaar.config.sections import Count, Finite, Positive, Section, Text
from databazaar.errors import BazaarError
from databazaar.payments.protocol import PAYMENTS
from databazaar.registry import Registry
from databazaar.samplers.protocol import SAMPLERS
from databazaar.stops.protocol import STOPS

REGISTERED = "registered"
"""The tag of a kind that has no class here."""


def _plain(value: Any) -> Any:
    """Refuses what a run's folder could not keep as JSON: dates, and numbers that are not finite."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        words = "must be text, a finite number, true or false, or a list or table of those"
        raise PydanticCustomError("plain", words) from None
    return value


Plain = Annotated[Any, BeforeValidator(_plain)]
Minority = Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)]


class RegisteredRule(Section, extra="allow"):
    """A rule without a class of its own here. `named` are the kinds of its section that have one."""

    registry: ClassVar[Registry]
    named: ClassVar[tuple[str, ...]]
    refused: ClassVar[Mapping[str, str]] = {}
    __pydantic_extra__: dict[str, Plain]
    kind: Text

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        others = [other for other in cls.registry.kinds() if other not in {*cls.named, *cls.refused}]
        if kind in others:
            return kind
        known = ", ".join(map(repr, [*cls.named, *others]))
        unknown = f"must be one of {known}: change it, or install the package that brings it"
        raise PydanticCustomError("sentence", "{reason}", {"reason": cls.refused.get(kind, unknown)})

    @model_validator(mode="after")
    def _can_be_built(self) -> RegisteredRule:
        try:
            self.registry.build(self.model_dump())
        except BazaarError as error:
            reason = str(error).removeprefix(f"{self.registry.noun} ")
        except Exception as error:  # whatever somebody else's package raises
            text = " ".join(str(error).split())[:200]
            reason = f"{self.kind!r}: {text or type(error).__name__}: correct its settings"
        else:
            return self
        raise PydanticCustomError("rule", "{reason}", {"reason": reason})


def _by_kind(rule: type[RegisteredRule], default: str | None = None) -> Discriminator:
    """The union's choice: the class of a kind that has one, else `rule`. None where there is no section at all."""

    def tag(given: Any) -> str | None:
        if isinstance(given, Mapping):
            kind = given.get("kind", default)
        elif isinstance(given, Section):
            kind = getattr(given, "kind", None)
        else:
            return None
        return kind if kind in rule.named else REGISTERED

    return Discriminator(tag)


class ThriftySettings(Section):
    kind: Literal["thrifty"] = "thrifty"
    alpha: float = Field(
        default=0.01, gt=0, le=1, allow_inf_nan=False, description="the share of the money kept even over all"
    )


class OSMDSettings(Section):
    """Either `eta` and `alpha`, or `switches`, from which the theory gives both."""

    kind: Literal["osmd"]
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
        if not isinstance(given, Mapping) or any(given.get(name) is not None for name in ("eta", "alpha", "switches")):
            return given
        return {**given, "switches": 1}

    @model_validator(mode="after")
    def _check(self) -> OSMDSettings:
        given = [name for name in ("eta", "alpha", "switches") if getattr(self, name) is not None]
        if self.switches is not None and len(given) > 1:
            raise BazaarError(
                f"sampler.switches and sampler.{given[0]} are both given: keep eta and alpha (set by hand), "
                "or switches alone (set from theory)"
            )
        if given in (["eta"], ["alpha"]):
            other = "alpha" if given == ["eta"] else "eta"
            raise BazaarError(f"sampler.{given[0]} is given without sampler.{other}: give both, or switches alone")
        return self


class UniformSettings(Section):
    kind: Literal["uniform"]


class UniformWithoutReplacementSettings(Section):
    kind: Literal["uniform-without-replacement"]


class RegisteredSampler(RegisteredRule):
    registry = SAMPLERS
    named = ("thrifty", "osmd", "uniform", "uniform-without-replacement")


SamplerSettings = Annotated[
    Annotated[ThriftySettings, Tag("thrifty")]
    | Annotated[OSMDSettings, Tag("osmd")]
    | Annotated[UniformSettings, Tag("uniform")]
    | Annotated[UniformWithoutReplacementSettings, Tag("uniform-without-replacement")]
    | Annotated[RegisteredSampler, Tag(REGISTERED)],
    _by_kind(RegisteredSampler, default="thrifty"),
]


class MeanSettings(Section):
    kind: Literal["mean"] = "mean"


class MedianSettings(Section):
    kind: Literal["median"]


class TrimmedMeanSettings(Section):
    kind: Literal["trimmed-mean"]
    share: Minority = Field(default=0.3, description="the share of updates that is cut off on each side")


class KrumSettings(Section):
    kind: Literal["krum"]
    share: Minority = Field(default=0.3, description="the share of updates that may be arbitrary")
    keep: Count | None = Field(default=None, description="how many updates are averaged; without it all but that share")


class GeometricMedianSettings(Section):
    kind: Literal["geometric-median"]
    iterations: int = Field(default=8, ge=1, le=1000, description="the steps of Weiszfeld's algorithm")


class CentredClippingSettings(Section):
    kind: Literal["centred-clipping"]
    radius: Positive = Field(default=1.0, description="how far an update counts, in median distances")


class FLTrustSettings(Section):
    kind: Literal["fltrust"]


class RegisteredAggregator(RegisteredRule):
    registry = AGGREGATORS
    named = ("mean", "median", "trimmed-mean", "krum", "geometric-median", "centred-clipping", "fltrust")


AggregatorSettings = Annotated[
    Annotated[MeanSettings, Tag("mean")]
    | Annotated[MedianSettings, Tag("median")]
    | Annotated[TrimmedMeanSettings, Tag("trimmed-mean")]
    | Annotated[KrumSettings, Tag("krum")]
    | Annotated[GeometricMedianSettings, Tag("geometric-median")]
    | Annotated[CentredClippingSettings, Tag("centred-clipping")]
    | Annotated[FLTrustSettings, Tag("fltrust")]
    | Annotated[RegisteredAggregator, Tag(REGISTERED)],
    _by_kind(RegisteredAggregator, default="mean"),
]


class PricePerAccessSettings(Section):
    kind: Literal["price-per-access"] = "price-per-access"


class PricePerRowSettings(Section):
    """The rows are counted when the files are read."""

    kind: Literal["price-per-row"]


class RegisteredPayment(RegisteredRule):
    registry = PAYMENTS
    named = ("price-per-access", "price-per-row")


PaymentSettings = Annotated[
    Annotated[PricePerAccessSettings, Tag("price-per-access")]
    | Annotated[PricePerRowSettings, Tag("price-per-row")]
    | Annotated[RegisteredPayment, Tag(REGISTERED)],
    _by_kind(RegisteredPayment, default="price-per-access"),
]


class TargetUtilitySettings(Section):
    kind: Literal["target-utility"]
    utility: Finite = Field(description="the utility at which the run ends")


class NoProgressSettings(Section):
    kind: Literal["no-progress"]
    rounds: int = Field(default=30, ge=4, le=10**9, description="the rounds that are looked at")
    least: Finite = Field(default=0.0, description="the rise in utility that must be exceeded")
    errors: float = Field(
        default=1.0, ge=0, allow_inf_nan=False, description="by how many of its own standard errors it must be"
    )


class RegisteredStop(RegisteredRule):
    registry = STOPS
    named = ("target-utility", "no-progress")
    refused: ClassVar[Mapping[str, str]] = {
        "budget": "is a stop of every run: remove it",
        "patience": "is a stop of every run: remove it, and set market.patience instead",
    }


StopSettings = Annotated[
    Annotated[TargetUtilitySettings, Tag("target-utility")]
    | Annotated[NoProgressSettings, Tag("no-progress")]
    | Annotated[RegisteredStop, Tag(REGISTERED)],
    _by_kind(RegisteredStop),
]
