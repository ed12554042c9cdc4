"""Canonical JSON, its hash, what is signed, and the hash chain of ledgers and of a hub's journal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

GENESIS = "0" * 64
"""The hash before the first entry of a chain."""
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def canonical(value: Any) -> str:
    """JSON with one spelling only: sorted keys, no spaces, floats as their shortest exact decimal, no NaN.

    >>> canonical({"b": 0.1, "a": [1, None]})
    '{"a":[1,null],"b":0.1}'
    """
    return _ENCODER.encode(value)


def digest_of(value: Any) -> str:
    """The SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def chained(previous: str, content: str) -> str:
    """The hash of an entry in a chain: that of the entry before it, and of its own content."""
    return hashlib.sha256(f"{previous}\n{content}".encode()).hexdigest()


def statement(kind: str, said: Mapping[str, Any]) -> bytes:
    """The bytes that a party signs: canonical JSON with its kind, so that no signature serves for another kind."""
    return canonical({**said, "kind": kind}).encode()
