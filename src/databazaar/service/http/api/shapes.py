"""What requests and answers have in common: strict requests, lists in pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from databazaar.service.errors import InvalidError

Row = TypeVar("Row")
Item = TypeVar("Item")
Amount = Annotated[int, Field(ge=1, le=10**15, description="In minor units of the market's currency.")]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Reason = Annotated[str, Field(max_length=1000)]
After = Annotated[str | None, Query(max_length=64, description="The `next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=500, description="How many at the most.")]


class Asked(BaseModel):
    """A request: nothing that it does not know."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Shown(BaseModel):
    """An answer, read from a row of the database."""

    model_config = ConfigDict(from_attributes=True)


class Refusal(Shown):
    error: str = Field(description="One sentence, with the remedy.")
    code: str = Field(description="The kind of refusal, for programs.")


class Page(Shown, Generic[Item]):
    """A part of a list; `next` is None at its end."""

    items: list[Item]
    next: str | None = None


def paged(
    rows: Sequence[Row], after: str | None, limit: int, show: Callable[[Row], Item], cursor: Callable[[Row], Any]
) -> Page[Item]:
    """The rows after the one that `after` names, in the order that they have.

    >>> found = paged([1, 2, 3], None, 2, str, lambda row: row)
    >>> found.items, found.next, paged([1, 2, 3], "2", 2, str, lambda row: row).next
    (['1', '2'], '2', None)
    """
    begin = 0
    if after is not None:
        places = [place for place, row in enumerate(rows) if str(cursor(row)) == after]
        if not places:
            raise InvalidError("`after` names nothing in this list: take the `next` of the page before")
        begin = places[0] + 1
    part = rows[begin : begin + limit]
    more = begin + limit < len(rows)
    return Page[Any](items=[show(row) for row in part], next=str(cursor(part[-1])) if more else None)
