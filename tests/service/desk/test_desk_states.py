"""What follows when a job or a contract enters a state: its times, its reasons, its events, and who is told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from databazaar.codes import Code
from databazaar.service.caller import Caller
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Contract, Job, JobEvent, Offer, OfferVersion, Outgoing, Webhook, now
from databazaar.service.errors import ConflictError, MissingError
from databazaar.service.lifecycle import (
    ContractState,
    JobState,
    contracts_of,
    enter,
    enter_contract,
    locked_job,
    noted,
    stays,
    tell_parties,
)
from row_locks import row_locks
from small_books import join, new_job

SILENT: Any = {"synchronize_session": False}
WORDS, LONG = Code.of("own-words", text="the weather turned"), "x" * 1001


@dataclass
class Deal:
    """A job of acme's with contracts with two providers, in the order of their offers; each listens to its events."""

    session: Session
    job: Job
    contracts: list[Contract]
    parties: list[Caller]

    def told(self, of: Caller) -> list[dict[str, Any]]:
        own = select(Outgoing).join(Webhook, Outgoing.webhook_id == Webhook.id)
        found = self.session.scalars(own.where(Webhook.organisation_id == of.organisation_id)).all()
        return [{"event": one.event, **one.body} for one in found]


@pytest.fixture
def deal(sqlite_database: Database) -> Iterator[Deal]:
    with sqlite_database.begin() as session:
        acme, *providers = (join(session, slug) for slug in ("acme", "bank", "clinic"))
        job, contracts = new_job(session, acme, "j1"), list[Contract]()
        for number, provider in zip("21", providers, strict=True):
            terms = {"organisation_id": provider.organisation_id, "policy": {}, "kind": "file", "name": "O"}
            session.add(Offer(id=f"o{number}", slug=f"o{number}", **terms))
            session.flush()
            session.add(OfferVersion(id=f"v{number}", offer_id=f"o{number}", number=1, columns=[]))
            session.flush()
            sides = {"consumer_id": acme.organisation_id, "provider_id": provider.organisation_id}
            about = {"offer_id": f"o{number}", "version_id": f"v{number}", "expires_at": now(), "terms": {}}
            contracts.append(Contract(id=f"c{number}", job_id="j1", price=2, **about, **sides))
        job.offers = ["o2", "o1"]
        session.add_all(contracts)
        for party in (acme, *providers):
            session.add(Webhook(organisation_id=party.organisation_id, url="https://x.example", secret="s"))
        session.flush()
        yield Deal(session, job, contracts, [acme, *providers])


def test_a_job_is_locked_as_it_is_now(deal: Deal) -> None:
    deal.session.execute(update(Job).values(state="submitted"), execution_options=SILENT)
    assert deal.job.state == "draft"
    with row_locks(deal.session) as locked:
        assert locked_job(deal.session, "j1") is deal.job and deal.job.state == "submitted"
    assert locked == ["jobs"]
    with pytest.raises(MissingError, match="there is no such job"):
        locked_job(deal.session, "j2")


def test_contracts_stand_in_the_order_in_which_their_offers_were_chosen(deal: Deal) -> None:
    new_job(deal.session, deal.parties[0], "j2")
    second, first = deal.contracts
    assert contracts_of(deal.session, deal.job) == [second, first]
    for offers, expected in ((["o1", "o2"], [first, second]), (["o2"], [second, first]), ([], [first, second])):
        deal.job.offers = offers
        assert contracts_of(deal.session, deal.job) == expected
    assert contracts_of(deal.session, deal.session.get_one(Job, "j2")) == []
    deal.session.execute(update(Contract).values(state="agreed"), execution_options=SILENT)
    with row_locks(deal.session) as locked:
        assert {one.state for one in contracts_of(deal.session, deal.job)} == {"requested"}
        assert locked == []
        assert {one.state for one in contracts_of(deal.session, deal.job, lock=True)} == {"agreed"}
    assert locked == ["contracts"]


def test_a_job_enters_states_that_may_follow_and_each_is_an_event(deal: Deal) -> None:
    deal.job.changed_at = long_ago = now() - dt.timedelta(days=1)
    with pytest.raises(ConflictError, match="the job is draft and cannot become running now"):
        enter(deal.session, deal.job, JobState.RUNNING)
    assert (deal.job.state, deal.job.changed_at) == ("draft", long_ago)
    event = enter(deal.session, deal.job, JobState.SUBMITTED)
    assert deal.job.state == event.state == "submitted" and deal.job.changed_at > long_ago
    assert (event.job_id, event.number, event.detail, event.code) == ("j1", 1, "", "")
    assert (enter(deal.session, deal.job, JobState.AGREED).number, event.number) == (2, 1)
    new_job(deal.session, deal.parties[0], "j2")
    other = enter(deal.session, deal.session.get_one(Job, "j2"), JobState.SUBMITTED)
    assert (other.job_id, other.number) == ("j2", 1), "of each job by itself"
    assert deal.told(deal.parties[0]) == [
        {"event": "job", "job": id, "name": "job", "state": state, "detail": "", "code": "", "number": number}
        for id, state, number in (("j1", "submitted", 1), ("j1", "agreed", 2), ("j2", "submitted", 1))
    ]
    assert deal.told(deal.parties[1]) == []


