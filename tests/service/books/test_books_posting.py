"""The journal, entry by entry: what it takes, what it refuses, and that it then is as it was."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from databazaar.service import journal
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import JournalHead
from databazaar.service.errors import ConflictError, DeniedError
from databazaar.service.journal import JournalError
from row_locks import row_locks
from small_books import close, deposit, fund, join, new_job


def balances(session: Session) -> dict[str, int]:
    operator = Caller("0" * 32, "operator", True, False, False, frozenset({"read", "operate"}))
    names = {account for page in journal.entries(session, operator) for account in page.postings}
    return {name: journal.balance(session, name) for name in names}


@pytest.fixture
def market(database: Database) -> Database:
    """Acme has 1000 and a job with 100 in escrow."""
    with database.begin() as session:
        acme = join(session, "acme", consumes=True)
        join(session, "bank", provides=True)
        deposit(session, "acme", 1000, "1")
        new_job(session, acme, "j1")
        fund(session, "acme", "j1", 100)
    return database


def test_a_job_from_deposit_to_payout(market: Database) -> None:
    with market.begin() as session:
        entry = close(session, "acme", "j1", 100, {"bank": 60}, fee=6)
        journal.post(session, "payout", "payout:1", {"earned:bank": -60, "outside": 60})
        journal.post(session, "withdraw", "withdraw:1", {"cash:acme": -34, "outside": 34})
        assert entry.seq == 2
    with market.read() as session:
        expected = {"outside": -906, "cash:acme": 900, "escrow:j1": 0, "earned:bank": 0, "fees": 6}
        assert balances(session) == expected
        found = journal.audit(session)
        assert (found.ok, found.entries) == (True, 5), found.message
        assert found.message == "5 entries and 12 postings replayed, all as recorded; the books sum to zero"


def test_the_same_again_is_the_same_entry(market: Database) -> None:
    with market.begin() as session:
        first = close(session, "acme", "j1", 100, {"bank": 60})
    with market.begin() as session:
        again = close(session, "acme", "j1", 100, {"bank": 60, "nobody": 0})
        assert (again.seq, again.hash, again.at) == (first.seq, first.hash, first.at)
    with market.begin() as session, pytest.raises(ConflictError, match="close:j1 is in the journal with another"):
        close(session, "acme", "j1", 100, {"bank": 61})
    with market.read() as session:
        assert journal.balance(session, "earned:bank") == 60 and journal.audit(session).entries == 3


def test_an_entry_follows_the_one_that_is_the_last_now(market: Database) -> None:
    """Not the one that this session has read before."""
    with market.begin() as session:
        head = journal.lock(session)
        was = head.hash
        session.execute(update(JournalHead).values(hash="0" * 64), execution_options={"synchronize_session": False})
        with row_locks(session) as locked:
            assert head.hash == was and journal.lock(session) is head and head.hash == "0" * 64
        assert locked == ["journal_head"]


def test_nobody_writes_while_the_journal_is_read_by_who_may_write(market: Database) -> None:
    with market.begin() as session, row_locks(session) as locked:
        assert len(list(journal.stored(session))) == 2
        assert locked == ["journal_head"]
    with market.read() as session, row_locks(session) as locked:
        assert len(list(journal.stored(session))) == 2
        assert locked == []


def test_several_entries_of_one_transaction_follow_each_other(market: Database) -> None:
    with market.begin() as session:
        for _ in range(2):
            one = journal.post(session, "deposit", "deposit:a", {"outside": -5, "cash:bank": 5})
            moved, body = {"outside": 4, "cash:bank": -4}, {"why": [1.5, None, "ü"]}
            two = journal.post(session, "withdraw", "withdraw:a", moved, body=body)
            again = journal.post(session, "deposit", "deposit:a", {"outside": -5, "cash:bank": 5})
            assert one is again and two.seq == one.seq + 1
        assert journal.balance(session, "cash:bank") == 1
    with market.read() as session:
        assert journal.audit(session).entries == 4


def test_what_is_refused_leaves_nothing_even_if_the_transaction_goes_on(market: Database) -> None:
    with market.begin() as session:
        deposit(session, "bank", 5, "a")
        with pytest.raises(ConflictError, match="cash:bank holds 5 and cannot give 6: bring in more first"):
            journal.post(session, "withdraw", "withdraw:a", {"outside": 6, "cash:bank": -6})
        deposit(session, "acme", 1, "after")
    with market.read() as session:
        assert journal.balance(session, "cash:bank") == 5 and journal.balance(session, "cash:acme") == 901
        assert journal.audit(session).ok


@pytest.mark.parametrize(
    ("kind", "key", "job", "moved", "sentence"),
    [
        ("gift", "gift:1", None, {"outside": -1, "cash:acme": 1}, "no entries of the kind 'gift'"),
        ("deposit", "payout:1", None, {"outside": -1, "cash:acme": 1}, "its key 'payout:1' is not one of a deposit"),
        ("deposit", "deposit:2", "j1", {"outside": -1, "cash:acme": 1}, "its key 'deposit:2' is not one of a deposit"),
        ("close", "close:j2", "j1", {"escrow:j1": -100, "fees": 100}, "its key 'close:j2' is not that of job j1"),
        ("close", "close:j1", "j1", {"escrow:j1": -99, "fees": 99}, "it would leave 1 in the escrow"),
        ("close", "close:j1", "j1", {"escrow:j1": -1, "fees": 1}, "it would leave 99 in the escrow"),
        ("close", "close:j1", "j1", {"escrow:j1": -100, "cash:bank": 100}, "between two organisations' cash"),
        ("close", "close:j1", "j1", {"escrow:j1": -100, "fees": 99}, "sum to -1, and not to zero"),
        ("close", "close:j1", "j1", {"escrow:j1": -100, "outside": 100}, "a close brings nothing to outside"),
        ("deposit", "deposit:2", None, {"outside": -1, "earned:bank": 1}, "brings nothing to earned:bank"),
        ("payout", "payout:1", None, {"cash:acme": -1, "outside": 1}, "a payout takes nothing from cash:acme"),
        ("deposit", "deposit:2", None, {"outside": -2, "cash:acme": 1, "cash:bank": 1}, "is between two accounts"),
        ("deposit", "deposit:2", None, {"outside": 0, "cash:acme": 0}, "a deposit is between two accounts"),
        ("fund", "fund:j1", "j1", {"cash:acme": -1, "escrow:j9": 1}, "nobody whose account 'escrow:j9' could be"),
        ("deposit", "deposit:2", None, {"outside": -1, "cash:nobody": 1}, "nobody whose account 'cash:nobody'"),
        ("deposit", "deposit:2", None, {"outside": -1, "loot": 1}, "nobody whose account 'loot' could be"),
    ],
)
def test_what_no_journal_may_hold(
    sqlite_database: Database, kind: str, key: str, job: str | None, moved: dict[str, int], sentence: str
) -> None:
    with sqlite_database.begin() as session:
        acme = join(session, "acme", consumes=True)
        join(session, "bank", provides=True)
        deposit(session, "acme", 1000, "1")
        new_job(session, acme, "j1")
        if kind != "fund":
            fund(session, "acme", "j1", 100)
        before = balances(session)
        with pytest.raises(JournalError, match=sentence):
            journal.post(session, kind, key, moved, job_id=job)
        assert balances(session) == before
    assert JournalError.status == 500


def test_one_jobs_escrow_is_not_anothers(market: Database) -> None:
    with market.begin() as session:
        acme = join(session, "other")
        new_job(session, acme, "j2")
        moved = {"cash:acme": -5, "escrow:j2": 5}
        with pytest.raises(JournalError, match="between two organisations' cash and escrow"):
            journal.post(session, "fund", "fund:j2", moved, job_id="j2")
        with pytest.raises(JournalError, match="a close of job j2 does not touch escrow:j1"):
            journal.post(session, "close", "close:j2", {"escrow:j1": -100, "cash:other": 100}, job_id="j2")


def test_no_account_holds_more_than_its_column(market: Database) -> None:
    with market.begin() as session, pytest.raises(ConflictError, match="outside would hold more than any account"):
        deposit(session, "acme", 10**18, "much")
    for body in ({"x": float("nan")}, {"x": {1}}):
        bad: Any = body
        with market.begin() as session, pytest.raises((ValueError, TypeError)):
            journal.post(session, "deposit", "deposit:9", {"outside": -1, "cash:acme": 1}, body=bad)


def test_everybody_sees_its_own(market: Database) -> None:
    with market.begin() as session:
        close(session, "acme", "j1", 100, {"bank": 60}, fee=6)
        operator = join(session, "house", operates=True)
        acme, bank = join(session, "acme2", consumes=True), join(session, "bank2", provides=True)
    with market.read() as session:
        assert journal.statement(session, acme) == [] and not journal.accounts_of(session, bank)
        owners = {account.name: account.organisation_id for account in journal.accounts_of(session, operator)}
        assert owners == {"fees": None, "outside": None}
        assert [(m.seq, m.account, m.amount) for m in journal.statement(session, operator, most=2)] == [
            (2, "fees", 6),
            (0, "outside", -1000),
        ]
        pages = journal.entries(session, operator, before=2, most=1)
        expected = {"cash:acme": -100, "escrow:j1": 100}
        assert [(page.key, page.postings) for page in pages] == [("fund:j1", expected)]
        with pytest.raises(DeniedError):
            journal.entries(session, acme)


def test_a_consumer_sees_cash_and_escrow_and_a_provider_its_pay(database: Database) -> None:
    with database.begin() as session:
        acme, bank = join(session, "acme", consumes=True), join(session, "bank", provides=True)
        deposit(session, "acme", 1000, "1")
        new_job(session, acme, "j1")
        fund(session, "acme", "j1", 100)
        head = close(session, "acme", "j1", 100, {"bank": 60}).hash
        assert [account.name for account in journal.accounts_of(session, acme)] == ["cash:acme", "escrow:j1"]
        (pay,) = journal.statement(session, bank)
        assert (pay.account, pay.amount, pay.kind, pay.job_id, pay.hash) == ("earned:bank", 60, "close", "j1", head)
        seen = [(m.kind, m.account, m.amount) for m in journal.statement(session, acme, before=2)]
        assert seen == [("fund", "cash:acme", -100), ("fund", "escrow:j1", 100), ("deposit", "cash:acme", 1000)]
