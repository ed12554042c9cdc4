"""What the providers' processes of these tests run."""

from __future__ import annotations

import os
from pathlib import Path

from loopback import WAIT, eventually


def kit(name: str) -> Path:
    """A file in the kit of the provider that runs here."""
    return Path(os.environ["NOTES"]).parent / name


def handler(payload: bytes) -> bytes:
    """`WHAT NAME …` makes the provider of that name behave badly; everything else is echoed.

    One that hangs does so until there is a file `released` in its kit.
    """
    me = os.environ["PARTY"]
    words = payload[:100].split()
    if len(words) > 1 and words[1].decode(errors="replace") == me:
        match words[0]:
            case b"hang":
                eventually(kit("released").exists, WAIT)
            case b"fail":
                raise ValueError("a secret of the provider")
            case b"big":
                return bytes(int(words[2]))
    return me.encode() + b":" + payload


def noting(payload: bytes) -> bytes:
    """Like `handler`, and keeps a note of all that it was asked. A market's messages go to a worker."""
    if payload.startswith(b"DBZ1"):
        from market_party import market

        return market(payload)
    with kit("notes.txt").open("ab") as notes:
        notes.write(payload + b"\n")
    return handler(payload)
