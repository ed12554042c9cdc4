"""Jobs: drafts that are checked, quotes, escrow, stopping and withdrawing."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from databazaar.config.market_file import load_market, parse_market
from databazaar.defence import Defence
from databazaar.service import cash, contracts, jobs, journal, members, offers, submission
from databazaar.service.database.tables import File, Job, JobEvent, now
from databazaar.service.errors import ConflictError, DeniedError, InvalidError, MissingError, TooManyError
from databazaar.service.hub.folder import write_market
from databazaar.service.jobs import expected_wait
from databazaar.service.lifecycle import ContractState, JobState, contracts_of, enter, enter_contract, locked_job
from databazaar.service.notary.commands import about_job
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings
from databazaar.service.table_reader import read_apart
from desk_market import SPEC, DeskMarket, table


def drafted(market: DeskMarket, session: Session, *chosen: str, **given: Any) -> Job:
    named = given.pop("files", None)
    if named is None:
        named = {"holdout": market.upload(session, "buyer", table(9, 80))}
    given = {"name": "Late parcels", "spec": SPEC, "files": named, "offers": chosen, **given}
    return jobs.draft(session, market["buyer"], market.settings, **given)


def agreed(market: DeskMarket, session: Session, **given: Any) -> Job:
    """A job whose one provider has agreed."""
    try:
        offers.listing(session, market["buyer"], "north-sales")
    except MissingError:
        market.offer(session, "north", 1)
    job = drafted(market, session, "north-sales", **given)
    return submission.submit(session, market["buyer"], market.settings, job.id)


def spec(section: str, **settings: Any) -> dict[str, Any]:
    return {**SPEC, section: {**SPEC.get(section, {}), **settings}}


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"spec": spec("market", budget="0.001")}, "job: market.budget = '0.001' is not an amount with at most 2 decimals"),
    ({"spec": spec("market", budget="0.05")}, "cannot pay for one round of per_round = 2"),
    ({"spec": spec("market", per_round=0)}, "job: market.per_round = 0"),
    ({"spec": spec("market", seed=2**5000)}, "market.seed has more digits"),
    ({"spec": spec("market", color="red")}, "job: market.color"),
    ({"spec": spec("market", currency="USD")}, "market.currency = 'USD' is 'EUR' in this market"),
    ({"spec": spec("market", name="x")}, "market.name is the market's to write"),
    ({"spec": spec("data", holdout="/etc/passwd")}, "data.holdout is the market's to write"),
    ({"spec": spec("data", audit="/etc/passwd")}, "data.audit is a share"),
    ({"spec": spec("consumer", train="/etc/passwd")}, "consumer.train is a share"),
    ({"spec": spec("consumer", name="rival")}, "consumer.name is the market's"),
    ({"spec": spec("model", kind="linear")}, "is for regression"),
    ({"spec": spec("payment", kind="price-per-row")}, "fix a price for one access"),
    (
        {"spec": spec("defence", kind="strict", data=8.0)},
        'defence.data is fixed by .* "none", "standard" or "strict" alone',
    ),
    ({"spec": spec("defence", kind="none", doubt=False)}, "defence.doubt is fixed by the defence's name"),
    ({"spec": spec("defence", kind="mine")}, "job: defence.kind = 'mine'"),
    ({"spec": {**SPEC, "defence": "strict"}}, "job: defence"),
    ({"spec": {**SPEC, "ledger": {"url": "postgresql://x"}}}, "ledger is the market's to write"),
    ({"spec": {**SPEC, "engine": {"kind": "loop"}}}, "engine is the market's to write"),
    ({"spec": {**SPEC, "federation": {"folder": "/"}}}, "federation is the market's to write:"),
    ({"spec": {**SPEC, "federation": "zlib"}}, "federation is the market's to write"),
    ({"spec": {**SPEC, "providers": []}}, "providers is the market's to write"),
    ({"spec": {**SPEC, "market": 7}}, "job: market"),
    ({"spec": {}}, "job: market.budget is missing"),
    ({"offers": []}, "providers is empty"),
    ({"offers": ["north-sales", "north-sales"]}, "chosen twice"),
    ({"offers": ["north-sales"] * 1001}, "at most 1,000 offers"),
    ({"files": {}}, "the hold-out is missing"),
    ({"files": {"test": "x"}}, "'test' is no role"),
    ({"mode": "cloud"}, "must be hosted or own"),
    ({"mode": "own"}, "keeps its files"),
    ({"name": "\x1b"}, "name must be visible"),
]


def test_the_faults_of_a_draft_are_told_in_market_tomls_words(small: DeskMarket) -> None:
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        holdout = {"holdout": small.upload(session, "buyer", table(9, 80))}
    for changed, said in UNFIT:
        with pytest.raises(InvalidError, match=said), small.database.begin() as session:
            drafted(small, session, **{"offers": ["north-sales"], "files": holdout, **changed})
    with small.database.read() as session:
        assert jobs.own_jobs(session, small["buyer"]) == []


@pytest.mark.parametrize("name", ["none", "standard", "strict"])
def test_a_defence_is_taken_by_its_name_and_providers_are_told_which(small: DeskMarket, name: str) -> None:
    with small.database.begin() as session:
        small.offer(session, "north", 1, approval="by hand")
        job = drafted(small, session, "north-sales", spec=spec("defence", kind=name))
        submission.submit(session, small["buyer"], small.settings, job.id)
        (asked,) = contracts.own_contracts(session, small["north"], state=ContractState.REQUESTED, party="provider")
        contracts.decide(session, small["north"], asked.id, agree=True)
        market = load_market(write_market(session, small.settings, job))
        assert market.defence.chosen == Defence.named(name)
        assert asked.defence == contracts.own_contract(session, small["north"], asked.id).defence == name


@pytest.mark.process
@pytest.mark.usefixtures("tables_are_read_apart")
def test_a_hold_out_is_looked_at_before_others_wait_and_only_once(
    small: DeskMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `look` found `submit` has, and what is bad `look` refuses; a draft of another organisation is none of the
    caller's to look at."""
    read: list[Path] = []

    def counted(settings: Settings, work: Any, path: Path, *more: Any, **named: Any) -> Any:
        read.append(path)
        return read_apart(settings, work, path, *more, **named)

    monkeypatch.setattr(submission, "read_apart", counted)
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        job = drafted(small, session, "north-sales", files={"holdout": small.upload(session, "buyer", table(77, 60))})
        with pytest.raises(MissingError):
            submission.look(session, small["rival"], small.settings, job.id)
        assert not read
        submission.look(session, small["buyer"], small.settings, job.id)
        assert len(read) == 1
        assert submission.submit(session, small["buyer"], small.settings, job.id).state == JobState.AGREED
        submission.look(session, small["buyer"], small.settings, job.id)
        assert len(read) == 1
        odd = small.upload(session, "buyer", b"distance,late\n1,yes\n2,yes\n")
        job = drafted(small, session, "north-sales", files={"holdout": odd})
        with pytest.raises(InvalidError, match=r"table\.csv: .*'late'"):
            submission.look(session, small["buyer"], small.settings, job.id)
    assert len(read) == 2


