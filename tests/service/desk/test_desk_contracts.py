"""Contracts: what policies decide by themselves, what people decide, and who is told what."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from databazaar.client import shapes
from databazaar.config.market_data import load_data
from databazaar.config.market_file import load_market
from databazaar.data.schema_message import SchemaMessage
from databazaar.federation.accepted_schemas import fingerprint, read_schema
from databazaar.learning.asked_rows import visited_rows
from databazaar.service import contracts, jobs, offers, submission
from databazaar.service.caller import Caller
from databazaar.service.database.tables import Contract, Job, OfferVersion, now
from databazaar.service.errors import ConflictError, InvalidError
from databazaar.service.hub.folder import write_market
from databazaar.service.lifecycle import ContractState
from databazaar.service.policy import Policy
from desk_market import SPEC, DeskMarket, table

OWN = {**SPEC, "data": {**SPEC["data"], "features": ["weight"]}, "defence": {"kind": "none"}}

FORTY = {"kind": "local-sgd", "steps": 5, "batch_size": 8}


def asked_of(session: Session, caller: Caller) -> list[shapes.Contract]:
    return contracts.own_contracts(session, caller, state=ContractState.REQUESTED, party="provider")


def submitted(market: DeskMarket, session: Session, *chosen: str, **spec: Any) -> Job:
    holdout = market.upload(session, "buyer", table(9, 80))
    whole = {name: section for name, section in {**SPEC, **spec}.items() if section is not None}
    given: dict[str, Any] = {"spec": whole, "files": {"holdout": holdout}, "offers": chosen}
    job = jobs.draft(session, market["buyer"], market.settings, name="Late parcels", **given)
    return submission.submit(session, market["buyer"], market.settings, job.id)


def test_what_policies_decide_at_once(small: DeskMarket) -> None:
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        small.offer(session, "north", 2, "trees", models=["mlp", "cnn"])
        small.offer(session, "south", 3, "short", most_rows=39)
        small.offer(session, "south", 4, "enough", most_rows=40)
        job = submitted(small, session, "north-sales", "north-trees", "south-short", "south-enough", oracle=FORTY)
        found = {view.offer: (view.state, view.reason) for view in contracts.own_contracts(session, small["buyer"])}
    assert (job.state, job.reason) == ("agreed", "2 of 4 providers agreed")
    assert found["north-sales"] == found["south-enough"] == ("agreed", "")
    assert found["north-trees"] == (
        "refused",
        "the provider does not allow model.kind = 'logistic': use mlp or cnn",
    )
    assert found["south-short"] == (
        "refused",
        "an ask goes through 40 rows, and the provider allows 39: lower oracle.steps or oracle.epochs, or "
        "oracle.batch_size to no less than 32",
    )


def test_an_offer_for_updates_is_no_offer_of_rows(small: DeskMarket) -> None:
    """A policy names the learners that it allows; without any, it allows all. Contracts name theirs."""
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        small.offer(session, "north", 2, "updates", learners=["averaging"])
        small.offer(session, "south", 3, "short", most_rows=39)
        chosen = ("north-sales", "north-updates", "south-short")
        trees: dict[str, Any] = {"model": {"kind": "trees"}, "oracle": None}
        job = submitted(small, session, *chosen, **trees)
        found = {view.offer: view.reason for view in contracts.own_contracts(session, small["buyer"], job.id)}
        assert found["north-sales"] == "" and job.state == "agreed"
        assert found["north-updates"] == ("the provider does not allow learner.kind = 'boosting': use averaging")
        assert found["south-short"] == (
            "an ask goes through 60 rows, and the provider allows 39: lower learner.rows to no less than 32"
        )
        again = submitted(small, session, *chosen, **trees, learner={"rows": 39})
        states = {view.offer: view.state for view in contracts.own_contracts(session, small["buyer"], again.id)}
        assert states["south-short"] == "agreed"
        updates = submitted(small, session, *chosen)
        (made, *_) = contracts.own_contracts(session, small["buyer"], updates.id)
        assert (made.learner, made.trains_on_rows) == ("averaging", False)
        with pytest.raises(InvalidError, match="policy: learners"):
            small.offer(session, "north", 4, "none", learners=["stacking"])


def test_where_nobody_agrees_the_job_has_failed(small: DeskMarket) -> None:
    with small.database.begin() as session:
        only = small.offer(session, "north", 1)
        small.offer(session, "south", 2, models=["mlp"])
        holdout = small.upload(session, "buyer", table(9, 80))
        given: dict[str, Any] = {"files": {"holdout": holdout}, "offers": ["north-sales", "south-sales"]}
        job = jobs.draft(session, small["buyer"], small.settings, name="Late", spec=SPEC, **given)
        more = small.offer(session, "south", 3, "more")
        jobs.change(session, small["buyer"], small.settings, job.id, offers=[*job.offers, more.id])
        offers.change_policy(session, small["north"], only.id, Policy(price=5, consumers=("rival",)))
        offers.withdraw_offer(session, small["south"], more.id)
        submission.submit(session, small["buyer"], small.settings, job.id)
    assert job.state == "failed"
    assert job.reason == (
        "nobody agreed: the offer is not open any more: choose another one; "
        "the provider allows other consumers only: ask it, or choose another offer; "
        "the provider does not allow model.kind = 'logistic': use mlp"
    )


def test_what_a_provider_is_asked_and_decides(small: DeskMarket) -> None:
    with small.database.begin() as session:
        small.offer(session, "north", 1, approval="by hand", consumers=["buyer", "rival"])
        small.offer(session, "south", 2, approval="by hand")
        job = submitted(small, session, "north-sales", "south-sales")
        assert job.state == "submitted"
        (asked,) = asked_of(session, small["north"])
        assert (asked.consumer_name, asked.job_name, asked.model) == ("Buyer", "Late parcels", "logistic")
        assert not {"budget", "escrow", "spec"} & set(vars(asked))
        (theirs,) = [view for view in contracts.own_contracts(session, small["buyer"]) if view.provider == "north"]
        assert theirs == contracts.own_contract(session, small["buyer"], asked.id)
        assert "consumers" not in theirs.terms and asked.terms["consumers"] == ["buyer", "rival"]
        contracts.decide(session, small["north"], asked.id, True)
        assert job.state == "submitted" and asked_of(session, small["north"]) == []
        (asked,) = asked_of(session, small["south"])
        contracts.decide(session, small["south"], asked.id, False, " not this month ")
        assert (job.state, job.reason) == ("agreed", "1 of 2 providers agreed")
        assert contracts.own_contract(session, small["buyer"], asked.id).reason == "not this month"
        with pytest.raises(ConflictError, match="refused already"):
            contracts.decide(session, small["south"], asked.id, True)


def test_two_who_decide_at_once_end_in_one_decision(market: DeskMarket) -> None:
    with market.database.begin() as session:
        market.offer(session, "north", 1, approval="by hand")
        job = submitted(market, session, "north-sales")
        (asked,) = asked_of(session, market["north"])
    barrier, decided = threading.Barrier(2), []

    def decide(agree: bool) -> None:
        barrier.wait()
        try:
            with market.database.begin() as session:
                contracts.decide(session, market["north"], asked.id, agree)
            decided.append(agree)
        except ConflictError:
            pass

    threads = [threading.Thread(target=decide, args=(agree,)) for agree in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with market.database.read() as session:
        assert len(decided) == 1
        state = "agreed" if decided[0] else "refused"
        assert contracts.own_contract(session, market["north"], asked.id).state == state
        events = [event.state for event in jobs.events_of(session, market["buyer"], job.id)]
        assert events == ["draft", "submitted", "agreed" if decided[0] else "failed"]


def test_time_to_decide_ends(small: DeskMarket) -> None:
    with small.database.begin() as session:
        small.offer(session, "north", 1, approval="by hand", days_to_decide=3)
        job = submitted(small, session, "north-sales")
        (asked,) = asked_of(session, small["north"])
        assert asked.expires_at - asked.requested_at >= dt.timedelta(days=3) - dt.timedelta(seconds=9)
        assert contracts.expire_due(session) == 0
        session.execute(update(Contract).values(expires_at=now()))
        session.expire_all()
        with pytest.raises(ConflictError, match="time to decide"):
            contracts.decide(session, small["north"], asked.id, True)
        assert contracts.expire_due(session) == 1
        assert contracts.own_contract(session, small["north"], asked.id).state == "expired"
        assert (job.state, job.reason) == ("failed", "nobody agreed: the provider did not decide in time")
        assert contracts.expire_due(session) == 0


def test_a_contract_pins_version_price_and_terms(small: DeskMarket) -> None:
    with small.database.begin() as session:
        offer = small.offer(session, "north", 1, most_accesses=7)
        job = submitted(small, session, "north-sales")
        offers.change_policy(session, small["north"], offer.id, Policy(price=50, approval="automatic"))
        file_id = small.upload(session, "north", table(2))
        offers.new_version(session, small["north"], offer.id, file_id)
        offers.withdraw_offer(session, small["north"], offer.id)
        (view,) = contracts.own_contracts(session, small["north"], job.id)
        assert (view.version, view.price, view.terms["most_accesses"]) == (1, 5, 7)
        text = write_market(session, small.settings, job).read_text()
        kept = small.settings.job_folder(job.id) / "data" / "north-sales.csv"
    assert 'price = "0.05"' in text and "most_accesses = 7" in text
    assert kept.read_bytes() == table(1)


@settings(max_examples=30)
@given(
    rows=st.integers(1, 300),
    batch_size=st.integers(1, 64),
    steps=st.integers(1, 20),
    epochs=st.integers(1, 5),
    kind=st.sampled_from(["local-sgd", "stochastic-gradient", "full-gradient"]),
)
def test_the_rows_of_an_ask_are_those_that_the_oracle_uses(
    rows: int, batch_size: int, steps: int, epochs: int, kind: str
) -> None:
    from databazaar.learning.oracles import FullGradient, LocalSGD, StochasticGradient

    oracle = {"kind": kind, "batch_size": batch_size, "steps": steps, "epochs": epochs}
    oracles: dict[str, Any] = {
        "local-sgd": LocalSGD(batch_size=batch_size, steps=steps, epochs=epochs),
        "stochastic-gradient": StochasticGradient(batch_size),
        "full-gradient": FullGradient(),
    }
    used = int((oracles[kind].batches(rows, key=1) >= 0).sum())
    counted, most = visited_rows(oracle, rows), visited_rows(oracle, None)
    assert counted is not None and counted >= used
    if kind != "local-sgd" or rows % batch_size == 0:
        assert counted == used
    assert most is None if kind == "full-gradient" else most is not None and most >= counted


def test_a_provider_may_keep_its_updates_from_consumers(small: DeskMarket) -> None:
    """In mode own they go to the consumer as they are."""
    with small.database.begin() as session:
        small.offer(session, "north", 1, modes=["hosted"])
        small.offer(session, "south", 2, modes=["own"])
        job = jobs.draft(
            session,
            small["buyer"],
            small.settings,
            name="Own",
            spec={**SPEC, "defence": {"kind": "none"}},
            files={},
            offers=["north-sales", "south-sales"],
            mode="own",
        )
        submission.submit(session, small["buyer"], small.settings, job.id)
        hosted = submitted(small, session, "north-sales", "south-sales")
        said = {
            (view.mode, view.offer): view.reason
            for view in contracts.own_contracts(session, small["buyer"])
            if view.reason
        }
        with pytest.raises(InvalidError, match="policy: modes"):
            small.offer(session, "north", 3, "none", modes=[])
    assert said == {
        ("own", "north-sales"): "the provider gives its updates to the hub's arbiter alone: make a hosted job, or "
        "choose another offer",
        ("hosted", "south-sales"): "the provider gives its updates to consumers' own arbiters alone: make the job with "
        "mode own, or choose another offer",
    }
    assert job.state == hosted.state == "agreed"


def test_a_request_says_what_is_asked_and_a_site_may_see_the_schema(small: DeskMarket, tmp_path: Path) -> None:
    """A provider whose file is at the hub is told no more than names: a schema has figures of the hold-out."""
    hub = replace(small.settings, federation=Path("/srv/federation"))
    columns = [{"name": name, "kind": "number"} for name in ("distance", "weight", "vehicle", "late")]
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        told: dict[str, Any] = {"name": "Ward", "slug": "ward", "description": "", "policy": Policy(price=3)}
        offers.make_offer(session, small["south"], hub, site="south-ward", columns=columns, **told)
        submitted(small, session, "north-sales")
        site = replace(small, settings=hub)
        asked = submitted(site, session, "south-ward")
        own = jobs.draft(session, small["buyer"], hub, name="O", spec=OWN, files={}, offers=["south-ward"], mode="own")
        submission.submit(session, small["buyer"], hub, own.id)
        (file,) = contracts.own_contracts(session, small["north"], party="provider")
        ward, unseen = asked_of(session, small["south"])
        for view in (file, ward):
            assert (view.target, view.task, view.mode, view.model) == ("late", "classification", "hosted", "logistic")
            assert view.columns == ["distance", "weight", "vehicle"] and view.rows == 32
        assert (file.kind, file.fingerprint, ward.kind) == ("file", None, "site")
        assert ward.job_state is None, "nothing of a job that the provider has not agreed to"
        assert (unseen.mode, unseen.target, unseen.columns, unseen.fingerprint) == ("own", "late", ["weight"], None)
        for slug, view in (("north", file), ("south", unseen)):
            with pytest.raises(ConflictError, match="no schema to look at"):
                contracts.schema_of(session, small[slug], hub, view.id)
        for slug in ("south", "buyer"):
            (tmp_path / "schema.json").write_bytes(contracts.schema_of(session, small[slug], hub, ward.id))
        settings = load_market(write_market(session, hub, asked))
    assert fingerprint(read_schema(tmp_path / "schema.json")) == ward.fingerprint
    data = load_data(settings, hub.job_folder(asked.id))
    assert fingerprint(SchemaMessage.model_validate(data.schema.to_dict())) == ward.fingerprint, "the run's own"
    assert settings.federation is not None
    assert (settings.federation.consumer, settings.federation.contract) == ("buyer", asked.id)
    assert settings.consumer.name == "Buyer"


def test_a_schema_that_no_site_takes_is_refused_before_anybody_is_asked(small: DeskMarket) -> None:
    hub = replace(small.settings, federation=Path("/srv/federation"))
    wide = "w" * 1001
    with small.database.begin() as session:
        told: dict[str, Any] = {"name": "Ward", "slug": "ward", "description": "", "policy": Policy(price=3)}
        columns = [{"name": name, "kind": "number"} for name in ("distance", "weight", "vehicle", "late")]
        offer = offers.make_offer(session, small["south"], hub, site="south-ward", columns=columns, **told)
        version = session.scalars(select(OfferVersion).where(OfferVersion.offer_id == offer.id)).one()
        version.columns = [*columns, {"name": wide, "kind": "number"}]
        holdout = small.upload(session, "buyer", table(9, 80).replace(b"weight", wide.encode()))
        given: dict[str, Any] = {"spec": SPEC, "files": {"holdout": holdout}, "offers": ["south-ward"]}
        job = jobs.draft(session, small["buyer"], hub, name="Wide", **given)
        with pytest.raises(InvalidError, match=r"more than sites take \(numeric\): name fewer columns"):
            submission.submit(session, small["buyer"], hub, job.id)
