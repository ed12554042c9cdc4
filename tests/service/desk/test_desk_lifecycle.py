"""Jobs and contracts under any order of deeds: states that may follow, escrows full or empty, books that sum up."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from databazaar.service import contracts, jobs, journal, members, offers, submission
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Account, Contract, Job, JobEvent, Organisation, now
from databazaar.service.errors import ConflictError, InvalidError
from databazaar.service.jobs import escrow_of
from databazaar.service.lifecycle import NEXT_OF_JOB, OVER, ContractState, JobState, contracts_of, enter
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings
from desk_market import SPEC, DeskMarket, desk_market, table

ESCROWED = frozenset({JobState.FUNDED, JobState.QUEUED, JobState.RUNNING, JobState.SETTLING})
"""The states of a job whose escrow is full."""
NUMBERS = st.integers(0, 99)
UNFUNDED = {JobState.DRAFT, JobState.SUBMITTED, JobState.AGREED}
STOPPABLE = {JobState.FUNDED, JobState.QUEUED, JobState.RUNNING}


class Lives(RuleBasedStateMachine):
    """Everybody does anything at any time. Where a deed is done, the job was in a state that allows it."""

    market: DeskMarket
    holdout: str

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[str] = []
        self.pay_in(200)
        self.draft({"north-sales", "south-sales"}, own=False)

    def attempt(self, number: int, deed: Callable[[Session, Job], Any], allowed: set[JobState]) -> None:
        with self.market.database.read() as session:
            before = JobState(session.get_one(Job, self.jobs[number % len(self.jobs)]).state)
        try:
            with self.market.database.begin() as session:
                deed(session, session.get_one(Job, self.jobs[number % len(self.jobs)]))
            assert before in allowed
        except (ConflictError, InvalidError):
            pass

    @property
    def buyer(self) -> Any:
        return self.market["buyer"]

    @rule(chosen=st.sets(st.sampled_from(["north-sales", "south-sales"]), min_size=1), own=st.booleans())
    def draft(self, chosen: set[str], own: bool) -> None:
        if len(self.jobs) < 4:
            files = {} if own else {"holdout": self.holdout}
            given: dict[str, Any] = {"spec": SPEC, "files": files, "mode": "own" if own else "hosted"}
            with self.market.database.begin() as session:
                given["offers"] = sorted(chosen)
                self.jobs.append(jobs.draft(session, self.buyer, self.market.settings, name="Job", **given).id)

    @rule(number=NUMBERS, budget=st.integers(10, 90))
    def change(self, number: int, budget: int) -> None:
        spec = {**SPEC, "market": {**SPEC["market"], "budget": f"0.{budget}"}}
        hub = self.market.settings
        self.attempt(number, lambda s, j: jobs.change(s, self.buyer, hub, j.id, spec=spec), {JobState.DRAFT})

    @rule(number=NUMBERS)
    def submit(self, number: int) -> None:
        hub = self.market.settings
        self.attempt(number, lambda s, j: submission.submit(s, self.buyer, hub, j.id), {JobState.DRAFT})

    @rule(slug=st.sampled_from(["north", "south"]), number=NUMBERS, agree=st.booleans())
    def decide(self, slug: str, number: int, agree: bool) -> None:
        with self.market.database.begin() as session:
            asked = contracts.own_contracts(session, self.market[slug], state=ContractState.REQUESTED, party="provider")
            if asked:
                contracts.decide(session, self.market[slug], asked[number % len(asked)].id, agree)

    @rule()
    def let_time_pass(self) -> None:
        with self.market.database.begin() as session:
            past = now() - dt.timedelta(days=1)
            asked = update(Contract).where(Contract.state == "requested", Contract.job_id.in_(self.jobs[:1]))
            session.execute(asked.values(expires_at=past))
            contracts.expire_due(session)

    @rule(slug=st.sampled_from(["north", "south"]), hand=st.booleans(), price=st.integers(1, 9))
    def change_policy(self, slug: str, hand: bool, price: int) -> None:
        policy = Policy(price=price, approval="by hand" if hand else "automatic")
        with self.market.database.begin() as session:
            (offer,) = offers.own_offers(session, self.market[slug])
            offers.change_policy(session, self.market[slug], offer.id, policy)

    @rule(amount=st.integers(1, 60))
    def pay_in(self, amount: int) -> None:
        with self.market.database.begin() as session:
            self.market.pay_in(session, "buyer", amount)

    @rule(fee=st.integers(0, 10_000))
    def set_fee(self, fee: int) -> None:
        with self.market.database.begin() as session:
            members.set_fee(session, self.market["hub"], fee)

    @rule(number=NUMBERS)
    def fund(self, number: int) -> None:
        self.attempt(number, lambda s, j: jobs.fund(s, self.buyer, j.id), {JobState.AGREED})

    @rule(number=NUMBERS)
    def stop(self, number: int) -> None:
        self.attempt(number, lambda s, j: jobs.stop(s, self.buyer, self.market.settings, j.id), STOPPABLE)

    @rule(number=NUMBERS)
    def withdraw(self, number: int) -> None:
        self.attempt(number, lambda s, j: jobs.withdraw(s, self.buyer, j.id), UNFUNDED)

    @rule(number=NUMBERS, state=st.sampled_from(sorted(ESCROWED - {JobState.FUNDED})))
    def hub_does(self, number: int, state: JobState) -> None:
        allowed = {before for before, after in NEXT_OF_JOB.items() if state in after}
        self.attempt(number, lambda s, j: enter(s, j, state), allowed)

    @rule(number=NUMBERS, steps=st.integers(1, 6))
    def go_on(self, number: int, steps: int) -> None:
        """What usually comes next, so that later states are reached often."""
        for _ in range(steps):
            with self.market.database.read() as session:
                state = JobState(session.get_one(Job, self.jobs[number % len(self.jobs)]).state)
            if state == JobState.DRAFT:
                self.submit(number)
            elif state == JobState.SUBMITTED:
                self.decide("north", 0, agree=number % 3 == 0)
                self.decide("south", 0, agree=number % 2 == 0)
            elif state == JobState.AGREED:
                self.fund(number)
            elif state == JobState.SETTLING:
                self.settle(number, number, JobState.SETTLED)
            elif state not in OVER:
                self.hub_does(number, JobState.SETTLING if state == JobState.RUNNING else JobState.RUNNING)

    @rule(number=NUMBERS, share=st.integers(0, 100), state=st.sampled_from(sorted(OVER)))
    def settle(self, number: int, share: int, state: JobState) -> None:
        def close(session: Session, job: Job) -> None:
            if job.state != JobState.SETTLING:
                raise ConflictError("it does not settle")
            active = [c for c in contracts_of(session, job) if c.state == ContractState.ACTIVE]
            payee = session.get_one(Organisation, active[0].provider_id).slug
            paid = job.budget * share // 100
            fee = escrow_of(paid, job.fee_basis_points) - paid
            rest = job.escrow - paid - fee
            assert rest >= 0
            enter(session, job, state)
            moved = {journal.escrow(job.id): -job.escrow, journal.earned(payee): paid, "fees": fee}
            journal.post(session, "close", f"close:{job.id}", {**moved, journal.cash("buyer"): rest}, job_id=job.id)

        self.attempt(number, close, {JobState.SETTLING})

    @invariant()
    def states_follow_and_escrows_are_full_or_empty(self) -> None:
        with self.market.database.read() as session:
            for job in session.scalars(select(Job).where(Job.id.in_(self.jobs))):
                events = select(JobEvent.state).where(JobEvent.job_id == job.id).order_by(JobEvent.number)
                states = [JobState(state) for state in session.scalars(events)]
                assert states[0] == JobState.DRAFT and states[-1] == job.state
                assert all(after == before or after in NEXT_OF_JOB[before] for before, after in pairwise(states))
                held = journal.balance(session, journal.escrow(job.id))
                full = escrow_of(job.budget, job.fee_basis_points)
                assert held == (full if job.state in ESCROWED else 0)
                self._contracts_fit(job, {c.state for c in contracts_of(session, job)})

    @staticmethod
    def _contracts_fit(job: Job, found: set[str]) -> None:
        decided = {"refused", "expired"}
        if job.state == JobState.DRAFT:
            assert not found
        elif job.state == JobState.SUBMITTED:
            assert "requested" in found and found <= {"requested", "agreed", *decided}
        elif job.state == JobState.AGREED:
            assert "agreed" in found and found <= {"agreed", *decided}
        elif job.state in ESCROWED:
            assert "active" in found and found <= {"active", *decided}
        else:
            assert found <= {"ended", *decided}

    @invariant()
    def books_sum_to_zero(self) -> None:
        with self.market.database.read() as session:
            balances = {account.name: account.balance for account in session.scalars(select(Account))}
        assert sum(balances.values()) == 0
        assert all(balance >= 0 for name, balance in balances.items() if name != "outside")


@pytest.mark.parametrize(
    ("kind", "examples"), [("sqlite", 15), pytest.param("postgresql", 2, marks=pytest.mark.process)]
)
def test_any_order_of_deeds(
    kind: str, examples: int, make_url: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    database = Database(make_url(kind))
    market = desk_market(database, Settings(home=tmp_path_factory.mktemp("hub")))
    with database.begin() as session:
        market.offer(session, "north", 1)
        market.offer(session, "south", 2)
        uploaded = market.upload(session, "buyer", table(9, 80))

    class Here(Lives):
        pass

    Here.market, Here.holdout = market, uploaded
    few = settings(max_examples=examples, stateful_step_count=25, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Here, settings=few)
    with database.read() as session:
        assert journal.audit(session).ok
        reached = {JobState(state) for state in session.scalars(select(JobEvent.state))}
    database.dispose()
    assert kind == "postgresql" or reached == set(JobState)
