"""The figures of a round that verdicts are made of, as the ledger holds them: one for each provider that was asked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from databazaar.codes import Code
from databazaar.errors import BazaarError

Figures = Sequence[float | None]
NOT_NEW = Code("not-new")
"""Why an answer is void that is not new to anybody."""
LISTS = ("length", "harm", "leak", "signal", "error")
NOT_WRITTEN = "the findings of a round are not what a ledger writes"


@dataclass(frozen=True)
class Findings:
    """What the arbiter has measured in a round, of those asked in the order of the draws; None where a test does not
    speak. All of it needs the updates or the hold-out, so it is the arbiter's word; what follows from it is not.

    `length`: of the update, in usual lengths. `harm`: by how many standard errors it worsens the part of the hold-out
    on which it does worst. `leak`: by how many its gains so far differ between the two parts, beside those of others.
    `signal`: what persists in its answers, in units of what does in those of an ordinary provider, and `error` its
    standard error. `alike`: pairs of places whose answers were compared, with the cosine of what persists in them.
    """

    length: Figures = ()
    harm: Figures = ()
    leak: Figures = ()
    signal: Figures = ()
    error: Figures = ()
    alike: Sequence[tuple[int, int, float]] = field(default=())

    def body(self) -> dict[str, Any]:
        """As the ledger writes it: what was not measured is left out."""
        every: dict[str, Figures] = {name: getattr(self, name) for name in LISTS}
        lists = {name: list(figures) for name, figures in every.items() if any(one is not None for one in figures)}
        return {**lists, **({"alike": [list(pair) for pair in self.alike]} if self.alike else {})}

    @classmethod
    def of(cls, body: dict[str, Any], asked: int, providers: int) -> Findings:
        """The findings that `body` wrote of a round in which so many were asked, from anybody."""
        if not isinstance(body, dict):
            raise BazaarError(NOT_WRITTEN)
        known = {name: body.get(name, ()) for name in LISTS}
        pairs = body.get("alike", [])
        fine = set(body) <= {*LISTS, "alike"} and all(
            isinstance(figures, list | tuple)
            and len(figures) in (0, asked)
            and all(figure is None or _is_number(figure) for figure in figures)
            for figures in known.values()
        )
        fine = fine and isinstance(pairs, list) and all(_is_pair(pair, providers) for pair in pairs)
        if not fine:
            raise BazaarError(NOT_WRITTEN)
        return cls(**known, alike=[(one, other, float(cosine)) for one, other, cosine in pairs])

    def at(self, name: str, place: int) -> float | None:
        """The figure of that name of who was asked at that place."""
        figures: Figures = getattr(self, name)
        return figures[place] if figures else None


def _is_pair(pair: Any, providers: int) -> bool:
    if not isinstance(pair, list | tuple) or len(pair) != 3:
        return False
    one, other, cosine = pair
    return type(one) is type(other) is int and 0 <= one < other < providers and _is_number(cosine)


def _is_number(figure: Any) -> bool:
    """Finite, and no whole number that no float can hold: comparisons with NaN are false, whatever a limit says."""
    return type(figure) in (int, float) and abs(figure) <= sys.float_info.max
