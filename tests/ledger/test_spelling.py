"""The text of an entry's body: what a ledger writes is read as it was, and no other spelling of it is taken."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from databazaar import LedgerError
from databazaar.canonical import GENESIS, canonical
from databazaar.ledger import Entry
from databazaar.ledger.sql import SqlStore

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(bodies=st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), min_size=1, max_size=20))
def test_every_body_is_read_as_it_was_written(tmp_path: Path, bodies: list[dict[str, Any]]) -> None:
    """To the type and the last digit of every number, of whatever size."""
    path = tmp_path / "ledger.sqlite"
    path.unlink(missing_ok=True)
    store, head, entries = SqlStore.file(path, "run"), GENESIS, list[Entry]()
    for seq, body in enumerate(bodies):
        entries.append(Entry(seq, "void", seq, 0, "p", 1, body).sealed(head))
        head = entries[-1].hash
    store.append(entries, None)
    found = list(store.entries())
    store.dispose()
    assert found == entries and [repr(entry.body) for entry in found] == [repr(_sorted(body)) for body in bodies]
    for before, entry in zip([None, *found], found, strict=False):
        assert entry.digest(GENESIS if before is None else before.hash) == entry.hash


def _sorted(value: Any) -> Any:
    """The same with the keys in the order in which they are written."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"b":1,"a":1}',
        '{"a": 1}',
        '{"a":1.50}',
        '{"a":1e5}',
        '{"a":1E400}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        '{"a":"\\u0061"}',
        '{"a":1}\n',
        '{"a":1',
        "{ }",
        "",
        "[]",
        "null",
        '{"a":' + "[" * 5000 + "]" * 5000 + "}",
        b"{}",
        b'{"a":1}',
        7,
    ],
    ids=lambda text: repr(text)[:20],
)
def test_another_spelling_is_refused_and_what_stands_before_it_is_read(tmp_path: Path, text: object) -> None:
    store = SqlStore.file(tmp_path / "ledger.sqlite", "run")
    first = Entry(0, "void", 0, 0, "p", 1, {"reason": "none"}).sealed(GENESIS)
    store.append([first], None)
    store.dispose()
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        for seq, body in ((1, canonical({"reason": "none"})), (2, text), (3, "{}")):
            row = ("run", seq, "void", seq, 0, "p", 1, body, "f" * 64)
            connection.execute("INSERT INTO bazaar_entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.close()
    reading = store.entries()
    assert next(reading) == first and next(reading).seq == 1
    with pytest.raises(LedgerError, match="entry 2: its text is not as the ledger writes it"):
        next(reading)
    store.dispose()
