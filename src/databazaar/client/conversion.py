"""Objects of a hub (client/shapes.py) from rows of its database, and from and to JSON."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Hashable
from dataclasses import asdict, is_dataclass
from functools import cache, partial
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

Shape = TypeVar("Shape")


def from_row(shape: type[Shape], row: object, **more: Any) -> Shape:
    """The attributes of a row that the shape has, and what `more` is given beside them."""
    return shape(**{name: getattr(row, name) for name in _readers(cast(Hashable, shape)) if name not in more}, **more)


def from_json(shape: type[Shape], told: Any) -> Shape:
    """What an answer of the API says; what this version does not know of it is left out. A KeyError, TypeError or
    ValueError where it is not such an answer.

    >>> from databazaar.client.shapes import Account
    >>> from_json(Account, {"name": "fees", "balance": 3, "later": True})
    Account(name='fees', balance=3)
    """
    return shape(**{name: read(told[name]) for name, read in _readers(cast(Hashable, shape)).items()})


def to_json(answer: Any) -> str:
    """
    >>> from databazaar.client.shapes import Account
    >>> to_json([Account(name="fees", balance=3)])
    '[{"name": "fees", "balance": 3}]'
    """
    return json.dumps(answer, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return asdict(value)


@cache
def _readers(shape: Any) -> dict[str, Callable[[Any], Any]]:
    return {name: _reader(hint) for name, hint in get_type_hints(shape).items()}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """How a value of this type is read from JSON."""
    if get_origin(hint) is list:
        one = _reader(get_args(hint)[0])
        return lambda value: [one(item) for item in value]
    if dt.datetime in (hint, *get_args(hint)):
        return lambda value: None if value is None else dt.datetime.fromisoformat(value)
    return partial(from_json, hint) if is_dataclass(hint) and isinstance(hint, type) else lambda value: value
