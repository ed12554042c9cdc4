"""Whoever can write to the database past the hub is found out: by the audit, and from exported lines alone."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from databazaar.canonical import GENESIS, canonical, chained
from databazaar.client.journal import Hidden, JournalLine, JournalReplay, checked, line_of, read_journal
from databazaar.errors import LedgerError, UncheckableError
from databazaar.service import journal
from databazaar.service.database.connection import Database
from small_books import close, deposit, fund, join, new_job


@pytest.fixture
def books(database: Database) -> Database:
    """The same on both databases, and nothing in them keeps the entries as they are."""
    fill(database)
    let_go(database)
    return database


def fill(database: Database) -> None:
    """Six entries about two jobs, of which one is closed."""
    with database.begin() as session:
        acme = join(session, "acme", consumes=True)
        join(session, "bank", provides=True)
        for number, job in enumerate(("j1", "j2")):
            deposit(session, "acme", 200, f"d{number}")
            new_job(session, acme, job)
            fund(session, "acme", job, 100)
        close(session, "acme", "j1", 100, {"bank": 60}, fee=6)
        journal.post(session, "payout", "payout:1", {"earned:bank": -60, "outside": 60})


def let_go(database: Database) -> None:
    ends = ("no_update", "no_delete") if database.is_sqlite else ("kept", "whole")
    with database.begin() as session:
        for table in ("journal_entries", "journal_postings"):
            for end in ends:
                session.execute(text(f"DROP TRIGGER {table}_{end}" + ("" if database.is_sqlite else f" ON {table}")))


GONE = "DELETE FROM journal_postings WHERE seq = {0}; DELETE FROM journal_entries WHERE seq = {0}"
CHANGES = [
    ("UPDATE journal_entries SET kind = 'fund' WHERE seq = 2", "entry 2 (deposit:d1) does not follow from"),
    ("UPDATE journal_entries SET key = 'deposit:d9' WHERE seq = 2", "entry 2 (deposit:d9) does not follow from"),
    ("UPDATE journal_entries SET body = '{\"a\": 1}' WHERE seq = 0", "entry 0 (deposit:d0) does not follow from"),
    ("UPDATE journal_entries SET salt = 'x' WHERE seq = 5", "entry 5 (payout:1) does not follow from"),
    ("UPDATE journal_entries SET at = '2020-01-01 00:00:00' WHERE seq = 1", "entry 1 (fund:j1) does not follow"),
    ("UPDATE journal_entries SET hash = 'x' WHERE seq = 3", "entry 3 (fund:j2) does not follow from"),
    ("UPDATE journal_postings SET amount = amount * 2 WHERE seq = 5", "entry 5 (payout:1) does not follow from"),
    ("UPDATE journal_postings SET account = 'escrow:j2' WHERE account = 'earned:bank'", "entry 4 (close:j1) does not"),
    ("DELETE FROM journal_postings WHERE seq = 1", "entry 1 (fund:j1) does not follow from the entries before it"),
    ("INSERT INTO journal_postings VALUES (4, 'outside', 0)", "entry 4 (close:j1) does not follow from"),
    ("UPDATE accounts SET balance = 7 WHERE name = 'fees'", "fees stands at 7, and 6 follows from the journal"),
    ("INSERT INTO accounts (name, balance) VALUES ('loot', 5)", "loot stands at 5, and 0 follows from the journal"),
    (
        "UPDATE journal_head SET seq = 4",
        "the journal's head is not its entry 5: entries were removed, or added",
    ),
    ("UPDATE journal_head SET hash = 'x'", "the journal's head is not its entry 5"),
    (GONE.format(0), "entry 1 (fund:j1) comes where entry 0 is due: entries were removed or moved"),
    (GONE.format(3), "entry 4 (close:j1) comes where entry 3 is due: entries were removed or moved"),
    (GONE.format(5), "the journal's head is not its entry 4: entries were removed, or added past it"),
]


def test_every_change_is_found(books: Database) -> None:
    for change, sentence in CHANGES:
        with books.begin() as session:
            for statement in change.split("; "):
                session.execute(text(statement))
            found = journal.audit(session)
            assert not found.ok and found.message.startswith(sentence), (change, found.message)
            session.rollback()
    with books.read() as session:
        assert journal.audit(session).ok


@pytest.mark.parametrize(
    ("seq", "sentence"),
    [
        (6, "entry 6 (outside without an entry) does not follow from the entries before it: it was changed"),
        (-1, "entry 0 (deposit:d0) does not follow from the entries before it: it was changed"),
    ],
)
def test_postings_without_an_entry(sqlite_database: Database, seq: int, sentence: str) -> None:
    with sqlite_database.begin() as session:
        acme = join(session, "acme", consumes=True)
        for number in range(6):
            deposit(session, acme.slug, 1, f"d{number}")
    with sqlite_database.engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        connection.exec_driver_sql(f"INSERT INTO journal_postings VALUES ({seq}, 'outside', 3)")
        connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        connection.exec_driver_sql("BEGIN")
    with sqlite_database.read() as session:
        found = journal.audit(session)
    assert (found.ok, found.message) == (False, sentence)


def test_exported_lines_are_checked_without_a_database(books: Database, tmp_path: Path) -> None:
    whole, chain, stream = tmp_path / "whole.jsonl", tmp_path / "chain.jsonl", io.StringIO()
    with books.read() as session:
        head = journal.audit(session).head
        whole.write_text("".join(journal.exported(session)))
        chain.write_text("".join(journal.exported(session, whole=False)))
        stream.writelines(journal.exported(session))
    assert stream.getvalue() == whole.read_text()
    replay, hidden = JournalReplay(), JournalReplay()
    assert [replay.take(entry) for entry in read_journal(whole)] == [None] * 6
    assert [hidden.take(entry) for entry in read_journal(chain)] == [None] * 6
    assert replay.head == hidden.head == head
    assert replay.balances == {
        "outside": -340,
        "cash:acme": 234,
        "escrow:j1": 0,
        "escrow:j2": 100,
        "earned:bank": 0,
        "fees": 6,
    }
    assert hidden.balances == {} and "acme" not in chain.read_text() and "60" not in chain.read_text().split('"')
    assert [line_of(entry) + "\n" for entry in read_journal(whole)] == whole.read_text().splitlines(keepends=True)
    lines = chain.read_text().splitlines(keepends=True)
    chain.write_text("".join([*lines[:2], *lines[3:]]))
    with pytest.raises(LedgerError, match="entry 3 comes where entry 2 is due"):
        list(checked(read_journal(chain)))


def test_only_the_operator_exports_what_entries_say(books: Database) -> None:
    with books.begin() as session:
        house, bank = join(session, "house", operates=True), join(session, "bank2", provides=True)
        assert all("postings" in json.loads(line) for line in journal.lines(session, house))
        assert all(set(json.loads(line)) == {"seq", "content", "hash"} for line in journal.lines(session, bank))


def rewritten(entries: list[JournalLine], seq: int, **changed: Any) -> Iterator[JournalLine]:
    """The same journal with one entry changed, sealed anew from there on: only what it says can tell."""
    head = GENESIS
    for entry in entries:
        draft = entry._replace(**changed) if entry.seq == seq else entry
        head = chained(head, draft.content)
        yield draft._replace(hash=head)


@pytest.mark.parametrize(
    ("seq", "changed", "sentence"),
    [
        (0, {"postings": {"outside": -200, "cash:acme": 199}}, "its postings sum to -1, and not to zero"),
        (0, {"postings": {"outside": -200, "fees": 200}}, "a deposit brings nothing to fees"),
        (0, {"postings": {"outside": -1, "cash:acme": 1}}, "cash:acme would be at -99"),
        (0, {"postings": {"outside": 0, "cash:acme": 0}}, "nothing is moved to outside"),
        (2, {"key": "deposit:d0"}, "its key was used before"),
        (3, {"key": "fund:j1"}, "its key 'fund:j1' is not that of job j2"),
        (4, {"postings": {"escrow:j1": -99, "earned:bank": 99}}, "it leaves 1 in the escrow"),
        (4, {"postings": {"escrow:j1": -100, "cash:bank": 100}}, "it refunds cash:bank, and cash:acme has funded"),
        (4, {"postings": {"escrow:j2": -100, "cash:acme": 100}}, "a close of job j1 does not touch escrow:j2"),
        (1, {"kind": "withdraw", "key": "withdraw:1", "job": None}, "does not touch escrow:j1"),
        (
            1,
            {"kind": "withdraw", "key": "withdraw:1", "job": None, "postings": {"cash:acme": -100, "outside": 100}},
            "escrow:j1 would be at -100",
        ),
        (5, {"kind": "withdraw"}, "its key 'payout:1' is not one of a withdraw"),
    ],
)
def test_a_chain_that_holds_is_not_enough(
    sqlite_database: Database, tmp_path: Path, seq: int, changed: dict[str, object], sentence: str
) -> None:
    fill(sqlite_database)
    with sqlite_database.read() as session:
        (tmp_path / "whole.jsonl").write_text("".join(journal.exported(session)))
    entries = [entry for entry in read_journal(tmp_path / "whole.jsonl") if isinstance(entry, JournalLine)]
    assert list(rewritten(entries, 99)) == entries
    with pytest.raises(LedgerError, match=re.escape(sentence)):
        list(checked(rewritten(entries, seq, **changed)))


def test_a_job_that_was_never_funded_is_not_closed() -> None:
    draft = JournalLine(0, "close", "close:j1", "j1", "", {"escrow:j1": -1, "fees": 1}, {}, "")
    (entry,) = rewritten([draft], 0)
    assert JournalReplay().take(entry) == "entry 0 (close:j1) should not be there: escrow:j1 would be at -1"
    replay = JournalReplay(balances={"escrow:j1": 1})
    assert replay.take(entry) == "entry 0 (close:j1) should not be there: job j1 was never funded"


TEXT = st.text(max_size=5)
STRANGE = line_of(JournalLine(0, "deposit", "?", None, "", {}, {}, "")).replace("?", r"\ud800")
INFINITE = line_of(JournalLine(0, "deposit", "", None, "", {}, {"x": "?"}, "")).replace('"?"', "Infinity")


@given(
    st.builds(
        JournalLine,
        st.integers(),
        *[TEXT] * 2,
        st.none() | TEXT,
        TEXT,
        st.dictionaries(TEXT, st.integers()),
        st.dictionaries(TEXT, st.none() | TEXT | st.floats(allow_nan=False, allow_infinity=False)),
        TEXT,
    )
)
def test_the_content_is_canonical_json(entry: JournalLine) -> None:
    assert entry.content == hashlib.sha256(canonical(list(entry[:-1])).encode()).hexdigest()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "7",
        "{}",
        '{"seq": 0}',
        '{"seq": "x", "content": "", "hash": ""}',
        "[" * 100_000,
        "\x80",
        STRANGE,
        INFINITE,
    ],
)
def test_a_file_that_is_no_journal(tmp_path: Path, line: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes((line + "\n").encode("latin-1"))
    with pytest.raises(UncheckableError, match="the file"):
        list(read_journal(path))
    with pytest.raises(UncheckableError, match="cannot be read"):
        list(read_journal(tmp_path / "missing"))
    assert str(Hidden(3, "", "")) == "entry 3"
