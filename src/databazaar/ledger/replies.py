"""A provider's signed reply, as the ledger names it: by the hash of what was signed.

The hash leaves the signature out, which is another one each time the same words are signed: a run that is resumed and
asks again for what it had been told names the same hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from databazaar.canonical import canonical, statement

LONGEST_LINE = 8192
"""No line of replies.jsonl is longer."""
_HASH, _HEX = re.compile(r"[0-9a-f]{64}"), re.compile(r"(?:[0-9a-f]{2})+")


def is_hash(value: Any) -> bool:
    """Whether this is how a SHA-256 is written.

    >>> is_hash("0" * 64), is_hash("0" * 63), is_hash(None)
    (True, False, False)
    """
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


@dataclass(frozen=True)
class ReplyStatement:
    """What a provider signs: its answer to one question. `question` is the hash of the question's bytes, `update` that
    of the update's bytes as they were sent, or empty."""

    run: str
    round: int
    provider: str
    question: str
    status: str
    code: str
    update: str

    @cached_property
    def text(self) -> bytes:
        """The bytes that are signed."""
        return statement("reply", asdict(self))

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.text).hexdigest()


@dataclass(frozen=True)
class SignedReply:
    """A statement with the provider's signature, in hexadecimal."""

    statement: ReplyStatement
    signature: str

    @property
    def line(self) -> bytes:
        return canonical({"statement": asdict(self.statement), "signature": self.signature}).encode()

    @classmethod
    def read(cls, line: bytes) -> SignedReply | None:
        """The reply in a line, None where it holds none."""
        try:
            found = json.loads(line)
            reply = cls(ReplyStatement(**found["statement"]), found["signature"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        said = reply.statement
        texts = (said.run, said.provider, said.status, said.code, said.update, reply.signature)
        sound = all(isinstance(text, str) for text in texts) and type(said.round) is int and is_hash(said.question)
        return (
            reply if sound and (not said.update or is_hash(said.update)) and _HEX.fullmatch(reply.signature) else None
        )
