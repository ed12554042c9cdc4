"""Bundles of bytes: what is none is refused, whatever it claims to hold."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from databazaar.federation.frames import MAX_HEADER, decode_bundle, encode_bundle


def forged(header: Any, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff\xff\xff",
        encode_bundle({}, {"a": b"xyz"})[:-1],
        encode_bundle({}, {"a": b"xyz"}) + b"more",
        forged([]),
        forged({"header": [], "parts": []}),
        forged({"header": {}, "parts": [["a", -1]]}),
        forged({"header": {}, "parts": [["a", True]]}),
        forged({"header": {}, "parts": [["a", 1, 2]]}, b"x"),
        struct.pack(">I", 5) + b"[" * 5,
    ],
)
def test_what_is_no_bundle_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no bundle"):
        decode_bundle(data)


def test_a_header_has_an_end() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode_bundle({"a": "x" * MAX_HEADER}, {})
