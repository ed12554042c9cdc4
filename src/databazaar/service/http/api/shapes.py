"""What requests and answers have in common: strict requests, lists in pages.

What is shown of each object of the hub is in client/shapes.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from databazaar.client.conversion import Shape, from_row
from databazaar.service.errors import InvalidError

Item = TypeVar("Item")
Amount = Annotated[int, Field(ge=1, le=10**15, description="In minor units of the market's currency.")]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Reason = Annotated[str, Field(max_length=1000)]
After = Annotated[str | None, Query(max_length=64, description="The `next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=500, description="How many at the most.")]


class Asked(BaseModel):
    """A request: nothing that it does not know."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Refusal(BaseModel):
    error: str = Field(description="One sentence, with the remedy.")
    code: str = Field(description="The kind of refusal, for programs.")


class Page(BaseModel, Generic[Item]):
    """A part of a list; `next` is None at its end."""

    items: list[Item]
    next: str | None = None


def shown(shape: type[Shape], row: Any) -> Shape:
    """A row of the database as it is shown; what has its shape already stays as it is."""
    return row if isinstance(row, shape) else from_row(shape, row)


def paged(shape: type[Shape], rows: Sequence[Any], after: str | None, limit: int, cursor: str = "id") -> Page[Shape]:
    """The rows after the one that `after` names, in the order that they have.

    >>> from databazaar.client.shapes import Account
    >>> rows = [Account(name=name, balance=0) for name in "abc"]
    >>> found = paged(Account, rows, None, 2, "name")
    >>> len(found.items), found.next, paged(Account, rows, "b", 2, "name").next
    (2, 'b', None)
    """
    begin = 0
    if after is not None:
        places = [place for place, row in enumerate(rows) if str(getattr(row, cursor)) == after]
        if not places:
            raise InvalidError("`after` names nothing in this list: take the `next` of the page before")
        begin = places[0] + 1
    part = rows[begin : begin + limit]
    more = begin + limit < len(rows)
    return Page[Any](items=[shown(shape, row) for row in part], next=str(getattr(part[-1], cursor)) if more else None)
