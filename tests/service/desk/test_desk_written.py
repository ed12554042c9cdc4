"""The market.toml that is written for a job, and the one that a consumer sends."""

from __future__ import annotations

import shutil
import stat
import tomllib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from databazaar.config.jobs import market_job
from databazaar.config.market_file import load_market
from databazaar.config.toml_text import toml_text
from databazaar.runs.folder import RunFolder
from databazaar.service import jobs, offers, specification, submission
from databazaar.service.database.tables import Job
from databazaar.service.errors import InvalidError
from databazaar.service.hub.folder import write_market
from databazaar.service.policy import Policy
from desk_market import SPEC, DeskMarket, table

RICH: dict[str, Any] = {
    "market": {"budget": "0.60", "per_round": 2, "seed": 5, "most_per_access": "0.10"},
    "consumer": {"train": 0.25},
    "data": {"target": "late", "features": ["distance", "vehicle"], "audit": None},
    "model": {"kind": "mlp", "hidden": [4]},
    "oracle": {"step": 0.05, "steps": 3},
    "training": {"step": 1e-05},
    "sampler": {"kind": "uniform"},
    "stops": [{"kind": "target-utility", "utility": 0.99}, {"kind": "no-progress"}],
    "defence": {"kind": "standard"},
}


def agreed(market: DeskMarket, session: Session, spec: dict[str, Any], **files: str) -> Job:
    market.offer(session, "north", 1, most_accesses=9)
    market.offer(session, "south", 2, price=7)
    given: dict[str, Any] = {"files": files, "offers": ["south-sales", "north-sales"]}
    job = jobs.draft(session, market["buyer"], market.settings, name='Late "parcels" ✓', spec=spec, **given)
    return submission.submit(session, market["buyer"], market.settings, job.id)


def run(market_toml: Path, out: Path, id: str) -> dict[str, Any]:
    """As `bazaar run` does, under a given id."""
    job = market_job(market_toml)
    with closing(job.arbiter()) as arbiter:
        folder = RunFolder.create(out, {**job.recipe, "title": job.title, "id": id})
        report = arbiter.run(folder)
    assert folder.audit().ok
    return {"head": report.ledger_head, "model": report.model_hash}


def test_a_written_market_runs_as_it_stands_and_the_same_everywhere(small: DeskMarket, tmp_path: Path) -> None:
    """No ledger names a folder of the hub: the same job has the same model and the same head wherever it is run."""
    moved = replace(small.settings, home=tmp_path / "another hub")
    with small.database.begin() as session:
        holdout, audit = (small.upload(session, "buyer", table(seed, 80)) for seed in (9, 10))
        job = agreed(small, session, RICH, holdout=holdout, audit=audit)
        path = write_market(session, small.settings, job)
        assert write_market(session, small.settings, job) == path
        shutil.copytree(small.settings.files, moved.files)
        again = write_market(session, moved, job)
    outcomes = [
        run(written, hub.run_folder(job.id), job.id) for written, hub in ((path, small.settings), (again, moved))
    ]
    assert outcomes[0] == outcomes[1]
    market = load_market(path)
    assert market.name == 'Late "parcels" ✓' and market.consumer.name == "Buyer"
    assert [(p.id, p.owner, p.price_minor, p.most_accesses) for p in market.providers] == [
        ("south-sales", "south", 7, None),
        ("north-sales", "north", 5, 9),
    ]
    data = path.parent / "data"
    names = {"holdout.csv", "audit.csv", "south-sales.csv", "north-sales.csv"}
    assert {file.name for file in data.iterdir()} == names
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE(data.stat().st_mode) == 0o700


def test_a_link_that_leads_elsewhere_is_put_right(small: DeskMarket) -> None:
    with small.database.begin() as session:
        job = agreed(small, session, SPEC, holdout=small.upload(session, "buyer", table(9, 80)))
        data = write_market(session, small.settings, job).parent / "data"
        (data / "holdout.csv").unlink()
        (data / "holdout.csv").write_bytes(b"something else")
        (data / "north-sales.csv").unlink()
        (data / "north-sales.csv").symlink_to("/nowhere")
        write_market(session, small.settings, job)
    assert (data / "holdout.csv").read_bytes() == table(9, 80)
    assert (data / "north-sales.csv").read_bytes() == table(1)


def test_a_market_of_sites_is_federated(small: DeskMarket) -> None:
    hub = replace(small.settings, federation=Path("/srv/federation"))
    columns = [{"name": name, "kind": "number"} for name in ("distance", "weight", "vehicle", "late")]
    with small.database.begin() as session:
        made: dict[str, Any] = {
            "name": "Ward",
            "slug": "ward",
            "description": "",
            "policy": Policy(price=3, approval="automatic"),
        }
        offers.make_offer(session, small["north"], hub, site="north-ward", columns=columns, **made)
        holdout = small.upload(session, "buyer", table(9, 80))
        given: dict[str, Any] = {"files": {"holdout": holdout}, "offers": ["north-ward"]}
        job = jobs.draft(session, small["buyer"], hub, name="Wards", spec=SPEC, **given)
        submission.submit(session, small["buyer"], hub, job.id)
        market = load_market(write_market(session, hub, job))
    assert market.engine.kind == "federated" and market.federation is not None
    assert market.federation.folder == Path("/srv/federation")
    assert [(p.id, p.file) for p in market.providers] == [("north-ward", None)]


POSTED = """
[market]
name = "Late parcels"
budget = "0.40"
per_round = 2
currency = "EUR"

[consumer]
name = "we"
train = "own.csv"

[data]
holdout = "holdout.csv"
target = "late"
audit = 0.2

[[stops]]
kind = "no-progress"

[[providers]]
id = "north-sales"

[[providers]]
id = "south-sales"
"""


def test_a_whole_market_toml_is_taken_apart(small: DeskMarket) -> None:
    given, named = jobs.from_market_toml(POSTED)
    assert given["name"] == "Late parcels" and given["offers"] == ["north-sales", "south-sales"]
    assert named == {"holdout": "holdout.csv", "train": "own.csv"}
    assert given["spec"]["data"] == {"target": "late", "audit": 0.2} and given["spec"]["consumer"] == {}
    with small.database.begin() as session:
        small.offer(session, "north", 1)
        small.offer(session, "south", 2)
        ids = {
            role: small.upload(session, "buyer", table(seed), name) for seed, (role, name) in enumerate(named.items())
        }
        job = jobs.draft(session, small["buyer"], small.settings, **given, files=ids)
        market = specification.compose(session, small.settings, job).parsed
    assert market.consumer.train == Path("data/train.csv") and market.data.holdout == Path("data/holdout.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("market = [", "not valid TOML"),
        ("[market]\nseed = 1" + "0" * 4000, "more digits"),
        ("providers = 3", "double brackets"),
        ("[[providers]]\nfile = 'x.csv'", r"providers\[0\].id is missing"),
        ("[[providers]]\nid = 'a'\nprice = 3", r"providers\[0\].price is what the contract with 'a' says"),
    ],
)
def test_a_market_toml_that_cannot_be_taken_apart(text: str, said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        jobs.from_market_toml(text)


_SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text('ab_- ."é'), inner), max_leaves=5
)
_SECTION = st.dictionaries(st.text('ab_- ."é'), _VALUES, max_size=4)


@hypothesis_settings(max_examples=30)
@given(
    st.dictionaries(st.sampled_from(["market", "data x", "ü"]), _SECTION | st.lists(_SECTION, min_size=1, max_size=2))
)
def test_what_is_written_as_toml_is_read_as_it_was(settings: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(settings)) == settings
