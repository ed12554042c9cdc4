"""What a ledger of anybody may say of utilities and losses."""

from __future__ import annotations

from databazaar.errors import LedgerError
from databazaar.ledger.chain import Entry

SCORES = ("utility", "loss", "reached", "reached_loss")
ONE = 1.0011
"""The largest utility that lies in [0, 1] but for rounding: exp(−loss) of a loss that is 0 but for rounding."""


def refuse_no_scores(entry: Entry, bounded: bool) -> None:
    """Refuses utilities and losses that are no numbers, and a bounded utility that lies outside of [0, 1]."""
    body = entry.body
    scores = {name: body[name] for name in SCORES if body.get(name) is not None}
    needed = {"utility", "reached"} if entry.ends_round else {"utility"}
    if not needed <= scores.keys() or any(type(score) not in (int, float) for score in scores.values()):
        raise LedgerError(f"{entry}: a utility or a loss is not a number")
    utilities = [scores[name] for name in ("utility", "reached") if name in scores]
    if bounded and not all(0 <= utility <= ONE for utility in utilities):
        raise LedgerError(f"{entry}: a utility lies outside of 0 to 1, where this market's utility is")
