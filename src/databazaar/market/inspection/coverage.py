"""What a defence means in a market, in a few sentences: which it is, what providers wait for, and which of its rules
cannot work there, before anything is bought."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from databazaar.defence import Defence
from databazaar.defence.judge import FEWEST, FIRST_LOOK
from databazaar.defence.owner_groups import share_of
from databazaar.defence.words import comparing, names_on

FEWEST_ROWS = 20
"""With fewer in a part, a mean of them has no standard error that one could rely on."""
CHANGES = 6
"""So many of the model's last changes are looked at as public knowledge, and beside them what it changed since rounds
0, 1, 2, 4, 8, …: as many as there is room for."""
ROOM = 16
"""For each of these changes a vector must have so many dimensions: else honest updates would lie in their span too."""
FEW_DIMENSIONS = 2 * ROOM
"""In fewer, honest updates lie in a public span, and are like one another, by chance."""
HELD = (
    f"pay beyond the floor (what exploration alone brings) waits until {FIRST_LOOK} or more answers have shown that "
    "there is data behind them; what waits at the end "
)
PAID_IN_DOUBT = "is paid, but to those who were judged and have shown nothing"
HARMFUL = "is paid, but to those whose rows brought less than nothing"
RETURNED_IN_DOUBT = "comes back to you, but for those who have shown something, or whom no test could judge"
NO_DEFENCE = 'none, so copies, leaks and noise are paid like data: [defence] with kind = "standard" switches it on'


@dataclass(frozen=True)
class MarketShape:
    """The market that a defence is for. `rows` score updates, 0 where the utility is a function of the consumer's own;
    they, the `parameters` of the model and the `accesses` of the run are None where nobody has looked."""

    owners: Sequence[str]
    per_round: int
    rows: int | None = None
    parameters: int | None = None
    accesses: int | None = None


def in_words(defence: Defence) -> str:
    """Its name, or its rules.

    >>> in_words(Defence.named("strict")), in_words(Defence(owners=True, clip=2.0))
    ('strict', 'rules of your own (owners, clip 2)')
    """
    if defence.name != "own":
        return defence.name
    usual, rules = Defence().settings(), []
    for name, value in defence.settings().items():
        if value != usual[name]:
            rules.append(f"{name}{'' if value is True else ' false' if value is False else f' {value:g}'}")
    return f"rules of your own ({', '.join(rules)})"


def meaning(defence: Defence) -> str:
    """Which defence it is, and what it means for the providers."""
    if not defence.holds_back:
        return in_words(defence)
    paid = HARMFUL if defence.rows else PAID_IN_DOUBT
    return f"{in_words(defence)}: {HELD}{paid if defence.doubt else RETURNED_IN_DOUBT}"


def blind_spots(defence: Defence, place: MarketShape) -> tuple[str, ...]:
    """The rules that cannot work in this market, why not, and what would help."""
    every = (_two_parts, _public_changes, _others, _answers, _cap)
    return tuple(sentence for rule in every for sentence in rule(defence, place))


def _two_parts(defence: Defence, place: MarketShape) -> Iterator[str]:
    if place.rows is None or place.rows >= 2 * FEWEST_ROWS or not (rules := names_on(defence, "screen", "leak")):
        return
    if defence.rows:
        if place.rows < FEWEST_ROWS:
            yield f"{rules} cannot work: {place.rows:,} rows are too few to find copies of: bring a larger hold-out"
        return
    if place.rows:
        yield (
            f"{rules} cannot work: {place.rows:,} rows score updates, and two parts of them need {2 * FEWEST_ROWS} or "
            "more: bring a larger hold-out"
        )
    else:
        yield f"{rules} cannot work: your utility is a function, and they need the loss of each row of a hold-out"


def _public_changes(defence: Defence, place: MarketShape) -> Iterator[str]:
    if place.parameters is None or place.parameters >= ROOM * CHANGES or defence.rows:
        return
    size, seen = f"a model of {place.parameters:,} parameters", place.parameters // ROOM
    if place.parameters < FEW_DIMENSIONS:
        if rules := names_on(defence, "new", "alike"):
            yield f"{rules} cannot work: in {size} honest updates are alike by chance ({FEW_DIMENSIONS} are enough)"
    elif names_on(defence, "new"):
        last = f"only {seen} of the last {CHANGES}"
        yield f"new looks at {last} public changes of the model: {size} has no room for them ({ROOM * CHANGES} have)"


def _others(defence: Defence, place: MarketShape) -> Iterator[str]:
    """Most samplers ask fewer than per_round in many rounds. That matters most where doubt is not paid."""
    asked, rules = _asked(defence, place), comparing(defence)
    enough = _arms(defence, place) >= max(FEWEST, asked + 1)
    mend = "raise per_round" if enough else "find more providers, of other owners"
    if asked < FEWEST and rules:
        yield (
            f"{rules} cannot work: a round asks {asked}, and answers are compared with those of {FEWEST - 1} others or "
            f"more: {mend}"
        )
    elif asked == FEWEST and defence.holds_back and not defence.doubt:
        yield (
            f"data may hardly work: a round asks {FEWEST} at the most, and only rounds that all {FEWEST} answer are "
            f"compared: {mend}"
        )


def _answers(defence: Defence, place: MarketShape) -> Iterator[str]:
    if place.accesses is None or _asked(defence, place) < FEWEST or not (rules := names_on(defence, "data", "alike")):
        return
    each = place.accesses // len(place.owners)
    if each < FIRST_LOOK:
        waits = defence.holds_back and not defence.doubt
        held_back = ", or set doubt = true, because else nobody is paid beyond the floor" if waits else ""
        yield (
            f"{rules} will hardly work: there are about {each} answers of each provider to be had, and it takes "
            f"{FIRST_LOOK}: raise the budget{held_back}"
        )


def _cap(defence: Defence, place: MarketShape) -> Iterator[str]:
    arms = _arms(defence, place)
    if defence.cap is not None and defence.cap < 1 and share_of(defence.cap, arms) == 1:
        yield f"cap cannot work: with {arms} to choose from there would be no choice left: find more providers"


def _arms(defence: Defence, place: MarketShape) -> int:
    return len(set(place.owners)) if defence.owners else len(place.owners)


def _asked(defence: Defence, place: MarketShape) -> int:
    """How many answer in a round at the most: one of each arm."""
    return min(place.per_round, _arms(defence, place))
