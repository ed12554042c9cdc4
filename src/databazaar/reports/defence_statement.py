"""What statements say of a market's defence: to the consumer of everybody, to a provider of itself alone."""

from __future__ import annotations

import math
from typing import Any

from databazaar.defence.words import ANOTHER
from databazaar.ledger.figures import Curve
from databazaar.runs.defended import Defended, Ruling, Stand
from databazaar.runs.report import Report

SHARED = "it shares an arm with another provider, and what was held back has been earned once already"
AMOUNTS = ("held_back", "released", "returned", "cut")
"""Of everybody's pay, where there is a defence."""


def defence_dict(report: Report) -> dict[str, Any]:
    """All verdicts as plain data, for the consumer; nothing where the market has no defence."""
    defended = report.defended
    if defended is None:
        return {}
    rulings = [{"provider": one.provider, **_verdict(one), "like": one.other} for one in defended.rulings]
    return {"defence": {"rules": defended.defence.settings(), "verdicts": rulings}}


def standing_columns(report: Report) -> list[str]:
    """The columns of a statement that only a defence has."""
    return [] if report.defended is None else ["standing", "left_out", "not_new", *AMOUNTS]


def standing_of(report: Report, provider: str) -> dict[str, Any]:
    """How one provider stands, and what became of its pay; nothing where the market has no defence."""
    stand = _stand(report.defended, provider)
    if stand is None:
        return {}
    amounts = zip(AMOUNTS, (stand.held, stand.released, stand.returned, stand.cut), strict=True)
    return {"standing": stand.standing, "left_out": stand.left_out, "not_new": stand.void, **dict(amounts)}


def own_defence(report: Report, provider: str) -> dict[str, Any]:
    """What a provider's own statement says: how it stands, every verdict about it with the figure that it rests on, and
    how to object. It names no other provider, and no figure but the provider's own."""
    defended, stand = report.defended, _stand(report.defended, provider)
    if defended is None or stand is None:
        return {}
    stands, money = standing_of(report, provider), report.currency.format
    amounts = {f"{name}_text": money(stands[name]) for name in AMOUNTS}
    curve = defended.curves[defended.stands.index(stand)]
    verdicts = [
        {**_verdict(one, ANOTHER), **_evidence(one, curve), "how_to_object": objection(report, one)}
        for one in defended.of(provider)
    ]
    told = {**stands, **amounts, "shares_an_arm": bool(stand.shares_with)}
    return {"defence": {**told, "verdicts": verdicts, "settlements": _settlements(defended, provider)}}


def objection(report: Report, ruling: Ruling) -> str:
    """How to object to a verdict, in one sentence; being cleared is nothing to object to."""
    if ruling.what == "cleared":
        return ""
    whom = report.consumer or "the consumer"
    whom += f", who buys in the market {report.market}," if report.market else ""
    when = "the close" if ruling.round is None else f"round {ruling.round}"
    run = f"run {report.run}, " if report.run else ""
    return (
        f"To object, write to {whom} quoting {run}{when}, and entry {ruling.entry} of the ledger with the hash "
        f"{ruling.hash}; `bazaar audit` shows whether the verdict follows from the figure, but the figure itself is "
        "the arbiter's word: ask for it to be measured again from the answers that you gave."
    )


def _stand(defended: Defended | None, provider: str) -> Stand | None:
    stands = () if defended is None else defended.stands
    return next((one for one in stands if one.provider == provider), None)


def _verdict(one: Ruling, like: str | None = None) -> dict[str, Any]:
    return {
        "round": one.round,
        "verdict": one.title,
        "rule": one.what,
        "figure": one.figure,
        "limit": one.limit,
        "answers": one.answers,
        "why": one.sentence(like),
        "released": one.released,
        "returned": one.returned,
        "entry": one.entry,
        "hash": one.hash,
    }


def _settlements(defended: Defended, provider: str) -> list[dict[str, Any]]:
    """Every time that held-back pay of a provider was settled, and why."""
    mergers = {one.round: SHARED for one in defended.merged}
    verdicts = {one.round: one.sentence(ANOTHER) for one in defended.of(provider) if one.what != "alike"}
    why = {**mergers, **verdicts}
    return [
        {
            "round": one.round,
            "released": one.released,
            "amount": one.amount,
            "why": why.get(one.round, "the run ended, and nothing spoke against it"),
        }
        for one in defended.freed
        if one.provider == provider
    ]


def _evidence(one: Ruling, curve: Curve) -> dict[str, Any]:
    """The provider's own figures up to the verdict, answer by answer."""
    names = {"leak": ("leak",), "alike": ()}.get(one.what, ("signal", "error"))
    until = len(curve) if one.round is None else int((curve.rounds <= one.round).sum())
    figures = {name: _plain(getattr(curve, name)[:until].tolist()) for name in names}
    return {"evidence": {"rounds": curve.rounds[:until].tolist(), **figures}} if figures else {}


def _plain(figures: list[float]) -> list[float | None]:
    return [None if math.isnan(figure) else figure for figure in figures]
