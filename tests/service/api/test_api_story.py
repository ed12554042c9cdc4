"""A market from the first link to the last receipt: `bazaar serve` as a process, over TLS, from Python and a shell."""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from databazaar.cli import hub_access as connecting
from databazaar.cli.app import app
from databazaar.client import Hub, HubError
from databazaar.client.receipts import verify
from databazaar.runs.trained import load_model
from databazaar.service import credentials, members
from databazaar.service.database.connection import Database
from databazaar.service.settings import Settings
from desk_market import table
from processes import Forked
from web_server import bound, certificate, until

pytestmark = pytest.mark.process

MARKET = """
[market]
name = "Delays"
budget = "0.40"
per_round = 2
[data]
holdout = "holdout.csv"
target = "late"
[model]
kind = "logistic"
[oracle]
kind = "local-sgd"
steps = 4
batch_size = 8
[[providers]]
id = "north-sales"
[[providers]]
id = "south-sales"
"""


SELLERS = ("north", "south")
TRAINED = (
    "predict {folder}/model {folder}/new.csv --out {folder}/predictions.csv",
    "evaluate {folder}/model {folder}/new.csv --out {folder}/evaluation",
)
"""What is done with a model from its folder alone."""


@dataclass
class Story:
    """A hub that runs, and tokens by slug."""

    address: str
    folder: Path
    tokens: dict[str, str]

    def hub(self, slug: str) -> Hub:
        return Hub(self.address, self.tokens[slug])

    def shell(self, *args: str, slug: str = "buyer") -> Result:
        return CliRunner().invoke(app, args, env={"BAZAAR_HUB": self.address, "BAZAAR_TOKEN": self.tokens[slug]})


