"""What a job may ask of one table at a hub: over 32 rows or more, and no endless work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.learning.asked_rows import LEAST_ROWS, ask_cost, distinct_rows, visited_rows
from databazaar.learning.oracles import build_oracle
from databazaar.service import jobs, offers, submission
from databazaar.service.errors import InvalidError
from databazaar.service.policy import Policy
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


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"model": {"kind": "trees"}},
            '"trees" trains on rows, .*: use model.kind = "mlp" or another',
        ),
        ({"learner": {"kind": "in-run"}}, 'learner.kind = "in-run" trains on rows, .*: use learner.kind = "averaging"'),
    ],
)
def test_a_learner_of_rows_is_refused(small: DeskMarket, spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidError, match=sentence):
        drafted(small, "hosted", oracle=None, **spec)


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
