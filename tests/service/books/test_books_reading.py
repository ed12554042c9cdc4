"""Reading the journal: accounts past which somebody has written, who may read what, in which order, and how far."""

from __future__ import annotations

import dataclasses
import json
import stat

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from databazaar.service import journal
from databazaar.service import receipts as keys
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import JournalEntry
from databazaar.service.errors import ConflictError, DeniedError
from databazaar.service.journal import MOST
from databazaar.service.settings import Settings
from small_books import close, deposit, fund, join, new_job


@dataclasses.dataclass(frozen=True)
class Books:
    database: Database
    acme: Caller
    bank: Caller
    house: Caller


@pytest.fixture
def books(sqlite_database: Database) -> Books:
    """Entries 0 to 4: two deposits, one of Bank's, and a job that has paid Bank 60 and the operator 6."""
    with sqlite_database.begin() as session:
        acme, bank = join(session, "acme", consumes=True), join(session, "bank", provides=True)
        house = join(session, "house", operates=True)
        deposit(session, "acme", 1000, "1")
        new_job(session, acme, "j1")
        fund(session, "acme", "j1", 100)
        close(session, "acme", "j1", 100, {"bank": 60}, fee=6)
        deposit(session, "bank", 5, "2")
        journal.post(session, "payout", "payout:1", {"earned:bank": -60, "outside": 60})
    return Books(sqlite_database, acme, bank, house)


def past_the_hub(database: Database, statement: str) -> None:
    with database.engine.connect() as connection:
        for line in ("COMMIT", "PRAGMA foreign_keys = OFF", statement, "PRAGMA foreign_keys = ON", "BEGIN"):
            connection.exec_driver_sql(line)


def message(database: Database) -> str:
    with database.read() as session:
        found = journal.audit(session)
        assert found.ok == found.message.startswith("5 entries and 12 postings replayed, all as recorded")
        return found.message


def test_an_account_that_is_gone_is_missed_if_it_held_something(books: Books) -> None:
    past_the_hub(books.database, "DELETE FROM accounts WHERE name IN ('escrow:j1', 'earned:bank')")
    assert message(books.database).endswith("the books sum to zero")
    past_the_hub(books.database, "DELETE FROM accounts WHERE name = 'fees'")
    assert message(books.database) == "fees stands at None, and 6 follows from the journal"


def test_of_several_wrong_accounts_the_first_by_name_is_told(books: Books) -> None:
    past_the_hub(books.database, "UPDATE accounts SET balance = balance + 1")
    assert message(books.database) == "cash:acme stands at 935, and 934 follows from the journal"
    past_the_hub(books.database, "UPDATE accounts SET balance = balance - 1 WHERE name LIKE 'cash:%'")
    assert message(books.database) == "earned:bank stands at 1, and 0 follows from the journal"


def test_postings_without_an_entry_are_exported_as_what_no_check_lets_pass(books: Books) -> None:
    past_the_hub(books.database, "INSERT INTO journal_postings VALUES (9, 'outside', 3)")
    with books.database.read() as session:
        *lines, last = journal.lines(session, books.house)
    assert len(lines) == 5 and json.loads(last) == {
        "seq": 9,
        "kind": "",
        "key": "outside without an entry",
        "job": None,
        "at": "",
        "postings": {"outside": 3},
        "body": {},
        "salt": "",
        "hash": "",
    }


def test_the_first_key_may_be_a_changed_one_and_all_files_are_its_owners(settings: Settings) -> None:
    key = keys.rotate(settings)
    assert keys.published(settings)["key"] == key.public and len(keys.published(settings)["former"]) == 1
    assert stat.S_IMODE(settings.keys.stat().st_mode) == 0o700
    for name in ("signing.pem", "former.json"):
        assert stat.S_IMODE((settings.keys / name).stat().st_mode) == 0o600


