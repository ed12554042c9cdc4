"""The journal against a plain dictionary: whatever is done in whatever order, with retries, both say the same."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import select

from databazaar.service import journal
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Account
from databazaar.service.errors import ConflictError
from small_books import RUN_HEAD, join, new_job

NUMBERS = itertools.count()
WHO, AMOUNT = st.integers(0, 2), st.integers(1, 60)


class Books(RuleBasedStateMachine):
    """Three organisations that nobody else in this database knows. `model` is their balances, `entries` all that was
    posted for them, by key."""

    database: Database

    def __init__(self) -> None:
        super().__init__()
        self.tag = f"m{next(NUMBERS)}"
        self.slugs = [f"{self.tag}-{who}" for who in range(3)]
        with self.database.begin() as session:
            self.callers = [join(session, slug) for slug in self.slugs]
            self.fees, self.outside = journal.balance(session, "fees"), journal.balance(session, "outside")
        self.model: dict[str, int] = {}
        self.entries: dict[str, tuple[str, dict[str, int], str | None, dict[str, Any]]] = {}
        self.open: dict[str, int] = {}

    def act(
        self, kind: str, key: str, moved: dict[str, int], job: str | None = None, body: dict[str, Any] | None = None
    ) -> bool:
        """Posts, and expects what the model expects; whether it was taken."""
        after = {name: self.model.get(name, 0) + amount for name, amount in moved.items()}
        possible = all(balance >= 0 or name == "outside" for name, balance in after.items())
        with self.database.begin() as session:
            try:
                journal.post(session, kind, key, moved, job_id=job, body=body)
                taken = True
            except ConflictError:
                taken = False
        assert taken == possible, (kind, moved)
        if taken:
            self.model |= after
            self.entries[key] = kind, moved, job, body or {}
        return taken

    @rule(who=WHO, amount=AMOUNT)
    def deposit(self, who: int, amount: int) -> None:
        key = f"deposit:{self.tag}-{len(self.entries)}"
        assert self.act("deposit", key, {"outside": -amount, f"cash:{self.slugs[who]}": amount})

    @rule(who=WHO, amount=AMOUNT, kind=st.sampled_from(["payout", "withdraw"]))
    def take_out(self, who: int, amount: int, kind: str) -> None:
        account = f"{'earned' if kind == 'payout' else 'cash'}:{self.slugs[who]}"
        self.act(kind, f"{kind}:{self.tag}-{len(self.entries)}", {account: -amount, "outside": amount})

    @rule(who=WHO, amount=AMOUNT)
    def fund(self, who: int, amount: int) -> None:
        job = f"{self.tag}j{next(NUMBERS)}"
        with self.database.begin() as session:
            new_job(session, self.callers[who], job, amount)
        if self.act("fund", f"fund:{job}", {f"cash:{self.slugs[who]}": -amount, f"escrow:{job}": amount}, job):
            self.open[job] = who

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.open)))
        escrow, owner = self.model[f"escrow:{job}"], self.open.pop(job)
        cuts = sorted(data.draw(st.lists(st.integers(0, escrow), min_size=3, max_size=3)))
        parts = [cuts[0], cuts[1] - cuts[0], cuts[2] - cuts[1], escrow - cuts[2]]
        names = [f"earned:{self.slugs[0]}", f"earned:{self.slugs[1]}", "fees", f"cash:{self.slugs[owner]}"]
        moved = {f"escrow:{job}": -escrow, **dict(zip(names, parts, strict=True))}
        assert self.act("close", f"close:{job}", moved, job, {"run_head": RUN_HEAD})

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.entries)))
        kind, moved, job, body = self.entries[key]
        with self.database.begin() as session:
            before = journal.lock(session).seq
            assert journal.post(session, kind, key, moved, job_id=job, body=body).seq <= before
            assert journal.lock(session).seq == before

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), how=st.sampled_from(["amount", "body"]))
    def conflicting_retry(self, data: st.DataObject, how: str) -> None:
        key = data.draw(st.sampled_from(sorted(self.entries)))
        kind, moved, job, body = self.entries[key]
        if how == "amount":
            moved = {name: 2 * amount for name, amount in moved.items()}
        else:
            body = {**body, "another": 1}
        with self.database.begin() as session, pytest.raises(ConflictError, match="with another content"):
            journal.post(session, kind, key, moved, job_id=job, body=body)

    @invariant()
    def both_agree(self) -> None:
        before = {"fees": self.fees, "outside": self.outside}
        with self.database.read() as session:
            found = session.execute(select(Account).where(Account.name.in_(self.model))).scalars()
            kept = {account.name: account.balance for account in found}
        for name, balance in self.model.items():
            assert kept.get(name, 0) == balance + before.get(name, 0), name

    def teardown(self) -> None:
        with self.database.read() as session:
            found = journal.audit(session)
            assert found.ok, found.message


def test_the_journal_is_a_dictionary_with_a_memory(database: Database) -> None:
    machine = type("BooksHere", (Books,), {"database": database})
    run_state_machine_as_test(machine, settings=settings(max_examples=8, stateful_step_count=25))