def signed_in(home: Path, link: str) -> dict[str, str]:
    """Tokens of the operator, whose link this is, and of those whom it invites."""
    database, roles = (
        Database(Settings(home).database_url),
        {"north": "provides", "south": "provides", "buyer": "consumes"},
    )
    with database.begin() as session:
        operator = credentials.redeem_link(session, link.rpartition("#")[2]).caller
        callers = {"operator": operator}
        for slug, role in roles.items():
            invited = members.invite(
                session, operator, name=slug.title(), slug=slug, email=f"{slug}@x.example", **{role: True}
            )
            callers[slug] = credentials.redeem_link(session, invited.secret).caller
        tokens = {
            slug: credentials.issue_token(session, caller, label="story", scopes=sorted(caller.scopes), days=1)[1]
            for slug, caller in callers.items()
        }
    database.dispose()
    return tokens


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("story")
    home, (cert, key) = folder / "hub", certificate(folder)
    made = CliRunner().invoke(app, ["serve", "operator", "ann@x.example", "--market", "Harbour", "--home", str(home)])
    assert made.exit_code == 0, made.output
    with bound() as (_, free):
        address = free.replace("http:", "https:")
    command = [
        "serve",
        "--home",
        str(home),
        "--port",
        address.rpartition(":")[2],
        "--address",
        address,
        "--cash",
        "test",
    ]
    command += ["--tls-cert", str(cert), "--tls-key", str(key), "--runners", "1"]
    before, os.environ["SSL_CERT_FILE"] = os.environ.get("SSL_CERT_FILE"), str(cert)
    log = (folder / "log").open("w")
    hub = Forked(
        [sys.executable, "-m", "databazaar", *command], serves=True, draws=True, stdout=log, stderr=log
    )  # the run is audited here, with its report
    try:
        until(lambda: _answers(address) or hub.poll() is not None, patience=120)
        assert hub.poll() is None, (folder / "log").read_text()
        yield Story(address, folder, signed_in(home, made.output.split()[-1]))
    finally:
        hub.send_signal(signal.SIGINT)
        assert hub.wait(60) == 0
        log.close()
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_a_market_from_its_offers_to_its_receipts(story: Story) -> None:
    for place, slug in enumerate(("north", "south")):
        path = story.folder / f"{slug}.csv"
        path.write_bytes(table(place))
        with story.hub(slug) as provider:
            policy = {"price": 5, "approval": "by hand" if slug == "south" else "automatic"}
            offer = provider.make_file_offer(f"Sales of {slug}", "sales", policy, provider.upload(path).id)
            assert offer.slug == f"{slug}-sales" and [one.id for one in provider.own_offers()] == [offer.id]
    (story.folder / "holdout.csv").write_bytes(table(9))
    (story.folder / "market.toml").write_text(MARKET)
    with story.hub("buyer") as buyer, story.hub("south") as south, story.hub("operator") as operator:
        assert operator.set_fee(1000).fee_basis_points == 1000
        assert [offer.slug for offer in buyer.offers()] == ["north-sales", "south-sales"]
        made = story.shell("jobs", "submit", str(story.folder / "market.toml"), "--json")
        job = json.loads(made.output)
        assert (job["state"], job["budget"]) == ("submitted", 40)
        (request,) = south.requests()
        assert request.consumer == "buyer" and request.model == "logistic" and not hasattr(request, "budget")
        _decided_from_the_shell(story, request)
        quote = buyer.quote(job["id"])
        assert (quote.escrow, quote.most_fee) == (44, 4)
        told = story.shell("jobs", "show", job["id"], "--quote").output
        assert "into escrow: 0.44 EUR = budget 0.40 EUR + fee 0.04 EUR at the most (10.00 % of pay)" in told
        assert "accesses: about 8 " in told and "south-sales  0.05 EUR an access  open" in told
        assert json.loads(story.shell("jobs", "show", job["id"], "--quote", "--json").output)["escrow"] == 44
        with pytest.raises(HubError, match=r"deposit 0\.44 EUR more") as refused:
            buyer.fund(job["id"])
        assert (refused.value.status, refused.value.code) == (409, "conflict")
        assert story.shell("jobs", "fund", job["id"]).exception is not None
        buyer.deposit(100)
        funded = story.shell("jobs", "fund", job["id"])
        assert "queued" in funded.output, funded.output
        seen = [
            json.loads(line)
            for line in story.shell("jobs", "show", job["id"], "--follow", "--json").output.splitlines()
        ]
        rounds = [one["round"] for one in seen if one["event"] == "round"]
        assert rounds == list(range(1, len(rounds) + 1)) and rounds
        assert seen[-1]["state"] == "settled"
        lines = story.shell("jobs", "show", job["id"], "--follow").output.splitlines()
        assert lines[0].startswith("round 1  utility 0.") and lines[-1].startswith("settled")
        assert json.loads(story.shell("jobs", "show", job["id"], "--json").output)["contracts"][0]["paid"] is not None
        assert list(buyer.watch(job["id"]))[-1].data["state"] == "settled"
        assert [seen.data["state"] for seen in buyer.watch(job["id"], since=rounds[-1])] == ["settled"]
        over = buyer.job(job["id"])
        assert (over.paid, over.fee, over.refunded) == (40, 4, 0)
        assert buyer.balances()["cash:buyer"] == 56
        (receipt,) = south.receipts()
        assert verify(vars(receipt), operator.public_keys()) and receipt.body["job"] == job["id"]
        assert (
            sum(one.paid or 0 for one in south.contracts(state="ended", party="provider"))
            == south.balances()["earned:south"]
        )
        audit = operator.audit_journal()
        assert audit.ok and audit.entries == len(list(operator.journal()))
        assert {one.running + one.waiting for one in operator.queues()} == {0}
        told = story.shell("jobs", "show", job["id"]).output
        assert "settled" in told and re.search(r"south-sales  0.05 EUR  ended  \d accesses", told)
        assert "paid 0.40 EUR" in told
        _checked_without_the_hub(
            story, receipt, operator.public_keys()[0], south.export_journal(story.folder / "lines")
        )
        got = story.shell("jobs", "download", job["id"], "--out", str(story.folder / "got"))
        assert got.exit_code == 0, got.output
        _holdout_goes(story, buyer, job["id"])
    with zipfile.ZipFile(story.folder / "got" / f"{job['id']}-model.zip") as model:
        assert "model/model.safetensors" in model.namelist() and model.testzip() is None
    statement = json.loads((story.folder / "got" / f"{job['id']}-statement.json").read_text())
    assert statement["closed"] and (story.folder / "got" / f"{job['id']}-statement.csv").read_text()
    assert "<html" in (story.folder / "got" / f"{job['id']}-report.html").read_text()


