"""The rules and the verdicts of a defence in words, for people who play by them."""

from __future__ import annotations

from databazaar.codes import Code
from databazaar.defence.settings import Defence

TITLES = {
    "leak": "flagged",
    "no-data": "flagged",
    "cleared": "cleared",
    "alike": "merged",
    "in-doubt": "not cleared",
}
"""What a verdict comes to for the provider, by its rule."""
ANOTHER = "another provider"
"""Whom a provider is told that its answers are like."""
COMPARING = ("leak", "new", "data", "alike")
"""The rules that compare the answers of a round, and so need three or more of them."""


def comparing(defence: Defence) -> str:
    """The rules that are on and compare the answers of a round."""
    return names_on(defence, *(("data",) if defence.rows else COMPARING))


def names_on(defence: Defence, *names: str) -> str:
    """Those of these rules that are on, in a list for people.

    >>> names_on(Defence.named("standard"), *COMPARING)
    'leak, new, data and alike'
    """
    on = [name for name in names if getattr(defence, name) is not None]
    return " and ".join([", ".join(on[:-1]), on[-1]] if len(on) > 1 else on)


def rules_of(defence: Defence) -> list[tuple[str, str]]:
    """The setting and the meaning of every rule that is on.

    >>> rules_of(Defence(clip=4.0))
    [('clip', 'No update counts for more than 4 times the usual length.')]
    """
    given = defence.settings()
    numbers = {
        name: 100.0 * value if name in ("leak", "new", "cap") else value
        for name, value in given.items()
        if type(value) is not bool and value is not None
    }
    words = {**WORDS, **(OF_ROWS if defence.rows else {})}
    found = [(name, words[name].format(numbers.get(name, 0.0))) for name in words if given[name] not in (None, False)]
    found += [(name, said) for name, said in WHEN_OFF.items() if not given[name]] if defence.watches else []
    return found


WORDS = {
    "owners": "Providers of one owner share one arm, and are judged together.",
    "alike": "Those whose answers are alike, by a cosine of {:.3g} or more, share one arm.",
    "clip": "No update counts for more than {:.3g} times the usual length.",
    "screen": "An update that worsens a part of the hold-out by more than {:.3g} standard errors is left out.",
    "leak": "Who gains on one part of the hold-out alone is flagged: by accident in {:.3g} % of markets.",
    "new": "An update of which less than {:.3g} % is new is void.",
    "data": (
        "Pay beyond the floor is held back until what persists in a provider’s answers stands {:.3g} standard errors "
        "above nothing; who shows nothing is flagged."
    ),
    "cap": (
        "An owner whose accesses have cost {:.3g} % of the budget, and among n < 14 owners 14/n times as much, rests "
        "while others can be asked."
    ),
}
OF_ROWS = {
    "alike": "Two of whom {:.3g} or more of the rows are near copies of the other’s share one arm.",
    "leak": "Who sells near copies of hold-out rows is flagged: by accident in {:.3g} % of markets.",
    "data": (
        "Pay beyond the floor is held back until the gains of a provider’s rows stand {:.3g} standard errors above "
        "nothing; who brings next to nothing where others bring much is flagged."
    ),
}
"""What these mean where answers are rows."""
WHEN_OFF = {
    "pay_left_out": "Answers that are left out of the model are paid the floor alone.",
    "doubt": "Who has not shown that there is data behind its answers is paid the floor alone.",
}
"""What it means that these are off."""


def sentence_of(
    what: str, figure: float | None, limit: float, answers: int, like: str = ANOTHER, rows: bool = False
) -> str:
    """What was found of a provider by a figure beside its limit, after so many of its answers; `like` is how whom it is
    like is called, and `rows` says that answers are rows. There is no figure where there were too few answers for one.

    >>> sentence_of("alike", 0.912, 0.7, 8)
    'its answers are like those of another provider, by a cosine of 0.912 where 0.7 is the limit: both share one arm \
from then on, and so what one alone would earn'
    """
    code = f"{what}-of-rows" if rows else what
    return str(Code.of(code, figure=figure, limit=limit, answers=answers, like=like))