@pytest.mark.parametrize("why", [TooManyError, InvalidError])
def test_a_hold_out_that_cannot_be_read_now_holds_nobody_up(
    why: type[Exception], small: DeskMarket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`look` says so: `submit` would try again, with a lock."""

    def busy(*_: Any, **__: Any) -> Any:
        raise why("try again")

    monkeypatch.setattr(submission, "read_apart", busy)
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        job = drafted(small, session, "north-sales", files={"holdout": small.upload(session, "buyer", table(78, 60))})
        with pytest.raises(why):
            submission.look(session, small["buyer"], small.settings, job.id)


def test_a_hold_out_that_is_not_what_was_uploaded_is_refused(small: DeskMarket) -> None:
    """What a job is fitted to has the digest that its consumer was told. Once the file is back, it is taken again."""
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        job = drafted(small, session, "north-sales", files={"holdout": small.upload(session, "buyer", table(78, 60))})
        file = session.get_one(File, job.files["holdout"])
        path = small.settings.file(file.digest, file.suffix)
        path.write_bytes(table(79, 60))
        with pytest.raises(InvalidError, match=r"is not what was uploaded any more: upload it again"):
            submission.submit(session, small["buyer"], small.settings, job.id)
        path.unlink()
        with pytest.raises(InvalidError, match=r"table\.csv: the file does not exist"):
            submission.submit(session, small["buyer"], small.settings, job.id)
        path.write_bytes(table(78, 60))
        assert submission.submit(session, small["buyer"], small.settings, job.id).state == JobState.AGREED


def test_a_draft_is_changed_until_it_is_submitted(small: DeskMarket) -> None:
    buyer, hub = small["buyer"], small.settings
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        small.offer(session, "south", 2)
        job = drafted(small, session, "north-sales")
        assert (job.state, job.budget) == ("draft", 40)
        jobs.change(session, buyer, hub, job.id, name="Other", offers=["south-sales"])
        jobs.change(session, buyer, hub, job.id, spec=spec("market", budget="1.00"))
        assert (job.name, job.budget) == ("Other", 100)
        with pytest.raises(InvalidError):
            jobs.change(session, buyer, hub, job.id, name="Bad", spec=spec("market", budget="-1"))
        assert (job.name, job.budget) == ("Other", 100)
        submission.submit(session, buyer, hub, job.id)
        with pytest.raises(ConflictError, match="agreed"):
            jobs.change(session, buyer, hub, job.id, name="Late")
        with pytest.raises(ConflictError, match="agreed"):
            submission.submit(session, buyer, hub, job.id)
        assert [view.offer for view in contracts.own_contracts(session, buyer)] == ["south-sales"]


def test_tables_that_do_not_fit_are_found_before_anybody_is_asked(small: DeskMarket) -> None:
    cases = [
        (b"distance,weight\n1,2\n3,4\n", "holdout.csv: "),
        (table(9, 80).replace(b"weight", b"height"), "the offer north-sales has no column 'height'"),
    ]
    for content, said in cases:
        with pytest.raises(InvalidError, match=said) as fault, small.database.begin() as session:
            small.offer(session, "north", 1)
            holdout = small.upload(session, "buyer", content, "holdout.csv")
            job = drafted(small, session, "north-sales", files={"holdout": holdout})
            submission.submit(session, small["buyer"], small.settings, job.id)
        assert str(small.settings.home) not in str(fault.value)


def test_offers_at_the_hub_and_sites_do_not_mix(small: DeskMarket) -> None:
    hub = replace(small.settings, federation=Path("/srv/federation"))
    site: dict[str, Any] = {"name": "Ward", "slug": "ward", "description": "", "policy": Policy(price=3)}
    columns = [{"name": name, "kind": "number"} for name in ("distance", "weight", "vehicle", "late")]
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        offers.make_offer(session, small["south"], hub, site="south-ward", columns=columns, **site)
        with pytest.raises(InvalidError, match="not both"):
            drafted(small, session, "north-sales", "south-ward")
        with pytest.raises(InvalidError, match="no federation any more"):
            drafted(small, session, "south-ward")


def test_sites_are_asked_for_the_consumer_and_by_the_job(small: DeskMarket) -> None:
    """Both by the hub's arbiter and by the process that asks sites for the consumer's own."""
    hub = replace(small.settings, federation=Path("/srv/federation"))
    site: dict[str, Any] = {"name": "Ward", "slug": "ward", "description": "", "policy": Policy(price=3)}
    columns = [{"name": name, "kind": "number"} for name in ("distance", "weight", "vehicle", "late")]
    with small.database.begin() as session:
        offers.make_offer(session, small["south"], hub, site="south-ward", columns=columns, **site)
        job = drafted(replace(small, settings=hub), session, "south-ward", spec=SPEC)
        submission.submit(session, small["buyer"], hub, job.id)
        hosted = load_market(write_market(session, hub, job)).federation
        own = parse_market(about_job(session, hub, job)["market"], "job").federation
        assert hosted is not None and own is not None
        assert (hosted.consumer, hosted.contract) == (own.consumer, own.contract) == ("buyer", job.id)


def test_a_quote_says_what_is_locked_and_how_long_it_waits(small: DeskMarket) -> None:
    buyer, hub = small["buyer"], replace(small.settings, runners=1)
    with small.database.begin() as session:
        small.offer(session, "north", 1, price=7)
        small.offer(session, "south", 2, approval="by hand")
        members.set_fee(session, small["hub"], 250)
        small.pay_in(session, "buyer", 1000)
        job = drafted(small, session, "north-sales", "south-sales")
        quote = jobs.quote(session, buyer, hub, job.id)
        assert (quote.budget, quote.most_fee, quote.escrow, quote.wait) == (40, 1, 41, 0.0)
        assert {one["id"]: one["price"] for one in quote.quote["providers"]} == {"north-sales": 7, "south-sales": 5}
        assert quote.quote["rounds"]["high"] <= 8 + 1
        simulated = jobs._simulated.cache_info().misses
        assert jobs.quote(session, buyer, hub, job.id) == quote and jobs._simulated.cache_info().misses == simulated
        submission.submit(session, buyer, hub, job.id)
        (asked,) = contracts.own_contracts(session, small["south"], state=ContractState.REQUESTED, party="provider")
        contracts.decide(session, small["south"], asked.id, False)
        quote = jobs.quote(session, buyer, hub, job.id)
        assert [one["id"] for one in quote.quote["providers"]] == ["north-sales"]
        jobs.fund(session, buyer, job.id)
        with pytest.raises(ConflictError, match="not funded yet"):
            jobs.quote(session, buyer, hub, job.id)
        assert expected_wait(session, hub) is None
        assert expected_wait(session, replace(hub, runners=2)) == 0.0


def test_the_wait_is_what_jobs_before_have_taken(small: DeskMarket) -> None:
    with small.database.begin() as session:
        small.pay_in(session, "buyer", 1000)
        for seconds in (10, 30):
            job = agreed(small, session)
            begun = now() - dt.timedelta(hours=1)
            for number, (state, at) in enumerate((("running", 0), ("settling", seconds)), 10):
                moment = begun + dt.timedelta(seconds=at)
                session.add(JobEvent(job_id=job.id, number=number, state=state, at=moment))
        for _ in range(3):
            jobs.fund(session, small["buyer"], agreed(small, session).id)
        assert expected_wait(session, replace(small.settings, runners=2)) == pytest.approx(20.0)


def test_funding_locks_all_of_it_and_fixes_the_fee(market: DeskMarket) -> None:
    with market.database.begin() as session:
        members.set_fee(session, market["hub"], 100)
        job = agreed(market, session)
        with pytest.raises(ConflictError, match=r"deposit 0\.41 EUR more"):
            jobs.fund(session, market["buyer"], job.id)
        market.pay_in(session, "buyer", 100)
        jobs.fund(session, market["buyer"], job.id)
        members.set_fee(session, market["hub"], 500)
        assert (job.state, job.escrow, job.fee_basis_points) == ("queued", 41, 100)
        assert journal.balance(session, journal.escrow(job.id)) == 41
        assert journal.balance(session, journal.cash("buyer")) == 59
        assert {view.state for view in contracts.own_contracts(session, market["buyer"])} == {"active"}
        with pytest.raises(ConflictError, match="only one that is agreed"):
            jobs.fund(session, market["buyer"], job.id)
        assert journal.audit(session).ok


def test_cash_that_was_asked_back_funds_nothing(market: DeskMarket) -> None:
    by_hand = replace(market.settings, cash="manual")
    with market.database.begin() as session:
        job = agreed(market, session)
        market.pay_in(session, "buyer", 50)
        asked = cash.request(session, market["buyer"], by_hand, "withdraw", 11)
        with pytest.raises(ConflictError, match=r"0\.39 EUR are there: deposit 0\.01 EUR more"):
            jobs.fund(session, market["buyer"], job.id)
        market.pay_in(session, "buyer", 1)
        jobs.fund(session, market["buyer"], job.id)
        assert cash.confirm(session, market["hub"], asked.id).state == "done"
        assert journal.balance(session, "cash:buyer") == 0


def test_money_is_locked_once_whoever_funds_at_once(market: DeskMarket) -> None:
    with market.database.begin() as session:
        market.pay_in(session, "buyer", 60)
        both = [agreed(market, session).id for _ in range(2)]
    barrier, outcomes = threading.Barrier(4), []

    def fund(job_id: str) -> None:
        barrier.wait()
        try:
            with market.database.begin() as session:
                jobs.fund(session, market["buyer"], job_id)
            outcomes.append("funded")
        except ConflictError:
            outcomes.append("refused")

    threads = [threading.Thread(target=fund, args=(job_id,)) for job_id in both * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["funded", "refused", "refused", "refused"]
    with market.database.read() as session:
        assert journal.balance(session, journal.cash("buyer")) == 20
        assert sorted(job.state for job in jobs.own_jobs(session, market["buyer"])) == ["agreed", "queued"]


def test_stopping(small: DeskMarket) -> None:
    buyer, hub = small["buyer"], small.settings
    with small.database.begin() as session:
        small.pay_in(session, "buyer", 1000)
        queued, running = (jobs.fund(session, buyer, agreed(small, session).id) for _ in range(2))
        own = agreed(small, session, mode="own", files={})
        with pytest.raises(ConflictError, match="only one that is funded"):
            jobs.stop(session, buyer, hub, own.id)
        jobs.fund(session, buyer, own.id)
        assert own.state == "funded"
        enter(session, running, JobState.RUNNING)
        for job in (queued, own, running, running):
            jobs.stop(session, buyer, hub, job.id)
        assert (queued.state, own.state, running.state) == ("settling", "funded", "running")
        assert all(job.stopped_by == "consumer" for job in (queued, own, running))
        assert [event.detail for event in jobs.events_of(session, buyer, running.id)][6:] == [
            "the consumer asked to stop"
        ]
    assert (hub.job_folder(running.id) / "stop").read_bytes() == b""


def test_the_operator_stops_any_job_and_the_job_says_so(small: DeskMarket) -> None:
    with small.database.begin() as session:
        small.pay_in(session, "buyer", 1000)
        job = jobs.fund(session, small["buyer"], agreed(small, session).id)
        jobs.stop(session, small["hub"], small.settings, job.id)
        assert (job.state, job.stopped_by) == ("settling", "operator")
        assert jobs.events_of(session, small["buyer"], job.id)[-1].detail == "the operator asked to stop"
        reading = replace(small["hub"], scopes=frozenset({"read"}))
        with pytest.raises(DeniedError):
            jobs.stop(session, reading, small.settings, job.id)


def test_withdrawing(small: DeskMarket) -> None:
    def waiting(session: Session) -> Job:
        job = drafted(small, session, "south-sales", "north-sales")
        return submission.submit(session, small["buyer"], small.settings, job.id)

    makes: list[Callable[[Session], Job]] = [lambda s: drafted(small, s, "north-sales"), waiting]
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        small.offer(session, "south", 2, approval="by hand")
        makes.append(lambda s: agreed(small, s))
        for make in makes:
            job = make(session)
            jobs.withdraw(session, small["buyer"], job.id)
            assert job.state == "refunded"
        assert {view.state for view in contracts.own_contracts(session, small["buyer"])} == {"ended"}
        assert contracts.own_contracts(session, small["south"], state=ContractState.REQUESTED, party="provider") == []
        with pytest.raises(ConflictError, match="stop it"):
            jobs.withdraw(session, small["buyer"], job.id)


@pytest.mark.process
def test_the_hub_needs_no_torch_to_quote() -> None:
    code = "import sys, databazaar.service.jobs, databazaar.config.quote; print({'torch', 'pandas'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_only_states_that_may_follow_are_entered(small: DeskMarket) -> None:
    with small.database.begin() as session:
        job = agreed(small, session)
        with pytest.raises(ConflictError, match="agreed and cannot become running"):
            enter(session, job, JobState.RUNNING)
        (contract,) = contracts_of(session, job)
        with pytest.raises(ConflictError, match="cannot become refused"):
            enter_contract(session, contract, ContractState.REFUSED)
        with pytest.raises(MissingError):
            locked_job(session, "0" * 32)