def test_a_model_that_is_trained_on_rows(story: Story, tmp_path: Path) -> None:
    """`auto`, which `bazaar init` writes, from the submission to the receipt, and to what is done with the model."""
    (tmp_path / "holdout.csv").write_bytes(table(9))
    trains = MARKET.partition("[model]")[0] + '[model]\nkind = "auto"\n[defence]\nkind = "standard"\n'
    (tmp_path / "market.toml").write_text(trains + "".join(f'[[providers]]\nid = "{one}-sales"\n' for one in SELLERS))
    with story.hub("buyer") as buyer, story.hub("south") as south:
        job = json.loads(story.shell("jobs", "submit", str(tmp_path / "market.toml"), "--json").output)
        (request,) = south.requests()
        assert (request.model, request.learner, request.trains_on_rows, request.rows) == ("auto", "blending", True, 60)
        told = story.shell("jobs", "requests", slug="south").output
        assert "an access buys up to 60 rows of the table, which train the model inside the hub" in told
        assert "learner blending; hosted: no row leaves the hub" in told
        south.decide(request.id, True)
        quote = buyer.quote(job["id"])
        assert quote.quote["accesses"]["median"] == 8 and quote.quote["defence"].startswith("standard")
        buyer.deposit(quote.escrow)
        buyer.fund(job["id"])
        assert list(buyer.watch(job["id"]))[-1].data["state"] == "settled"
        over, rounds = buyer.job(job["id"]), buyer.rounds(job["id"])
        assert rounds[-1]["asked"] == 40 and rounds[-1]["utility"] > 0.5
        receipts = [one for one in south.receipts() if one.body["job"] == job["id"]]
        assert [one.body["run_head"] for one in receipts] == [over.run_head]
        buyer.download(job["id"], "model", tmp_path / "model.zip")
        buyer.download(job["id"], "statement.json", tmp_path / "statement.json")
        assert json.loads((tmp_path / "statement.json").read_text())["closed"]
    with zipfile.ZipFile(tmp_path / "model.zip") as packed:
        packed.extractall(tmp_path)
    (tmp_path / "new.csv").write_bytes(table(11, rows=400))
    for command in TRAINED:
        done = CliRunner().invoke(app, command.format(folder=tmp_path).split())
        assert done.exit_code == 0, done.output
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 401
    refused = CliRunner().invoke(app, ["export", str(tmp_path / "model")])
    assert "holds no boosted trees alone" in str(refused.exception) and "bazaar predict" in str(refused.exception)
    assert load_model(tmp_path / "model").card.model_hash == over.model_hash


def _decided_from_the_shell(story: Story, request: Any) -> None:
    """By a provider whose file is at the hub: it is told what is predicted, and sees no schema."""
    told = story.shell("jobs", "requests", slug="south").output
    assert f"{request.id}  buyer asks for south-sales (version 1), 0.05 EUR an access" in told
    assert "predicts 'late' (classification) by model logistic from distance, weight, vehicle" in told
    assert "rows; hosted: the hub's arbiter gets your updates" in told and "schema" not in told
    assert json.loads(story.shell("jobs", "requests", "--json", slug="south").output) == [
        request.model_dump(mode="json")
    ]
    refused = story.shell("jobs", "requests", request.id, "--schema", str(story.folder / "schema.json"), slug="south")
    assert "no schema to look at" in str(refused.exception) and not (story.folder / "schema.json").exists()
    assert "agreed" in story.shell("jobs", "requests", request.id, "agree", slug="south").output
    assert story.shell("jobs", "requests", slug="south").output == "no request waits for you\n"


