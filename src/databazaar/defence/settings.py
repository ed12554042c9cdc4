"""What a market does against those who play for the money: every rule by itself, and three sets of them by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from databazaar.errors import BazaarError
from databazaar.settings import check_settings, setting

VERSION = 2
"""Of what the rules make of their settings and of figures. A verdict must be replayed by the rules that came to it: who
changes a number in defence/ that a verdict or a payment hangs on counts this up."""


def _rule(help: str, at_most: float) -> Any:
    """A rule that is a number, or off. Files choose a set by its name, and these figures go with the name."""
    return setting(None, help, above=0, at_most=at_most)


@dataclass(frozen=True)
class Defence:
    """The rules, each off (False or None) or on. `Defence.named("standard")` is what `bazaar init` writes, and
    `Defence.named("none")`, as without any, is the paper's market.

    `owners`: providers of one owner share one arm of the sampler, and are judged together. `alike`: those whose answers
    are as similar as this, a cosine, share an arm as well. `clip`: no update counts for more than so many times the
    usual length. `screen`: an update that does harm on a part of the hold-out, by so many standard errors, is left out
    of the average. `leak`: the chance, for the whole market, that an honest owner is taken for one that knows a part of
    the hold-out. `new`: the least share of an update that must not be known to everybody. `data`: of how many standard
    errors of what persists in a provider's answers it is paid beyond the floor. `cap`: the largest share of the budget
    that one owner may earn. `pay_left_out`: whether answers that were left out are paid in full, or the floor alone.
    `doubt`: whether those about whom nothing is known in the end are paid.

    Where a learner trains on rows, the defence is `of_rows`. Then `alike` is the share of rows that are near copies of
    the other one's, `leak` finds near copies of hold-out rows, and `data` goes by gains.
    """

    owners: bool = setting(False, "whether the providers of one owner share one place in the draw")
    alike: float | None = _rule("from this cosine of their answers on, two providers share a place too", 1.0)
    clip: float | None = _rule("the longest update, in usual lengths", 1e6)
    screen: float | None = _rule("the harm for which an update is left out of the average, in standard errors", 1e6)
    leak: float | None = _rule("the chance that an honest market has a false alarm about its hold-out", 0.5)
    new: float | None = _rule("the least share of an update that must not be public", 0.5)
    data: float | None = _rule("what answers must show before all of it is paid, in standard errors", 1e6)
    cap: float | None = _rule("the largest share of the budget for one owner, of 14 or more", 1.0)
    pay_left_out: bool = setting(True, "whether answers that are left out of the average are paid in full")
    doubt: bool = setting(True, "whether owners who have shown nothing either way are paid in the end")
    rows: bool = setting(False, "whether rows are looked at, and not updates", in_files=False)
    kind: ClassVar[str] = "defence"

    def __post_init__(self) -> None:
        check_settings(self, "defence")

    @classmethod
    def named(cls, name: str) -> Defence:
        """`none`, `standard` or `strict`."""
        if name not in PRESETS:
            raise BazaarError(f"defence {name!r} is unknown: use one of {', '.join(PRESETS)}, or a Defence(…)")
        return PRESETS[name]

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Defence:
        """The defence that the terms of a ledger hold; without any settings, none."""
        given = dict(settings)
        version = given.pop("version", VERSION)
        if version != VERSION:
            raise BazaarError(f"defence: its rules are of version {version!r:.20}, which needs another databazaar")
        try:
            return cls(**given)
        except TypeError as reason:
            text = str(reason).removeprefix("Defence.__init__() ")
            raise BazaarError(f"defence: {text}: correct its settings") from None

    def settings(self) -> dict[str, Any]:
        """As the terms hold it, with the version of the rules."""
        given = {**asdict(self), "version": VERSION}
        if not self.rows:
            del given["rows"]
        return given

    def of_rows(self) -> Defence:
        """The same where answers are rows: without the rules that are about updates alone."""
        return self if self.off else replace(self, rows=True, clip=None, screen=None, new=None)

    @property
    def name(self) -> str:
        """The name of the preset that this is, or `own`."""
        return next((name for name, preset in PRESETS.items() if self in (preset, preset.of_rows())), "own")

    @property
    def off(self) -> bool:
        """Whether no rule is on: the paper's market."""
        return self == PRESETS["none"]

    @property
    def watches(self) -> bool:
        """Whether it has to look at the updates themselves."""
        return any(getattr(self, name) is not None for name in ("alike", "clip", "screen", "leak", "new", "data"))

    @property
    def parts_holdout(self) -> bool:
        """Whether it looks at the two parts of the hold-out."""
        return not self.rows and (self.screen is not None or self.leak is not None)

    @property
    def holds_back(self) -> bool:
        """Whether pay is held back until a provider has shown that there is data behind its answers."""
        return self.data is not None


_STANDARD = Defence(owners=True, alike=0.7, clip=4.0, screen=3.0, leak=0.002, new=0.01, data=2.5, cap=0.25)
PRESETS = {
    "none": Defence(),
    "standard": _STANDARD,
    "strict": replace(_STANDARD, clip=2.0, screen=2.0, cap=0.15, pay_left_out=False, doubt=False),
}
"""The sets of rules by name."""


def defence_of(given: str | Defence | None) -> Defence:
    """A defence as a user may give it: by name, as itself, or not at all."""
    if given is None:
        return PRESETS["none"]
    if isinstance(given, str):
        return Defence.named(given)
    if not isinstance(given, Defence):
        raise BazaarError(f"defence = {given!r} is none: use one of {', '.join(PRESETS)}, or a Defence(…)")
    return given
