"""What can be wrong with a message, as codes: they stand in ledgers."""

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
    NOT_A_MESSAGE,
    BAD_HEADER,
    BAD_TENSOR,
    NOT_FINITE,
    OTHER_SHAPE,
    OTHER_ROUND,
    OTHER_PROVIDER,
    OTHER_QUESTION,
    NOT_SIGNED,
)
"""All that can be wrong with a message: the codes of MessageError."""


class MessageError(ValueError):
    """Bytes that are no message of ours. Its text is one of FAULTS, a code."""