def _holdout_goes(story: Story, buyer: Hub, job_id: str) -> None:
    """Once the job is over, and what was agreed and delivered stays."""
    (holdout,) = buyer.files()
    assert [(use.id, use.needed) for use in holdout.uses] == [(job_id, False)]
    assert buyer.delete_file(holdout.id).digest == holdout.digest and not list(buyer.files())
    with pytest.raises(HubError, match="there is no file"):
        buyer.delete_file(holdout.id)
    home = story.folder / "hub"
    assert holdout.digest not in {hashlib.sha256(path.read_bytes()).hexdigest() for path in home.rglob("*.csv")}
    audited = CliRunner().invoke(app, ["audit", str(home / "jobs" / job_id / "run")])
    assert audited.exit_code == 0, audited.output
    assert buyer.download(job_id, "report.html", story.folder / "later.html").stat().st_size


def _checked_without_the_hub(story: Story, receipt: Any, key: str, lines: Path) -> None:
    """`bazaar audit --key`, on files alone: what holds, what was changed, and what is none."""
    kept, public, other = (story.folder / name for name in ("receipt.json", "key.json", "other.json"))
    kept.write_text(receipt.model_dump_json())
    public.write_text(json.dumps({"key": key}))
    check = ("audit", str(kept), "--key", str(public))
    assert "with --journal" in story.shell(*check).output
    assert "south was paid" in story.shell(*check, "--journal", str(lines)).output
    lines.write_text("".join(lines.read_text().splitlines(keepends=True)[:-1]))
    assert "the journal ends before" in str(story.shell(*check, "--journal", str(lines)).exception)
    other.write_text(receipt.model_copy(update={"body": {**receipt.body, "paid": 999}}).model_dump_json())
    assert "not signed with that key" in str(story.shell("audit", str(other), *check[2:]).exception)
    assert "as JSON" in str(story.shell("audit", str(lines), *check[2:]).exception)


