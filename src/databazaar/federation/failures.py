"""Why a provider's ask ended without an update, as a value; and as the words that the ledger keeps.

The words are fixed, without times or measurements, so that the ledger of a run is the same wherever it is played
again. They are few, so each can be read back into the failure that it stands for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import get_args

from databazaar.engines import quarantine
from databazaar.engines.protocol import BEYOND_LIMIT
from databazaar.federation.exchange import Lost
from databazaar.federation.message_faults import FAULTS
from databazaar.federation.messages import Code


class Kind(Enum):
    """What sort of failure it is; all but a refusal count against the provider."""

    LOST = auto()
    """No reply came back."""
    INVALID = auto()
    """What came back is no valid reply to the request."""
    FAILED = auto()
    """The provider says that its computation failed."""
    REFUSED = auto()
    """The provider says no: by its policy, by its privacy budget, or because the task does not fit its data."""
    SET_ASIDE = auto()
    """It was not asked, after repeated failures."""


_BEFORE = {Kind.FAILED: "failed at the provider: ", Kind.REFUSED: "refused: "}


@dataclass(frozen=True)
class Failure:
    """One failure; `str` gives the ledger's words for it."""

    kind: Kind
    detail: str

    def __str__(self) -> str:
        return _BEFORE.get(self.kind, "") + self.detail

    @classmethod
    def read(cls, words: str) -> Failure | None:
        """The failure that these words stand for; None for words that are not the federation's.

        A market has reasons of its own to void an update that came back in good order.
        """
        return _BY_WORDS.get(words)


SET_ASIDE = Failure(Kind.SET_ASIDE, quarantine.SET_ASIDE)

_CODES = [code for code in get_args(Code) if code]
_BY_WORDS = {
    str(failure): failure
    for failure in (
        SET_ASIDE,
        *(Failure(Kind.LOST, why) for why in Lost),
        *(Failure(Kind.INVALID, fault) for fault in (*FAULTS, BEYOND_LIMIT)),
        *(Failure(kind, code) for kind in (Kind.FAILED, Kind.REFUSED) for code in _CODES),
    )
}


def is_honest(words: str | None) -> bool:
    """Whether these words of the ledger tell of no fault of the provider's: a refusal, or a reason of the market's."""
    failure = None if words is None else Failure.read(words)
    return failure is None or failure.kind is Kind.REFUSED
