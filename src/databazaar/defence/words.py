"""The rules of a defence in words, for people who play by them."""

from __future__ import annotations

from databazaar.defence.settings import Defence


def rules_of(defence: Defence) -> list[tuple[str, str]]:
    """The setting and the meaning of every rule that is on.

    >>> rules_of(Defence(cap=0.25))
    [('cap', 'Accesses to one owner cost 25 % of the budget at most.')]
    """
    given = defence.settings()
    numbers = {
        name: 100.0 * value if name in ("leak", "new", "cap") else value
        for name, value in given.items()
        if type(value) is not bool and value is not None
    }
    found = [(name, WORDS[name].format(numbers.get(name, 0.0))) for name in WORDS if given[name] not in (None, False)]
    found += [(name, words) for name, words in WHEN_OFF.items() if not given[name]] if defence.watches else []
    return found


WORDS = {
    "owners": "Providers of one owner share one arm.",
    "alike": "Those whose answers are alike, by a cosine of {:.3g} or more, share one arm.",
    "clip": "No update counts for more than {:.3g} times the usual length.",
    "screen": "An update that worsens a part of the hold-out by more than {:.3g} standard errors is left out.",
    "leak": "Who gains on one part of the hold-out alone is flagged: by accident in {:.3g} % of markets.",
    "new": "An update of which less than {:.3g} % is new is void.",
    "data": (
        "Pay beyond the floor is held back until what persists in a provider’s answers stands {:.3g} standard errors "
        "above nothing; who shows nothing is flagged."
    ),
    "cap": "Accesses to one owner cost {:.3g} % of the budget at most.",
}
WHEN_OFF = {
    "pay_left_out": "Answers that are left out of the model are paid the floor alone.",
    "doubt": "Who has not shown that there is data behind its answers is paid the floor alone.",
}
"""What it means that these are off."""