def test_the_walk_of_the_reference(story: Story) -> None:
    """Line by line as docs/reference/http-api.md has it, with curl."""
    walk = runpy.run_path(str(Path(__file__).parents[3] / "scripts" / "api_reference.py"))["WALK"]
    folder = story.folder / "walk"
    folder.mkdir()
    (folder / "table.csv").write_bytes(table(4))
    (folder / "holdout.csv").write_bytes(table(9))
    short = MARKET.partition("[[providers]]")[0].replace('"0.40"', '"0.10"')
    (folder / "market.toml").write_text(f'{short}[[providers]]\nid = "north-walks"\n')
    given = {"HUB": story.address, "PROVIDER": story.tokens["north"], "CONSUMER": story.tokens["buyer"]}
    given |= {"CURL_CA_BUNDLE": os.environ["SSL_CERT_FILE"], "no_proxy": "*"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", walk],
        cwd=folder,
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "agreed\n" in done.stdout and "queued\n" in done.stdout and "event: state" in done.stdout
    assert "0.10 EUR paid" in done.stdout and "'offer': 'north-walks'" in done.stdout
    assert zipfile.is_zipfile(folder / "model.zip") and "north-walks" in (folder / "statement.csv").read_text()
    assert json.loads((folder / "hub-key.json").read_text())["former"] == []


def test_the_rest_of_what_one_does(story: Story) -> None:
    """Each method of the client that the market above has no use for."""
    with story.hub("operator") as operator, story.hub("buyer") as buyer, story.hub("north") as north:
        east = operator.invite("East", "east", "ann@east.example", provides=True)
        assert re.fullmatch(rf"{re.escape(story.address)}/join#[\w-]{{43}}", east.link)
        assert operator.suspend(east.organisation.id).suspended_at
        assert operator.restore(east.organisation.id).suspended_at is None
        (ann,) = operator.people(east.organisation.id)
        assert ann.email == "ann@east.example" and operator.disable_person(ann.id).disabled_at
        assert {one.slug for one in operator.organisations()} >= {"north", "east"}
        with pytest.raises(HubError, match="signed in"):
            operator.issue_token("more", ["read"])
        file = north.upload(story.folder / "holdout.csv")
        assert north.file(file.id).rows == 60
        policy = {"price": 7, "approval": "automatic"}
        offer = north.make_file_offer("Spare", "spare", policy, file.id)
        assert north.new_version(offer.id, file.id).number == 2
        assert north.change_policy(offer.id, {**policy, "price": 8}).policy["price"] == 8
        assert buyer.offer("north-spare").price == 8
        with pytest.raises(HubError, match="federation"):
            north.make_site_offer("Site", "site", policy, "north-site", [{"name": "late", "kind": "number"}])
        holdout = buyer.upload(story.folder / "holdout.csv").id
        spec = {"market": {"budget": "0.40", "per_round": 2}, "data": {"target": "late"}, "model": {"kind": "logistic"}}
        job = buyer.draft("Second", spec, ["north-spare"], {"holdout": holdout})
        assert buyer.change(job.id, name="Renamed").name == "Renamed"
        assert "agreed" in story.shell("jobs", "submit", job.id).output
        assert buyer.contract(next(buyer.contracts(job.id)).id).price == 8
        assert "refunded" in story.shell("jobs", "stop", job.id).output
        assert buyer.rounds(job.id) == [] and len(list(buyer.events(job.id))) == 4
        (story.folder / "own.toml").write_text(MARKET.replace("south-sales", "north-spare"))
        own = json.loads(
            story.shell("jobs", "submit", str(story.folder / "own.toml"), "--own", "--draft", "--json").output
        )
        assert (own["mode"], own["state"], own["files"]) == ("own", "draft", {})
        (story.folder / "wrong.toml").write_text(MARKET.replace('"late"', '"later"'))
        refused = str(story.shell("jobs", "submit", str(story.folder / "wrong.toml")).exception)
        left = next(buyer.jobs())
        assert left.state == "draft" and "later" in refused and f"the draft {left.id} is kept" in refused
        assert buyer.withdraw(left.id).state == "refunded"
        assert "Renamed" in story.shell("jobs", "show").output
        assert {one["id"] for one in json.loads(story.shell("jobs", "show", "--json").output)} == {
            one.id for one in operator.jobs(everybodys=True)
        }
        assert "no jobs yet" in story.shell("jobs", "show", slug="north").output
        assert north.withdraw_offer(offer.id).withdrawn_at
        hook = buyer.add_webhook("https://buyer.example/hook").webhook
        assert list(buyer.deliveries(hook.id)) == []
        assert [one.id for one in buyer.webhooks()] == [buyer.remove_webhook(hook.id).id]
        assert north.payout(1).state == buyer.payout(1, source="cash").state == "done"
        done = [one.id for one in operator.cash("done")]
        assert operator.confirm(done[0]).state == "done"
        with pytest.raises(HubError, match="confirmed"):
            operator.refuse(done[0], "too late")
        assert next(buyer.statement()).kind == "withdraw" and buyer.me().market.currency == "EUR"
        assert len(operator.export_journal(story.folder / "journal.jsonl").read_text().splitlines()) >= 4
        spare = [one.id for one in buyer.tokens()]
        assert buyer.revoke_token(spare[0]).revoked_at
        with pytest.raises(HubError, match="revoked"):
            buyer.me()


def test_a_shell_that_keeps_its_hub(story: Story, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(connecting.ADDRESS, raising=False)
    monkeypatch.delenv(connecting.TOKEN, raising=False)
    shell = CliRunner()
    assert "bazaar jobs connect" in str(shell.invoke(app, ["jobs", "show"]).exception)
    kept = shell.invoke(app, ["jobs", "connect", story.address], input=story.tokens["north"] + "\n")
    assert "you are North at Harbour" in kept.output and story.tokens["north"] not in kept.output
    assert connecting.config_file().stat().st_mode & 0o777 == 0o600
    assert shell.invoke(app, ["jobs", "show"]).exit_code == 0
    other = {connecting.ADDRESS: "https://other.example"}
    assert "not known which hub" in str(shell.invoke(app, ["jobs", "show"], env=other).exception)
    connecting.config_file().chmod(0o644)
    assert "chmod 600" in str(shell.invoke(app, ["jobs", "show"]).exception)
    connecting.config_file().write_text("no toml")
    connecting.config_file().chmod(0o600)
    assert "cannot be read" in str(shell.invoke(app, ["jobs", "show"]).exception)
