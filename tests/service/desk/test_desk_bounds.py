"""What a job may ask of one table at a hub: over 32 rows or more, and no endless work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.learning.asked_rows import LEAST_ROWS, ask_cost, distinct_rows, rows_asked, visited_rows
from databazaar.learning.oracles import build_oracle
from databazaar.service import contracts, jobs, offers, submission
from databazaar.service.errors import InvalidError
from databazaar.service.policy import Policy
from databazaar.service.specification import refuse_out_of_bounds
from desk_market import SPEC, DeskMarket, table

FEW: list[tuple[dict[str, Any], int]] = [
    ({"kind": "stochastic-gradient", "batch_size": 1}, 1),
    ({"kind": "stochastic-gradient", "batch_size": 31}, 31),
    ({"kind": "local-sgd", "batch_size": 1, "steps": 1}, 1),
    ({"kind": "local-sgd", "batch_size": 1, "steps": 31, "epochs": 1000}, 31),
]
ENOUGH: list[dict[str, Any]] = [
    {"kind": "full-gradient"},
    {"kind": "stochastic-gradient", "batch_size": 32},
    {"kind": "local-sgd", "batch_size": 1, "steps": 32},
]


def drafted(market: DeskMarket, mode: str, **spec: Any) -> str:
    given = {name: value for name, value in {**SPEC, **spec}.items() if value is not None}
    with market.database.begin() as session:
        if not offers.own_offers(session, market["north"]):
            market.offer(session, "north", 1)
        files = {"holdout": market.upload(session, "buyer", table(9, 80))} if mode == "hosted" else {}
        about: dict[str, Any] = {"name": "Late", "files": files, "offers": ["north-sales"], "mode": mode}
        return jobs.draft(session, market["buyer"], market.settings, spec=given, **about).id


@pytest.mark.parametrize("mode", ["hosted", "own"])
def test_an_ask_over_few_rows_is_refused_before_anybody_is_asked(small: DeskMarket, mode: str) -> None:
    for oracle, rows in FEW:
        with pytest.raises(InvalidError) as refused:
            drafted(small, mode, oracle=oracle)
        assert str(refused.value) == (
            f"oracle: an ask goes over {rows} of a provider's rows, and it must go over at least 32: raise "
            'oracle.batch_size to 32, or use oracle.kind = "full-gradient"'
        )
    for oracle in ENOUGH:
        job_id = drafted(small, mode, oracle=oracle)
        with small.database.begin() as session:
            assert submission.submit(session, small["buyer"], small.settings, job_id).state == "agreed"


def test_a_table_of_few_rows_is_not_offered(small: DeskMarket) -> None:
    about: dict[str, Any] = {"name": "Few", "slug": "few", "description": "", "policy": Policy(price=5)}
    said = r"has 31 rows to learn from, and an ask must go over at least 32: add rows, or leave it out"
    with small.database.begin() as session:
        offer, few = small.offer(session, "north", 1), small.upload(session, "north", table(2, rows=31), "few.csv")
    with pytest.raises(InvalidError, match=f"few.csv {said}"), small.database.begin() as session:
        offers.make_offer(session, small["north"], small.settings, file_id=few, **about)
    with pytest.raises(InvalidError, match=f"few.csv {said}"), small.database.begin() as session:
        offers.new_version(session, small["north"], offer.id, few)
    federated = replace(small.settings, federation=Path("/srv/federation"))
    columns = [{"name": "late", "kind": "number"}]
    with pytest.raises(InvalidError, match=f"the site north-few {said}"), small.database.begin() as session:
        offers.make_offer(session, small["north"], federated, site="north-few", columns=columns, rows=31, **about)
    with pytest.raises(InvalidError, match="policy: most_rows"), small.database.begin() as session:
        small.offer(session, "north", 3, "bounded", most_rows=31)


def test_the_work_of_a_round_is_bounded_by_the_operators_figure(small: DeskMarket) -> None:
    endless = {"kind": "local-sgd", "steps": 10**6, "epochs": 10**6, "batch_size": 60}
    with pytest.raises(InvalidError) as refused:
        drafted(small, "hosted", oracle=endless)
    assert str(refused.value) == (
        "oracle: an ask of the offer north-sales makes 60,000,000 row visits, and this hub allows 50,000,000: lower "
        "oracle.steps, oracle.epochs or oracle.batch_size"
    )
    small.settings = replace(small.settings, most_visits=60_000_000)
    assert drafted(small, "hosted", oracle=endless)
    small.settings = replace(small.settings, most_visits=59)
    with pytest.raises(InvalidError, match="60 row visits, and this hub allows 59"):
        drafted(small, "hosted", oracle={"kind": "full-gradient"})


BY_LEARNER: dict[str, dict[str, Any]] = {
    "in-run": {"learner": {"kind": "in-run"}},
    "newton": {"learner": {"kind": "newton"}},
    "boosting": {"model": {"kind": "trees"}},
    "blending": {"model": {"kind": "auto"}},
}


@pytest.mark.parametrize("kind", BY_LEARNER)
def test_every_learner_is_asked_for_by_its_rows(small: DeskMarket, kind: str) -> None:
    """`rows` is a bound: the tables have 60 rows each."""
    spec = BY_LEARNER[kind]
    job_id = drafted(small, "hosted", oracle=None, **spec)
    with small.database.begin() as session:
        submission.submit(session, small["buyer"], small.settings, job_id)
        (contract,) = contracts.own_contracts(session, small["north"])
    assert (contract.learner, contract.trains_on_rows, contract.rows) == (kind, True, 60)
    few = {**spec, "learner": {**spec.get("learner", {}), "rows": 31}}
    with pytest.raises(InvalidError) as refused:
        drafted(small, "hosted", oracle=None, **few)
    assert str(refused.value) == (
        "learner: an ask goes over 31 of a provider's rows, and it must go over at least 32: raise learner.rows to 32"
    )
    assert refused.value.place == "learner.rows"


def test_what_a_learner_does_with_rows_is_bounded_too(small: DeskMarket) -> None:
    """Ten trees, the first of which is tried in three sizes, on 60 rows of the offer and 80 of the hold-out; and of
    three classes three trees each."""
    trees: dict[str, Any] = {"model": {"kind": "trees"}, "learner": {"trees": 10}, "oracle": None}
    small.settings = replace(small.settings, most_visits=12 * 80)
    assert drafted(small, "hosted", **trees)
    small.settings = replace(small.settings, most_visits=12 * 80 - 1)
    with pytest.raises(InvalidError) as refused:
        drafted(small, "hosted", **trees)
    assert str(refused.value) == (
        "learner: a round makes 960 visits of your own 80 rows, and this hub allows 959: send fewer rows"
    )
    with pytest.raises(InvalidError) as refused:
        refuse_out_of_bounds(rows_asked(4096, 12), {"north-sales": 60}, 0, 719)
    assert str(refused.value) == (
        "learner: an ask of the offer north-sales makes 720 row visits, and this hub allows 719: lower learner.rows"
    )
    small.settings = replace(small.settings, most_visits=12 * 80)
    job_id = drafted(small, "hosted", **{**trees, "data": {"target": "vehicle"}})
    with pytest.raises(InvalidError, match="makes 2,880 visits of your own"), small.database.begin() as session:
        submission.submit(session, small["buyer"], small.settings, job_id)


@pytest.mark.parametrize(
    ("spec", "learner", "instead"),
    [
        ({"model": {"kind": "auto"}}, "blending", 'model.kind = "mlp" or another network'),
        ({"learner": {"kind": "newton"}}, "newton", 'learner.kind = "averaging"'),
    ],
)
def test_rows_that_stay_elsewhere_train_nothing(
    small: DeskMarket, spec: dict[str, Any], learner: str, instead: str
) -> None:
    """With an own arbiter, and at sites."""
    said = f'learner.kind = "{learner}" trains on rows, and {{}} updates alone: use {instead}, or a hosted job over '
    with pytest.raises(InvalidError) as refused:
        drafted(small, "own", oracle=None, **spec)
    assert str(refused.value) == said.format("an own arbiter gets") + "offers of files"
    small.settings = replace(small.settings, federation=Path("/srv/federation"))
    columns = [{"name": "late", "kind": "number"}]
    about: dict[str, Any] = {"name": "Site", "site": "north-sales", "columns": columns, "slug": "sales"}
    with small.database.begin() as session:
        with pytest.raises(InvalidError, match="a site answers with updates, and no model 'auto' is trained by them"):
            policy = Policy(price=5, models=("auto", "mlp"))
            offers.make_offer(session, small["north"], small.settings, policy=policy, **about)
        offers.make_offer(session, small["north"], small.settings, policy=Policy(price=5), **about)
    with pytest.raises(InvalidError) as refused:
        drafted(small, "hosted", oracle=None, **spec)
    assert str(refused.value) == said.format("sites answer with") + "offers of files"


@given(
    st.sampled_from(["full-gradient", "stochastic-gradient", "local-sgd"]),
    *(st.integers(1, 40) for _ in range(3)),
    st.integers(1, 80),
)
def test_rows_are_counted_as_the_oracle_uses_them(kind: Any, batch: int, steps: int, epochs: int, rows: int) -> None:
    oracle = {"kind": kind, "batch_size": batch, "steps": steps, "epochs": epochs}
    batches = build_oracle(kind, batch_size=batch, steps=steps, epochs=epochs).batches(rows, 7)
    used = batches[batches >= 0]
    assert distinct_rows(oracle, rows) == len(set(used.tolist()))
    visited, cost = visited_rows(oracle, rows), ask_cost(oracle, rows)
    assert visited is not None and cost is not None
    assert len(used) <= visited <= cost and batches.size <= cost
    assert cost <= max(batches.size, LEAST_ROWS * len(batches))
    assert distinct_rows(oracle, rows) <= visited
