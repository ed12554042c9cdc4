"""What a provider with a site does from a shell before it agrees: it looks at who asks for what, and at the schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from databazaar.cli.app import app
from databazaar.federation.accepted_schemas import fingerprint, read_schema
from databazaar.service import contracts, credentials, jobs, offers, submission
from databazaar.service.database.connection import Database
from databazaar.service.lifecycle import ContractState
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings
from desk_market import SPEC, DeskMarket, desk_market, table
from running_hub import RunningHub

COLUMNS = [{"name": name, "kind": "number"} for name in ("distance", "weight", "vehicle", "late")]


def asked(database: Database, settings: Settings) -> DeskMarket:
    """A market in which south has a site, and is asked for it."""
    hub = replace(settings, federation=Path("/srv/federation"))
    market = desk_market(database, hub)
    told: dict[str, Any] = {"name": "Ward", "slug": "ward", "description": "", "policy": Policy(price=5), "rows": 60}
    with database.begin() as session:
        offers.make_offer(session, market["south"], hub, site="south-ward", columns=COLUMNS, **told)
        files = {"holdout": market.upload(session, "buyer", table(9))}
        given: dict[str, Any] = {"name": "Late", "spec": SPEC, "files": files, "offers": ["south-ward"]}
        job = jobs.draft(session, market["buyer"], hub, **given)
        submission.submit(session, market["buyer"], hub, job.id)
    return market


@pytest.mark.process
def test_a_site_looks_at_the_schema_before_it_agrees(tmp_path: Path, make_url: Callable[[str], str]) -> None:
    with RunningHub(tmp_path / "hub", make_url("sqlite"), asked) as hub:
        assert isinstance(hub.market, DeskMarket)
        south = hub.market["south"]
        with hub.database.begin() as session:
            token = credentials.issue_token(session, south, label="shell", scopes=["read", "offers"], days=1)[1]
            (request,) = contracts.own_contracts(session, south, state=ContractState.REQUESTED, party="provider")
        assert request.fingerprint is not None

        def shell(*args: str) -> Result:
            return CliRunner().invoke(app, ["jobs", *args], env={"BAZAAR_HUB": hub.address, "BAZAAR_TOKEN": token})

        assert shell("requests").output.splitlines() == [
            f"{request.id}  buyer asks for south-ward (version 1), 0.05 EUR an access",
            "  predicts 'late' (classification) by model logistic from distance, weight, vehicle",
            "  an ask goes through 32 rows; hosted: the hub's arbiter gets your updates",
            "  defence none",
            f"  schema {request.fingerprint[:12]}: bazaar jobs requests {request.id} --schema schema.json",
        ]
        assert [one["id"] for one in json.loads(shell("requests", "--json").output)] == [request.id]
        path = tmp_path / "schema.json"
        got = shell("requests", request.id, "--schema", str(path)).output
        assert got == f"{path}: your site takes it with `bazaar provider schema kit --accept {path}`\n"
        assert fingerprint(read_schema(path)) == request.fingerprint
        assert shell("requests", request.id, "refuse", "--reason", "not now").output == f"{request.id}  refused\n"
        assert shell("requests").output == "no request waits for you\n"
        with hub.database.read() as session:
            assert contracts.own_contract(session, south, request.id).reason == "not now"
