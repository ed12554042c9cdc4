"""What can be wrong with a message, in fixed words: they stand in ledgers."""

NOT_A_MESSAGE = "not a message of this protocol"
BAD_HEADER = "the message's header is not valid"
BAD_TENSOR = "the message's vector is not valid"
NOT_FINITE = "the vector holds NaN or infinity"
OTHER_SHAPE = "the update is not shaped like the parameters"
OTHER_ROUND = "the reply belongs to another round or run"
OTHER_PROVIDER = "the reply bears another provider's name"
OTHER_QUESTION = "the reply answers another question"
NOT_SIGNED = "the reply is not signed by the provider's key"
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
"""All that can be wrong with a message: the texts of MessageError."""


class MessageError(ValueError):
    """Bytes that are no message of ours. Its text is one of FAULTS."""
