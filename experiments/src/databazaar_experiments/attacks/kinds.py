"""The attacks by kind, with those variants that tell somebody most about a market of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from databazaar_experiments.attacks.backdoors import Backdoor
from databazaar_experiments.attacks.collusion import Collude
from databazaar_experiments.attacks.copies import Clones, Price, Split
from databazaar_experiments.attacks.idle import Noise, Replay, Zero
from databazaar_experiments.attacks.known import Attack
from databazaar_experiments.attacks.leaks import Leak
from databazaar_experiments.attacks.poisons import Alternate, Boost, Flip, Selective, Sign


@dataclass(frozen=True)
class Variant:
    """One attack in a word or two, how many places it takes, and what of the hold-out has leaked to it."""

    title: str
    attack: Attack
    places: int = 1
    leak: Literal["", "scoring", "both"] = ""


KINDS: dict[str, tuple[Variant, ...]] = {
    "clones": (
        Variant("registers its data 5 times", Clones(5)),
        Variant("… under 5 owners' names", Clones(5, declared=False)),
    ),
    "split": (
        Variant("splits its data over 5 ids", Split(5)),
        Variant("… under 5 owners' names", Split(5, declared=False)),
    ),
    "leak": (
        Variant("has seen half the hold-out", Leak("sgd"), leak="scoring"),
        Variant("has seen all the hold-out", Leak("sgd"), leak="both"),
    ),
    "replay": (Variant("sends the last change back", Replay()),),
    "noise": (Variant("sends small noise", Noise(0.1)),),
    "zero": (Variant("sends next to nothing", Zero()),),
    "boost": (Variant("sends twice its update", Boost(2.0)),),
    "sign": (Variant("sends the opposite", Sign()),),
    "alternate": (Variant("good and poisonous by turns", Alternate()),),
    "flip": (Variant("turns its labels round", Flip()),),
    "backdoor": (Variant("hides a trigger", Backdoor()),),
    "collude": (
        Variant("two: break and repair", Collude(), places=2),
        Variant("two: break and repair, × 10", Collude(10.0), places=2),
    ),
    "price": (Variant("asks twice the price", Price(2)), Variant("asks 5 times the price", Price(5))),
    "selective": (Variant("answers when it suits", Selective()),),
}