def test_a_reason_is_kept_until_another_or_until_what_it_was_for_is_over(deal: Deal) -> None:
    job = deal.job

    def reason() -> tuple[str, str]:
        return job.reason, job.reason_code

    event = enter(deal.session, job, JobState.SUBMITTED, WORDS)
    assert reason() == (event.detail, event.code) == ("the weather turned", "own-words")
    event = enter(deal.session, job, JobState.AGREED)
    assert reason() == ("the weather turned", "own-words") and (event.detail, event.code) == ("", "")
    event = enter(deal.session, job, JobState.FUNDED, LONG)
    assert reason() == (event.detail, event.code) == ("x" * 1000, "own-words"), "the job's own code"
    enter(deal.session, job, JobState.QUEUED)
    assert reason() == ("x" * 1000, "own-words")
    enter(deal.session, job, JobState.RUNNING)
    assert reason() == ("", "")
    enter(deal.session, job, JobState.SETTLING, WORDS)
    enter(deal.session, job, JobState.SETTLED)
    assert reason() == ("", "")


@pytest.mark.parametrize("state", [JobState.REFUNDED, JobState.FAILED])
def test_the_contracts_of_a_job_end_with_it(deal: Deal, state: JobState) -> None:
    second, first = deal.contracts
    enter_contract(deal.session, first, ContractState.REFUSED, "no")
    enter(deal.session, deal.job, JobState.SUBMITTED)
    assert (second.state, first.state, second.ended_at) == ("requested", "refused", None)
    with row_locks(deal.session) as locked:
        enter(deal.session, deal.job, state, WORDS)
    assert locked == ["contracts"]
    assert (second.state, first.state) == ("ended", "refused")
    assert second.ended_at is not None and first.ended_at is None
    assert (deal.job.reason, deal.job.reason_code) == ("the weather turned", "own-words")


def test_words_are_noted_without_a_code(deal: Deal) -> None:
    event = noted(deal.session, deal.job, "its files were looked at")
    assert (event.detail, event.code) == ("its files were looked at", "")


def test_why_a_job_stays_where_it_is_is_noted_once(deal: Deal) -> None:
    long = Code.of("own-words", text=LONG)
    for why in (WORDS, WORDS, long, long, Code.of("budget-spent")):
        stays(deal.session, deal.job, why)
    assert (deal.job.state, deal.job.reason_code) == ("draft", "budget-spent")
    assert deal.job.reason == "the budget is spent"
    events = deal.session.scalars(select(JobEvent).order_by(JobEvent.number)).all()
    assert [(event.number, event.state, event.code) for event in events] == [
        (1, "draft", "own-words"),
        (2, "draft", "own-words"),
        (3, "draft", "budget-spent"),
    ]
    assert [event.detail for event in events] == ["the weather turned", "x" * 1000, "the budget is spent"]
    assert [one["code"] for one in deal.told(deal.parties[0])] == ["own-words", "own-words", "budget-spent"]


DECIDED, ENDED = {"decided_at"}, {"ended_at"}


@pytest.mark.parametrize(
    ("states", "times"),
    [
        (["agreed"], DECIDED),
        (["refused"], DECIDED),
        (["expired"], DECIDED),
        (["ended"], ENDED),
        (["agreed", "active"], DECIDED),
        (["agreed", "active", "ended"], DECIDED | ENDED),
    ],
)
def test_a_contract_notes_when_it_was_decided_and_when_it_ended(deal: Deal, states: list[str], times: set[str]) -> None:
    contract, other = deal.contracts
    for state in states:
        before = {name: getattr(contract, name) for name in DECIDED | ENDED}
        enter_contract(deal.session, contract, ContractState(state))
        kept = {name for name, time in before.items() if time is not None}
        assert all(getattr(contract, name) == before[name] for name in kept)
    assert contract.state == states[-1] and other.state == "requested"
    assert {name for name in DECIDED | ENDED if getattr(contract, name) is not None} == times


def test_both_who_have_made_a_contract_are_told_of_it_and_nobody_else(deal: Deal) -> None:
    acme, bank, clinic = deal.parties
    contract, _ = deal.contracts
    enter_contract(deal.session, contract, ContractState.AGREED, LONG)
    assert contract.reason == "x" * 1000
    enter_contract(deal.session, contract, ContractState.ENDED)
    assert contract.reason == "x" * 1000, "without another it stays"
    told = [
        {
            "event": "contract",
            "contract": "c2",
            "job": "j1",
            "offer": "o2",
            "state": state,
            "reason": "x" * 1000,
        }
        for state in ("agreed", "ended")
    ]
    assert deal.told(acme) == deal.told(bank) == told and deal.told(clinic) == []
    with pytest.raises(ConflictError, match="the contract is ended and cannot become agreed now"):
        enter_contract(deal.session, contract, ContractState.AGREED)
    assert deal.told(acme) == told
    contract.provider_id = contract.consumer_id
    tell_parties(deal.session, contract)
    assert len(deal.told(acme)) == 3, "who is both is told once"