def test_accounts_by_name(books: Books) -> None:
    with books.database.read() as session:
        for caller, names in (
            (books.acme, ["cash:acme", "escrow:j1"]),
            (books.bank, ["cash:bank", "earned:bank"]),
            (books.house, ["fees", "outside"]),
        ):
            assert [account.name for account in journal.accounts_of(session, caller)] == names
        reading = dataclasses.replace(books.house, scopes=frozenset({"read"}))
        assert journal.accounts_of(session, reading) == []
        held = {name: journal.balance(session, name) for name in ("cash:acme", "fees", "outside", "never:used")}
        assert held == {"cash:acme": 934, "fees": 6, "outside": -945, "never:used": 0}


def moved(session: Session, caller: Caller, before: int | None = None, most: int = 100) -> list[tuple[int, str, int]]:
    found = journal.statement(session, caller, before=before, most=most)
    return [(one.seq, one.account, one.amount) for one in found]


def test_a_statement_is_the_newest_first_and_as_long_as_was_asked(books: Books) -> None:
    everything = [
        (2, "cash:acme", 34),
        (2, "escrow:j1", -100),
        (1, "cash:acme", -100),
        (1, "escrow:j1", 100),
        (0, "cash:acme", 1000),
    ]
    with books.database.read() as session:
        assert moved(session, books.acme) == everything
        assert moved(session, books.acme, most=3) == everything[:3]
        assert moved(session, books.acme, before=2) == everything[2:]
        assert moved(session, books.acme, before=0) == []
        assert moved(session, books.acme, before=3, most=1) == everything[:1]
        (first, *_) = journal.statement(session, books.bank)
        pages = {page.seq: page for page in journal.entries(session, books.house)}
        entry = pages[4]
        assert (first.seq, first.kind, first.at, first.account) == (4, "payout", entry.at, "earned:bank")
        assert (first.amount, first.job_id, first.hash) == (-60, None, entry.hash)


def test_pages_are_the_newest_first_each_with_all_its_postings(books: Books) -> None:
    with books.database.read() as session:
        pages = journal.entries(session, books.house)
        assert [page.seq for page in pages] == [4, 3, 2, 1, 0]
        assert [len(page.postings) for page in pages] == [2, 2, 4, 2, 2]
        assert pages[2].postings == {"escrow:j1": -100, "earned:bank": 60, "fees": 6, "cash:acme": 34}
        assert [page.seq for page in journal.entries(session, books.house, before=3, most=2)] == [2, 1]
        assert journal.entries(session, books.house, before=0) == []
        salts = set(session.scalars(select(JournalEntry.salt)))
        assert len(salts) == 5 and {len(bytes.fromhex(salt)) for salt in salts} == {16}


def test_only_those_who_may_read_do(books: Books) -> None:
    blind = dataclasses.replace(books.acme, scopes=frozenset({"money", "jobs"}))
    with books.database.read() as session:
        for read in (journal.accounts_of, journal.statement, journal.lines):
            with pytest.raises(DeniedError, match="needs the right 'read'"):
                read(session, blind)
        with pytest.raises(DeniedError):
            journal.entries(session, dataclasses.replace(books.house, scopes=frozenset({"read"})))


def test_accounts_are_named_by_whose_they_are() -> None:
    assert (journal.cash("a"), journal.earned("a"), journal.escrow("j")) == ("cash:a", "earned:a", "escrow:j")


def test_an_account_holds_up_to_a_quintillion(sqlite_database: Database) -> None:
    with sqlite_database.begin() as session:
        join(session, "acme")
        deposit(session, "acme", MOST, "all")
        assert journal.balance(session, "cash:acme") == 10**18 == -journal.balance(session, "outside")
        with pytest.raises(ConflictError, match="would hold more than any account can: ask for less"):
            deposit(session, "acme", 1, "more")


def test_of_many_entries_a_hundred_are_shown_and_all_are_audited(books: Books) -> None:
    with books.database.begin() as session:
        for number in range(122):
            deposit(session, "acme", 1, f"more{number}")
    with books.database.read() as session:
        everything = list(journal.stored(session))
        assert [(line.seq, len(line.postings)) for line in everything[-2:]] == [(125, 2), (126, 2)]
        assert [one.seq for one in journal.statement(session, books.acme)] == list(range(126, 26, -1))
        assert [one.seq for one in journal.entries(session, books.house)] == list(range(126, 26, -1))
        assert journal.audit(session).message.startswith("127 entries and 256 postings replayed, all as recorded")
