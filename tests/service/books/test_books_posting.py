"""The journal, entry by entry."""

from __future__ import annotations

from databazaar.service import cash, journal
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job, Organisation
from databazaar.service.settings import Settings


def test_money_goes_round(database: Database, settings: Settings) -> None:
    with database.begin() as session:
        acme = Organisation(slug="acme", name="Acme", consumes=True)
        bank = Organisation(slug="bank", name="Bank", provides=True)
        session.add_all([acme, bank])
        session.flush()
        consumer, provider = Caller.of(acme), Caller.of(bank)
        job = Job(organisation_id=acme.id, name="j", spec={}, files={}, budget=100)
        session.add(job)
        session.flush()
        cash.request_deposit(session, consumer, settings, 1000)
        journal.post(session, "fund", f"fund:{job.id}", {"cash:acme": -110, f"escrow:{job.id}": 110}, job_id=job.id)
        closing = {f"escrow:{job.id}": -110, "earned:bank": 60, "fees": 6, "cash:acme": 44}
        journal.post(session, "close", f"close:{job.id}", closing, job_id=job.id, body={"run_head": "f" * 64})
        cash.request_payout(session, provider, settings, 60)
    with database.read() as session:
        assert journal.balance(session, "cash:acme") == 934
        found = journal.audit(session)
        assert found.ok and found.entries == 4, found.message
