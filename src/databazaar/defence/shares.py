"""What of a round's pay is paid now, and what is held back until it is known whether there is data behind an answer.

Exploration pays everybody. With n arms and the sampler's α, a draw picks each arm with a chance of α/n or so, and each
of the m providers of an arm with an m-th of it. So of what an access with the chance p costs, the share

    min(1, (α/nm) / p)

is the floor: in the mean over the draws that is what exploration alone would have paid, however often the provider was
really drawn; and the m of an arm have one floor between them. The rest is for those who are cleared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from databazaar.defence.detector import CLEARED, OPEN, DetectorState
from databazaar.defence.findings import Findings
from databazaar.defence.settings import Defence


class Accesses(NamedTuple):
    """A round's draws: who was drawn, what was quoted, what the payment rule gives, and the recorded chance."""

    draws: Sequence[int]
    quotes: Sequence[int]
    due: Sequence[int]
    chances: Sequence[float]


def now_and_held(
    defence: Defence, detector: DetectorState, accesses: Accesses, findings: Findings, alpha: float
) -> tuple[DetectorState, list[int], list[int]]:
    """The detector state with these accesses, and for every draw what is paid now and what is held back of what is due.

    Amounts are whole: what is below a coin waits in `rest` until it is one.
    """
    asked, rest, explored = detector.asked.copy(), detector.rest.copy(), alpha / len(detector.arms) / detector.sharing
    place = {i: at for at, i in enumerate(dict.fromkeys(accesses.draws))}
    paid, held = [], []
    for i, quote, amount, chance in zip(*accesses, strict=True):
        asked[detector.arm[i]] += quote
        harm = findings.at("harm", place[i])
        left_out = defence.screen is not None and harm is not None and harm > defence.screen
        standing = detector.standing[i] if defence.holds_back or detector.flagged[i] else CLEARED
        if standing == CLEARED and (defence.pay_left_out or not left_out):
            paid.append(amount)
            held.append(0)
            continue
        floor = amount * min(1.0, float(explored[i]) / chance) + float(rest[i])
        now = min(amount, int(floor))
        rest[i] = min(floor - now, 1.0)
        paid.append(now)
        held.append(amount - now if standing == OPEN and (defence.pay_left_out or not left_out) else 0)
    return replace(detector, asked=asked, rest=rest), paid, held
