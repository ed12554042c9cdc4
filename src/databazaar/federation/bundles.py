"""Several parties' bytes in one message, with a small JSON header: what a hub and a consumer's arbiter send each other.

    | header length, 4 bytes | header, JSON | one part after the other |

Lengths are checked before anything is cut out. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

MAX_HEADER = 1024 * 1024
_LENGTH = struct.Struct(">I")


def encode_bundle(header: Mapping[str, Any], parts: Mapping[str, bytes]) -> bytes:
    """The header and the parts, which are found again by their names.

    >>> decode_bundle(encode_bundle({"round": 3}, {"north": b"abc", "south": b""}))
    ({'round': 3}, {'north': b'abc', 'south': b''})
    """
    sizes = [[name, len(part)] for name, part in parts.items()]
    text = json.dumps({"header": header, "parts": sizes}, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER:
        raise ValueError("the header of a bundle is too long")
    return b"".join([_LENGTH.pack(len(text)), text, *parts.values()])


def decode_bundle(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Header and parts; a ValueError is bytes that are no bundle."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        at = _LENGTH.size + length
        if length > MAX_HEADER or at > len(data):
            raise ValueError
        found = json.loads(data[_LENGTH.size : at])
        header, sizes = found["header"], found["parts"]
        fine = isinstance(header, dict) and all(type(name) is str and type(size) is int for name, size in sizes)
        if not fine or at + sum(size for _, size in sizes) != len(data) or any(size < 0 for _, size in sizes):
            raise ValueError
    except (struct.error, ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("these bytes are no bundle") from None
    parts = {}
    for name, size in sizes:
        parts[name] = data[at : at + size]
        at += size
    return header, parts
