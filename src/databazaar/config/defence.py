"""The section [defence] of market.toml: a set of rules by name, and each rule by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from databazaar.config.sections import Section
from databazaar.defence import Defence
from databazaar.defence.settings import BOUNDS


def _number_or_false(value: object, info: ValidationInfo) -> object:
    """TOML has no null: `false` switches a rule off whose setting is a number."""
    if value is None or value is False:
        return value
    rule = info.field_name or ""
    low, high = BOUNDS[rule]
    number = isinstance(value, int | float) and value is not True and low < value <= high  # NaN is not
    if not number:
        words = "must be a number above {low} and up to {high}, such as {usual}, or false, which switches the rule off"
        usual = getattr(Defence.named("standard"), rule)
        raise PydanticCustomError("rule_or_false", words, {"low": f"{low:g}", "high": f"{high:g}", "usual": usual})
    return value


def _true_or_false(value: object) -> object:
    if value is not None and not isinstance(value, bool):
        raise PydanticCustomError("true_or_false", "must be true or false")
    return value


Number = Annotated[float | bool | None, BeforeValidator(_number_or_false)]
Switch = Annotated[bool | None, BeforeValidator(_true_or_false)]


class DefenceSettings(Section):
    """What is not set is as the `kind` has it."""

    kind: Literal["none", "standard", "strict"] = Field(description='the rules to begin with, such as "standard"')
    owners: Switch = Field(default=None, description="whether the providers of one owner are drawn as one")
    alike: Number = Field(default=None, description="the cosine from which on answers are those of one owner")
    clip: Number = Field(default=None, description="the longest update, in usual lengths")
    screen: Number = Field(default=None, description="the harm that is left out of the average, in standard errors")
    leak: Number = Field(default=None, description="the chance that an honest market has a false alarm")
    new: Number = Field(default=None, description="the least share of an update that is not public")
    data: Number = Field(default=None, description="what answers must show before all is paid, in standard errors")
    cap: Number = Field(default=None, description="the largest share of the budget for one owner")
    pay_left_out: Switch = Field(default=None, description="whether answers that are left out are paid in full")
    doubt: Switch = Field(default=None, description="whether who has shown nothing either way is paid in the end")

    @property
    def chosen(self) -> Defence:
        """The set of rules by its name, with what is set beside it."""
        given: dict[str, Any] = {n: v for n, v in self.model_dump(exclude={"kind"}).items() if v is not None}
        off = {name: None for name, value in given.items() if name in BOUNDS and value is False}
        return replace(Defence.named(self.kind), **{**given, **off})
