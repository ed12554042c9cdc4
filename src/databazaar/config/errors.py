"""Pydantic's list of errors as sentences, each about one setting of market.toml."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import Any, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

_SECRET = {"ledger.url"}
_TYPES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text in quotes",
    "path_type": "must be a path in quotes",
    "tuple_type": "must be a list",
    "model_type": "must be a section",
    "model_attributes_type": "must be a section",
    "union_tag_not_found": "must be a section",
    "string_pattern_mismatch": "is not understood",
}


@dataclass(frozen=True)
class Place:
    """Where an error is: the setting as a user would write it, and what is known of it.

    `section` is the class that has the setting, `others` are those of the section's other kinds, and `field` is the
    setting itself, or the nearest one around it.
    """

    setting: str
    section: type[BaseModel] | None
    others: tuple[type[BaseModel], ...]
    field: FieldInfo | None


def sentences(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """What is wrong with each setting, and the remedy; settings that do not exist come first."""
    details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
    return [_sentence(detail, model) for detail in details]


def _sentence(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind, location, given = detail["type"], detail["loc"], detail["input"]
    place = find_place(model, location)
    if kind == "union_tag_invalid":
        place, given = replace(place, setting=f"{place.setting}.kind"), given["kind"]
    if kind == "extra_forbidden":
        return _unknown(place, str(location[-1]))
    meaning = place.field.description if place.field else None
    if kind == "missing":
        return _missing(place, location, meaning)
    if kind == "rule":
        return f"{place.setting}: {detail['msg']}"
    shown = "" if place.setting in _SECRET or isinstance(given, dict) else f" = {_short(given)}"
    if kind == "sentence":
        return f"{place.setting}{shown} {detail['msg']}"
    return f"{place.setting}{shown} {_problem(detail, place.field)}: change it{f' ({meaning})' if meaning else ''}"


def find_place(model: type[BaseModel], location: tuple[int | str, ...]) -> Place:
    """The place that pydantic's location leads to: through lists, and through unions, where it names the kind.

    >>> from databazaar.config.market_file import MarketFile
    >>> find_place(MarketFile, ("stops", 2, "no-progress", "rounds")).setting
    'stops[2].rounds'
    """
    section: type[BaseModel] | None = model
    choices: tuple[type[BaseModel], ...] = ()
    others: tuple[type[BaseModel], ...] = ()
    setting, field = "", None
    for depth, part in enumerate(location):
        if isinstance(part, int):
            setting += f"[{part}]"
        elif len(choices) > 1:
            section = next((choice for choice in choices if part in kinds_of(choice)), choices[-1])
            others = tuple(choice for choice in choices if choice is not section)
            choices = ()
        else:
            setting += f".{part}" if setting else part
            found = _fields(section).get(part) if section else None
            field = found or field
            if depth == len(location) - 1 or found is None:
                break
            choices = sections_in(found.annotation)
            section, others = (choices[0] if len(choices) == 1 else None), ()
    return Place(setting, section, others, field)


def sections_in(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The classes of a section: one, or one for each kind."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(found for part in get_args(annotation) for found in sections_in(part))


def kinds_of(section: type[BaseModel]) -> tuple[str, ...]:
    """The kinds that a class of settings is for; none where it takes any other."""
    return get_args(section.model_fields["kind"].annotation) if "kind" in section.model_fields else ()


def _unknown(place: Place, name: str) -> str:
    parent = place.setting.removesuffix(f".{name}")
    kinds = [kind for other in place.others if name in _fields(other) for kind in kinds_of(other)]
    if kinds and place.section:
        wanted = " or ".join(f'"{kind}"' for kind in kinds)
        return (
            f'{place.setting} is for kind = {wanted} and {parent}.kind = "{kinds_of(place.section)[0]}": '
            f"remove {name} or change the kind"
        )
    known = list(_fields(place.section)) if place.section else []
    close = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean `{close[0]}`?" if close else f"use {', '.join(known)}, or remove it"
    return f"{place.setting} is not a setting: {remedy}"


def _missing(place: Place, location: tuple[int | str, ...], meaning: str | None) -> str:
    parent, _, name = place.setting.rpartition(".")
    if isinstance(location[-1], int):
        return f"{place.setting.rpartition('[')[0]} has too few entries: write {meaning}"
    remedy = f"add `{name}` to {parent}" if parent else f"add a [{name}] section"
    return f"{place.setting} is missing{f' ({meaning})' if meaning else ''}: {remedy}"


def _problem(detail: Any, field: FieldInfo | None) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind]
    if kind == "union_tag_invalid":
        return f"must be one of {context['expected_tags']}"
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(' or ', ', ')}"
    if field is not None and kind in {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}:
        return _bounds(field) or str(detail["msg"])
    if kind in {"too_short", "too_long"}:
        return f"has {context['actual_length']} entries, which is {kind.replace('_', ' ')}"
    return str(detail["msg"])


def _bounds(field: FieldInfo) -> str | None:
    """
    >>> from pydantic import Field
    >>> _bounds(Field(ge=0, le=1)), _bounds(Field(ge=0, lt=1)), _bounds(Field(gt=0))
    ('must be between 0 and 1', 'must be at least 0 and below 1', 'must be above 0')
    """
    marks = _marks(field)
    low = next((mark for mark in marks if isinstance(mark, Ge | Gt)), None)
    high = next((mark for mark in marks if isinstance(mark, Le | Lt)), None)
    if isinstance(low, Ge) and isinstance(high, Le):
        return f"must be between {low.ge} and {high.le}"
    words = {
        Ge: lambda mark: f"at least {mark.ge}",
        Gt: lambda mark: f"above {mark.gt}",
        Le: lambda mark: f"at most {mark.le}",
        Lt: lambda mark: f"below {mark.lt}",
    }
    parts = [words[type(mark)](mark) for mark in (low, high) if mark is not None]
    return f"must be {' and '.join(parts)}" if parts else None


def _marks(field: FieldInfo) -> list[Any]:
    """The bounds of a field, which pydantic keeps beside the type or inside an `X | None`."""
    nested = [mark for part in get_args(field.annotation) for mark in getattr(part, "__metadata__", ())]
    inner = [mark for info in nested for mark in (info.metadata if isinstance(info, FieldInfo) else [info])]
    return [*field.metadata, *inner]


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
