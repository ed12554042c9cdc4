"""Deposits, payouts and withdrawals: who may ask, who may confirm, and never more than there is."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sqlalchemy import update

from databazaar.registry import MissingRuleError
from databazaar.service import cash, journal
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import CashRecord, now
from databazaar.service.errors import ConflictError, DeniedError, InvalidError, MissingError
from databazaar.service.settings import Settings
from row_locks import row_locks
from small_books import close, deposit, fund, join, new_job


@dataclass(frozen=True)
class People:
    acme: Caller
    bank: Caller
    house: Caller


@pytest.fixture
def manual(settings: Settings) -> Settings:
    return Settings(home=settings.home)


@pytest.fixture
def people(database: Database) -> People:
    """Acme has 150 in cash and Bank has earned 50."""
    with database.begin() as session:
        acme, bank = join(session, "acme", consumes=True), join(session, "bank", provides=True)
        deposit(session, "acme", 200, "first")
        new_job(session, acme, "j1")
        fund(session, "acme", "j1", 60)
        close(session, "acme", "j1", 60, {"bank": 50})
        return People(acme, bank, join(session, "house", operates=True))


def test_the_operator_confirms_a_deposit_once(database: Database, people: People, manual: Settings) -> None:
    with database.begin() as session:
        record = cash.request(session, people.acme, manual, "deposit", 100)
        assert (record.state, record.adapter, record.kind) == ("requested", "manual", "deposit")
        assert journal.balance(session, "cash:acme") == 150
    for reference in ("SEPA 17", "SEPA 17", ""):
        with database.begin() as session:
            done = cash.confirm(session, people.house, record.id, reference)
            assert (done.state, done.reference) == ("done", "SEPA 17") and done.decided_at is not None
            assert journal.balance(session, "cash:acme") == 250
    with database.begin() as session:
        with pytest.raises(ConflictError, match="was confirmed with the reference 'SEPA 17'"):
            cash.confirm(session, people.house, record.id, "SEPA 18")
        with pytest.raises(ConflictError, match="cannot be refused any more"):
            cash.refuse(session, people.house, record.id, "late")
        (page,) = journal.entries(session, people.house, most=1)
        assert (page.key, page.body) == (f"deposit:{record.id}", {"reference": "SEPA 17"})
        assert journal.audit(session).ok


def test_what_was_refused_stays_refused(database: Database, people: People, manual: Settings) -> None:
    with database.begin() as session:
        record = cash.request(session, people.bank, manual, "payout", 50)
        for reason in ("no such account", "again"):
            assert cash.refuse(session, people.house, record.id, reason).reason == "no such account"
        with pytest.raises(ConflictError, match="was refused: let the organisation ask anew"):
            cash.confirm(session, people.house, record.id)
        assert cash.available(session, "bank") == 50 == journal.balance(session, "earned:bank")


def test_never_more_than_there_is(database: Database, people: People, manual: Settings) -> None:
    with database.begin() as session:
        cash.request(session, people.bank, manual, "payout", 30)
        with pytest.raises(ConflictError, match="21 is asked for and 20 is left to ask for: ask for less"):
            cash.request(session, people.bank, manual, "payout", 21)
        cash.request(session, people.bank, manual, "payout", 20)
        with pytest.raises(ConflictError, match="1 is asked for and 0 is left"):
            cash.request(session, people.bank, manual, "payout", 1)
        with pytest.raises(ConflictError, match="1 is asked for and 0 is left"):
            cash.request(session, people.bank, manual, "withdraw", 1)
        cash.request(session, people.acme, manual, "withdraw", 150)
        for record in cash.records(session, people.house, state="requested"):
            assert cash.confirm(session, people.house, record.id).reference == ""
        balances = [journal.balance(session, name) for name in ("earned:bank", "cash:acme", "outside")]
        assert (
            balances == [0, 0, 0] == [cash.available(session, "bank"), cash.available(session, "acme", "withdraw"), 0]
        )
        assert journal.audit(session).ok


def test_what_others_have_asked_for_is_theirs(database: Database, people: People, manual: Settings) -> None:
    with database.begin() as session:
        cash.request(session, people.acme, manual, "withdraw", 10)
        cash.request(session, people.bank, manual, "payout", 20)
        left = [cash.available(session, slug, kind) for slug in ("acme", "bank") for kind in ("withdraw", "payout")]
        assert left == [140, 0, 0, 30]


def test_a_record_is_decided_as_it_is_now(database: Database, people: People, manual: Settings) -> None:
    """Not as this session has read it before."""
    with database.begin() as session:
        record = cash.request(session, people.acme, manual, "deposit", 5)
        session.execute(update(CashRecord).values(state="refused"), execution_options={"synchronize_session": False})
        with pytest.raises(ConflictError, match="was refused"):
            cash.confirm(session, people.house, record.id)


def test_cash_that_was_spent_meanwhile_is_not_paid_back(database: Database, people: People, manual: Settings) -> None:
    with database.begin() as session:
        record = cash.request(session, people.acme, manual, "withdraw", 150)
        new_job(session, people.acme, "j2")
        fund(session, "acme", "j2", 1)
    with pytest.raises(ConflictError, match="cash:acme holds 149 and cannot give 150"), database.begin() as session:
        cash.confirm(session, people.house, record.id)
    with database.read() as session:
        assert [one.state for one in cash.records(session, people.acme)] == ["requested"]


def test_two_who_ask_at_once_do_not_both_get_the_last(database: Database, people: People, manual: Settings) -> None:
    answers = []

    def ask() -> None:
        try:
            with database.begin() as session:
                cash.request(session, people.bank, manual, "payout", 40)
            answers.append("asked")
        except ConflictError:
            answers.append("too late")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["asked", "too late", "too late", "too late"]


def test_what_is_asked_for_and_what_is_decided_is_locked(database: Database, people: People, manual: Settings) -> None:
    """So that of two at once the second sees what the first has done."""
    with database.begin() as session:
        with row_locks(session) as locked:
            cash.request(session, people.acme, manual, "deposit", 5)
        assert locked == []
        with row_locks(session) as locked:
            record = cash.request(session, people.acme, manual, "withdraw", 5)
        assert locked == ["journal_head"]
        with row_locks(session) as locked:
            cash.confirm(session, people.house, record.id)
        assert locked == ["cash_records", "journal_head"]


def test_the_test_cashier_pays_at_once(database: Database, people: People, settings: Settings) -> None:
    with database.begin() as session:
        record = cash.request(session, people.acme, settings, "deposit", 5)
        assert (record.state, record.reference, record.adapter) == ("done", "test money", "test")
        cash.request(session, people.bank, settings, "payout", 50)
        cash.request(session, people.acme, settings, "withdraw", 155)
        assert journal.balance(session, "outside") == 0


def test_each_sees_its_own_and_only_the_operator_decides(database: Database, people: People, manual: Settings) -> None:
    with database.begin() as session:
        mine = cash.request(session, people.acme, manual, "deposit", 5)
        his = cash.request(session, people.bank, manual, "payout", 5)
        assert list(cash.records(session, people.acme)) == [mine] and list(cash.records(session, people.bank)) == [his]
        assert {record.id for record in cash.records(session, people.house)} == {mine.id, his.id}
        for caller in (people.acme, people.bank):
            with pytest.raises(DeniedError):
                cash.confirm(session, caller, mine.id)
            with pytest.raises(DeniedError):
                cash.refuse(session, caller, mine.id, "")
        with pytest.raises(MissingError):
            cash.confirm(session, people.house, "no such record")
        reader = Caller(people.bank.organisation_id, "bank", False, False, True, frozenset({"read"}))
        with pytest.raises(DeniedError, match="needs the right 'money'"):
            cash.request(session, reader, manual, "payout", 1)


@pytest.mark.parametrize("amount", [0, -1, 10**15 + 1, 1.0, True, "5", None])
def test_an_amount_is_a_number_of_minor_units(sqlite_database: Database, manual: Settings, amount: Any) -> None:
    with sqlite_database.begin() as session:
        acme = join(session, "acme")
        with pytest.raises(InvalidError, match="give a whole number of minor units"):
            cash.request(session, acme, manual, "deposit", amount)


def test_an_amount_may_be_as_large_as_the_bound(sqlite_database: Database, manual: Settings) -> None:
    with sqlite_database.begin() as session:
        acme = join(session, "acme")
        for amount in (1, 10**15):
            assert cash.request(session, acme, manual, "deposit", amount).amount == amount


def test_texts_have_an_end(sqlite_database: Database, manual: Settings) -> None:
    with sqlite_database.begin() as session:
        house = join(session, "house", operates=True)
        record = cash.request(session, house, manual, "deposit", 5)
        with pytest.raises(InvalidError, match="the reason has 1001 characters: write at most 1000"):
            cash.refuse(session, house, record.id, "x" * 1001)
    with sqlite_database.begin() as session, pytest.raises(InvalidError, match="the reference has 201 characters"):
        cash.confirm(session, house, record.id, "x" * 201)


def test_others_bring_theirs(sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cash.CASHIERS, "_own", {})

    @cash.CASHIERS.register
    @dataclass(frozen=True)
    class Small:
        """Lets small sums pass."""

        kind: ClassVar[str] = "small"

        def reference(self, record: CashRecord) -> str | None:
            return "small" if record.amount < 10 else None

    with sqlite_database.begin() as session:
        acme = join(session, "acme")
        ours = Settings(home=tmp_path, cash="small")
        assert [cash.request(session, acme, ours, "deposit", amount).state for amount in (9, 10)] == [
            "done",
            "requested",
        ]
        with pytest.raises(MissingRuleError, match="cashier kind 'smal' is unknown: did you mean 'small'"):
            cash.request(session, acme, Settings(home=tmp_path, cash="smal"), "deposit", 1)


def test_records_are_ones_own_the_newest_first_and_of_one_state(
    database: Database, people: People, manual: Settings
) -> None:
    with database.begin() as session:
        first, second = (cash.request(session, people.acme, manual, "deposit", amount) for amount in (1, 2))
        paid = cash.request(session, people.bank, manual, "payout", 3)
        cash.confirm(session, people.house, first.id, "R" * 200)
        made = {one.id: one.created_at for one in (first, second, paid)}
        listed = [one.id for one in cash.records(session, people.house)]
        assert listed == sorted(listed, key=lambda one: (-made[one].timestamp(), one)) and {*listed} == {*made}
        assert {one.id for one in cash.records(session, people.acme)} == {first.id, second.id}
        assert [one.id for one in cash.records(session, people.acme, "requested")] == [second.id]
        assert [one.id for one in cash.records(session, people.house, "done")] == [first.id]
        assert not cash.records(session, people.bank, "refused")


def test_the_newest_of_many_records_are_shown(
    sqlite_database: Database, manual: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one moment in the order of their ids, which is not that in which they were made."""
    with sqlite_database.begin() as session:
        house, moment = join(session, "house", operates=True), now()
        for id, age in (("d", 2), ("c", 2), ("b", 3), ("e", 1)):
            record = cash.request(session, house, manual, "deposit", 1)
            record.id, record.created_at = id * 32, moment - dt.timedelta(hours=age)
        session.flush()
        assert [one.id[0] for one in cash.records(session, house)] == ["e", "c", "d", "b"]
        monkeypatch.setattr(cash, "MOST_RECORDS", 3)
        assert [one.id[0] for one in cash.records(session, house)] == ["e", "c", "d"]
