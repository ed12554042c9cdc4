"""Everything that reads what another party wrote, under mutated input: each ends as it is documented to, or reads it.

A target reads one mutant. Whatever it raises but its own errors is a find, and so is memory out of all proportion.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import struct
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from databazaar import Arbiter
from databazaar.canonical import canonical
from databazaar.data.schema import Schema
from databazaar.data.schema_message import SchemaMessage
from databazaar.errors import BazaarError, LedgerError
from databazaar.federation import enrolment
from databazaar.federation.frames import WireError, decode_frame, encode_frame
from databazaar.federation.messages import (
    MAGIC,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from databazaar.federation.transport import MessageError
from databazaar.ledger import Entry, Ledger, Terms, audit_entries
from databazaar.ledger.chain import KINDS
from databazaar.ledger.sql import _entry_of
from databazaar.registry import MissingRuleError
from databazaar.vectors import pack, unpack
from forging import reseal
from mutations import mutants, nested, twisted
from sample_messages import PARAMS, a_reply, a_request, a_table
from small_markets import vector_market

MEASURED = 100
"""Of so many mutants the memory of one is measured: doing so is slow."""
MOST_MEMORY = 2 << 30
BASE, TIMES = 3_000_000, 40
"""Bytes that reading may take at its peak: so many, and so many for each byte of input (JSON's lists take that)."""


@dataclass(frozen=True)
class Target:
    """`share` is how much of all mutants it gets; `errors` are what it may raise."""

    name: str
    share: int
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: Callable[[], list[bytes]]
    is_json: bool = False


@dataclass
class Found:
    """How many mutants were read and refused, and the first that did neither: the target, the bytes, and why."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[str, bytes, str]] = field(default_factory=list)


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """A mutant that asks for more than some GB gets an error, which is a find, and does not fill the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@little_memory()
def fuzz(count: int, seed: int = 0, only: str = "") -> Found:
    """About `count` mutants, spread over the targets."""
    found = Found()
    chosen = [target for target in TARGETS if only in ("", target.name)]
    shares = sum(target.share for target in chosen)
    for target in chosen:
        rng = random.Random(f"{seed} {target.name}")
        for place, data in enumerate(_mutants(target, -(-count * target.share // shares), rng)):
            why = _why_wrong(target, data, place % MEASURED == 0, found.outcomes)
            if why is not None:
                found.wrong.append((target.name, data, why))
                if len(found.wrong) >= 20:
                    return found
    return found


def _mutants(target: Target, count: int, rng: random.Random) -> Iterator[bytes]:
    seeds = target.seeds()
    for data in mutants(seeds, count, rng):
        roll = rng.random()
        if target.is_json and roll < 0.7:
            yield json.dumps(twisted(json.loads(rng.choice(seeds)), rng)).encode()
        elif roll < 0.71:
            yield _deep(target, rng)
        else:
            yield data


def _deep(target: Target, rng: random.Random) -> bytes:
    """Nested JSON where the target looks for a header, framed as it frames one."""
    text = nested(rng.choice((50, 900, 3000, 20_000)), rng)
    if target.name == "frame":
        return struct.pack(">I", len(text)) + text
    if target.name in ("request", "reply"):
        return MAGIC + struct.pack(">I", len(text)) + text
    return struct.pack("<Q", len(text)) + text if target.name == "arrays" else text


def _why_wrong(target: Target, data: bytes, measured: bool, outcomes: Counter[str]) -> str | None:
    if measured:
        tracemalloc.start()
    try:
        target.read(data)
        outcomes[f"{target.name}: read"] += 1
    except target.errors:
        outcomes[f"{target.name}: refused"] += 1
    except BaseException as reason:  # RecursionError and MemoryError are finds too
        return f"{type(reason).__name__}: {reason}"[:300]
    finally:
        peak = tracemalloc.get_traced_memory()[1] if measured else 0
        if measured:
            tracemalloc.stop()
    return f"took {peak:,} bytes of memory for {len(data):,}" if peak > BASE + TIMES * len(data) else None


def _requests() -> list[bytes]:
    described = encode_request(a_request("describe"))
    return [encode_request(a_request(), PARAMS), encode_request(a_request(table=a_table()), PARAMS.double()), described]


def _replies() -> list[bytes]:
    good = a_reply(epsilon=1.25, delta=1e-5)
    signed = good.model_copy(update={"question": "0f" * 32, "signature": "ab" * 384})
    return [
        encode_reply(good, PARAMS),
        encode_reply(signed, PARAMS),
        encode_reply(a_reply(status="refused", code="privacy-spent")),
    ]


def _frames() -> list[bytes]:
    inner = encode_frame({"op": "answer", "number": "0" * 32, "size": 4, "code": ""}, b"DBZ1")
    asked = encode_frame({"op": "ask", "number": "1" * 32, "seconds": 3.5, "size": len(inner), "at": 0}, inner)
    return [asked, inner, encode_frame({"op": "done", "failures": {"bank2": "not-connected"}}), encode_frame({}, asked)]


def _schema(data: bytes) -> None:
    Schema.from_dict(SchemaMessage.model_validate_json(data).model_dump())


@cache
def _ledger() -> list[Entry]:
    consumer, providers = vector_market((0.0, 1.0, 2.0), budget=6, per_round=2, prices=[1, 2, 1])
    arbiter = Arbiter(consumer, providers, engine="loop")
    ledger = Ledger(arbiter.rules)
    arbiter._play(ledger, _Nobody())  # type: ignore[arg-type]
    return list(ledger.store.entries())


class _Nobody:
    """Whom a run tells nothing."""

    hears_rounds = None


def _entries() -> list[bytes]:
    return [canonical([place, *entry.fields[1:]]).encode() for place, entry in enumerate(_ledger())]


class UnreadError(Exception):
    """Nothing that a store would hand on: it has no such JSON, or none of the types of its columns."""


def _stored(data: bytes) -> Any:
    try:
        return json.loads(canonical(json.loads(data)))
    except (ValueError, RecursionError):
        raise UnreadError from None


def _terms(data: bytes) -> None:
    if not isinstance(body := _stored(data), dict):
        raise UnreadError
    Terms.from_body(body)


def _text_of_an_entry(data: bytes) -> object:
    return _entry_of((0, "round", 1, None, None, None, data.decode(errors="replace"), ""))


def _replay(data: bytes) -> None:
    """The ledger with one entry changed and everything sealed anew, as whoever holds its database can."""
    match _stored(data):
        case [int(place), str(kind), round, draw, provider, amount, dict(body)] if kind in KINDS:
            entries = list(_ledger())
            entries[place % len(entries)] = Entry(0, kind, round, draw, provider, amount, body)  # type: ignore[arg-type]
        case _:
            raise UnreadError
    found = audit_entries(reseal(entries))
    if not found.ok:
        raise LedgerError(found.message)


@cache
def _parties() -> tuple[Path, Path, dict[str, bytes]]:
    """A market, a provider's kit, and the files that they send each other."""
    root = Path(tempfile.mkdtemp(prefix="fuzz"))
    market = enrolment.init_market(root / "market", "fraud", "localhost", 8002).folder
    files = {"invitation": enrolment.invite(market, "bank1").read_bytes()}
    asked = enrolment.request(market / "invitations" / "bank1.json", root / "kit")
    files["request"] = asked.read_bytes()
    (market / "invitations" / "bank1.json").rename(root / "kept.json")
    (root / "kept.json").replace(market / "invitations" / "bank1.json")
    signed = enrolment.sign(market, asked)
    files["certificate"] = signed.read_bytes()
    (market / "invitations" / "bank1.json").write_bytes(files["invitation"])
    return market, root / "kit", files


def _file(data: bytes) -> Path:
    path = _parties()[1] / "sent.json"
    path.write_bytes(data)
    return path


def _invited(data: bytes) -> None:
    """The kit has a key already, so that none is made: what an invitation says is read before."""
    enrolment.request(_file(data), _parties()[1])


def _signed(data: bytes) -> None:
    enrolment.sign(_parties()[0], _file(data))


def _completed(data: bytes) -> None:
    enrolment.complete(_parties()[1], _file(data))


TARGETS = [
    Target("request", 250, decode_request, (MessageError,), _requests),
    Target("reply", 250, lambda data: decode_reply(data, a_request(), "bank1", PARAMS), (MessageError,), _replies),
    Target("frame", 200, decode_frame, (WireError,), _frames),
    Target(
        "schema",
        100,
        _schema,
        (ValidationError, BazaarError),
        lambda: [a_table().model_dump_json().encode()],
        is_json=True,
    ),
    Target(
        "terms",
        80,
        _terms,
        (BazaarError, UnreadError),
        lambda: [canonical(_ledger()[0].body).encode()],
        is_json=True,
    ),
    Target("entry's text", 50, _text_of_an_entry, (LedgerError,), _entries),
    Target("replay", 20, _replay, (LedgerError, MissingRuleError, UnreadError), _entries, is_json=True),
    Target(
        "arrays",
        45,
        unpack,
        (ValueError,),
        lambda: [pack({"w": np.linspace(0, 1, 9), "b": np.zeros((2, 3), np.float32)})],
    ),
    Target("invitation", 4, _invited, (BazaarError,), lambda: [_parties()[2]["invitation"]], is_json=True),
    Target("certificate request", 4, _signed, (BazaarError,), lambda: [_parties()[2]["request"]], is_json=True),
    Target("certificate", 1, _completed, (BazaarError,), lambda: [_parties()[2]["certificate"]], is_json=True),
]


def told(wrong: tuple[str, bytes, str]) -> str:
    name, data, why = wrong
    return f"{name}: {why}\n    {data[:400]!r}"
