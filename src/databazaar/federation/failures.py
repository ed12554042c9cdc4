"""Why a provider's ask ended without an update: the codes that the ledger keeps, and which of them are its fault.

They have neither times nor measurements, so that the ledger of a run is the same wherever it is played again. Neither
torch nor gRPC is needed to read them.
"""

from __future__ import annotations

from databazaar.codes import QUARANTINED, Code
from databazaar.federation.exchange import Lost

NOT_A_MESSAGE = "not-a-message"
BAD_HEADER = "bad-header"
BAD_TENSOR = "bad-vector"
NOT_FINITE = "not-finite"
OTHER_SHAPE = "other-shape"
OTHER_ROUND = "other-round"
OTHER_PROVIDER = "other-provider"
OTHER_QUESTION = "other-question"
NOT_SIGNED = "not-signed"
FAULTS = (
    *(NOT_A_MESSAGE, BAD_HEADER, BAD_TENSOR, NOT_FINITE, OTHER_SHAPE),
    *(OTHER_ROUND, OTHER_PROVIDER, OTHER_QUESTION, NOT_SIGNED),
)
"""All that can be wrong with a message: the codes of MessageError."""


class MessageError(ValueError):
    """Bytes that are no message of ours. Its text is one of FAULTS, a code."""


REFUSED, FAILED = "refused", "provider-failed"
UNANSWERED = frozenset({*Lost, QUARANTINED.name})
"""No reply came back, or nobody was asked."""
_FAULTS = UNANSWERED | {*FAULTS, "beyond-limit", FAILED}


def declined(status: str, code: str) -> Code:
    """A reply that brings nothing: the provider says no, or that its computation failed."""
    return Code.of(REFUSED if status == "refused" else FAILED, why=code)


def is_honest(code: Code | None) -> bool:
    """Whether a code of the ledger tells of no fault of the provider's: a refusal, or a reason of the market's."""
    return code is None or code.name not in _FAULTS
