"""Why a target does not hold, as far as it is known. All reasons live here; the first that applies is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Miss:
    """A target that does not hold. `units` is how far off it is in money, `least` whether the lowest paid group is."""

    target: str
    dataset: str
    method: str
    protocol: str
    changes: tuple[str, ...] = ()
    units: float = 0.0
    least: bool = False


REVENUE = "mean revenue of each group"
WHOLE = "all of it in under 15 minutes on a GPU"
UNKNOWN = "The cause is not known."
FEW_UNITS = 5.0

REASONS: tuple[tuple[Callable[[Miss], bool], str], ...] = (
    (
        lambda miss: miss.target == WHOLE,
        "Where the time went stands below, under “Machines and seconds”.",
    ),
    (
        lambda miss: bool(miss.changes),
        "Settings were changed on the command line: {changes}. The published numbers are of the unchanged ones.",
    ),
    (
        lambda miss: miss.protocol == "quick",
        "A small synthetic market and few seeds: what holds for the paper’s markets need not hold here.",
    ),
    (
        lambda miss: miss.protocol == "text",
        "The published figures were made with other settings than the paper’s text gives. The tables of settings "
        "below mark each of them; protocol figures has them.",
    ),
    (
        lambda miss: miss.target == REVENUE and miss.least and miss.units <= FEW_UNITS and miss.method != "osmd",
        "Off by {units:.1f} units on the group that earns least. Its pay is SV − min(SV), so that the one provider "
        "with the lowest value moves it; 15 % of so little is a narrow band.",
    ),
    (
        lambda miss: miss.target == REVENUE and miss.method == "osmd" and miss.dataset != "mixture",
        "Most likely OSMD drew the providers of a round without replacement behind the published figures; here it "
        "draws with replacement, as Algorithm 1 says. --set repeats=never draws without.",
    ),
)


def why(miss: Miss) -> str:
    """
    >>> why(Miss("beats uniform sampling at the end", "kmnist", "osmd", "figures"))
    'The cause is not known.'
    """
    text = next((text for applies, text in REASONS if applies(miss)), UNKNOWN)
    return text.format(units=miss.units, changes=", ".join(miss.changes))
