"""Bytes and values that are almost right: what a hostile party, a bad wire or a bad disk makes of good ones."""

from __future__ import annotations

import copy
import random
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

NASTY: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2**31, 2**53, 2**63, 2**64, 10**12, 10**30, 10**400, 0.5, -0.0, 1e-300, 1e300),
    *("", "x", "\x00", "a" * 5000, "\u202e", "9" * 30, "../../etc/passwd", "__class__", [], {}, [[]], {"kind": "mean"}),
)


def mutants(seeds: Sequence[bytes], count: int, rng: random.Random) -> Iterator[bytes]:
    """Messages with bytes flipped, cut, copied, swapped with another message, or numbers changed."""
    numbers = [b"-1", b"0", b"1e999", b"NaN", b"99999999999999999999", b"[]", b"{}", b"null", b'"x"', b"0.5"]
    digits = re.compile(rb"\d+(?:\.\d+)?|null|\"[a-z-]+\"")
    for _ in range(count):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            kind, at = rng.randrange(7), rng.randrange(len(data) + 1)
            if kind == 0 and at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del data[at : at + rng.randrange(1, 20)]
            elif kind == 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            elif kind == 3:
                data[at:at] = data[at : at + rng.randrange(1, 40)]
            elif kind == 4:
                other = rng.choice(seeds)
                data[at:] = other[rng.randrange(len(other)) :]
            elif kind == 5 and (found := digits.search(data, at)):
                data[found.start() : found.end()] = rng.choice(numbers)
            else:
                data = data[:at] if at else bytearray(b"\0")
            if not data:
                data = bytearray(b"D")
        if rng.random() < 0.5 and len(data) > 8:  # keep the length true now and then, so that the header is parsed
            end = data.find(b"}}" if b'"task"' in data else b"}", 8)
            struct.pack_into(">I", data, 4, max(0, min(len(data) - 8, end - 7)))
        yield bytes(data)


def nested(depth: int, rng: random.Random) -> bytes:
    """JSON that goes deeper than anybody means it to, closed or not."""
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return opening * depth + b"1" + (closing * depth if rng.random() < 0.5 else b"")


def twisted(value: Any, rng: random.Random) -> Any:
    """A JSON value with one to three of its places changed: replaced, taken out, said twice, or put elsewhere."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return rng.choice(NASTY)
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[rng.choice(("x", "", "kind", str(key) + "2"))] = holder[key]
            case 2 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 3:
                other, place = rng.choice(places)
                with_other = copy.deepcopy(other[place]) if _has(other, place) else None
                holder[key] = with_other
            case 4 if isinstance(holder[key], int | float) and abs(holder[key]) < 2**60:
                holder[key] = holder[key] + rng.choice((-1, 1, 0.5, 1000))
            case _:
                holder[key] = copy.deepcopy(rng.choice(NASTY))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)
