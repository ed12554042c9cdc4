"""Pydantic's list of errors as one sentence about one setting of market.toml."""

from __future__ import annotations

import difflib
from typing import Any, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

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
    "string_pattern_mismatch": "is not understood",
}


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with the first setting that is, and the remedy."""
    details = error.errors(include_url=False)
    first = next((detail for detail in details if detail["type"] == "extra_forbidden"), details[0])
    location = first["loc"]
    setting = dotted(location)
    if first["type"] == "extra_forbidden":
        return _unknown(setting, location, model)
    field = _field(model, location)
    meaning = field.description if field and field.description else None
    if first["type"] == "missing" and isinstance(location[-1], int):
        return f"{dotted(location[:-1])} has too few entries: write {meaning}"
    if first["type"] == "missing":
        section = dotted(location[:-1]) or "the top of the file"
        remedy = f"add `{location[-1]}` to {section}" if len(location) > 1 else f"add a [{setting}] section"
        return f"{setting} is missing{f' ({meaning})' if meaning else ''}: {remedy}"
    shown = "" if setting in _SECRET or isinstance(first["input"], dict) else f" = {_short(first['input'])}"
    return f"{setting}{shown} {_problem(first, field)}: change it{f' ({meaning})' if meaning else ''}"


def dotted(location: tuple[int | str, ...]) -> str:
    """
    >>> dotted(("providers", 2, "price"))
    'providers[2].price'
    """
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def _unknown(setting: str, location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    parent = _model_at(model, location[:-1])
    known = [field.alias or name for name, field in parent.model_fields.items()] if parent else []
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    remedy = f"did you mean `{close[0]}`?" if close else f"use {', '.join(known)}, or remove it"
    return f"{setting} is not a setting: {remedy}"


def _problem(detail: Any, field: FieldInfo | None) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind]
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(' or ', ', ')}"
    if kind in {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}:
        return _bounds(field) or str(detail["msg"])
    if kind in {"too_short", "too_long"}:
        return f"has {context['actual_length']} entries, which is {kind.replace('_', ' ')}"
    return str(detail["msg"])


def _bounds(field: FieldInfo | None) -> str | None:
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


def _marks(field: FieldInfo | None) -> list[Any]:
    """The bounds of a field, which pydantic keeps beside the type or inside an `X | None`."""
    if field is None:
        return []
    nested = [mark for part in get_args(field.annotation) for mark in getattr(part, "__metadata__", ())]
    inner = [mark for info in nested for mark in (info.metadata if isinstance(info, FieldInfo) else [info])]
    return [*field.metadata, *inner]


def _field(model: type[BaseModel], location: tuple[int | str, ...]) -> FieldInfo | None:
    names = [part for part in location if isinstance(part, str)]
    for depth in range(len(names), 0, -1):
        parent = _model_at(model, tuple(names[: depth - 1]))
        if parent is not None:
            found = _fields(parent).get(names[depth - 1])
            if found is not None:
                return found
    return None


def _model_at(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The section that a location leads to, through lists such as [[providers]]."""
    for part in location:
        if isinstance(part, int):
            continue
        field = _fields(model).get(part)
        inner = _section(field.annotation) if field else None
        if inner is None:
            return None
        model = inner
    return model


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _section(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section(part))), None)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
