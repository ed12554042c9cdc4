"""What a job leaves behind, and what of it is given to whom."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from databazaar.service.http.app import create_app
from databazaar.service.http.resources import files as downloads
from databazaar.service.lifecycle import JobState, enter, locked_job
from web_market import MakeMarket, TestClient, WebMarket

WHAT = ("model", "statement.json", "statement.csv", "report.html")


@pytest.fixture(scope="module")
def market(make_market: MakeMarket) -> WebMarket:
    return make_market("sqlite")


@pytest.fixture
def job(market: WebMarket) -> str:
    """A job that is over, without anything in its folder."""
    job_id = market.agreed_job()
    market.end(job_id)
    return job_id


def run_folder(market: WebMarket, job: str) -> Path:
    folder = market.settings.run_folder(job)
    (folder / "model").mkdir(parents=True)
    for name in WHAT[1:]:
        (folder / name).write_text(f"<{name}>")
    for name in ("model.safetensors", "model.json"):
        (folder / "model" / name).write_bytes(name.encode() * 1000)
    return folder


def status(market: WebMarket, who: str, job: str, what: str) -> int:
    return int(market.ask(who, "GET", f"/v1/jobs/{job}/{what}").status_code)


def test_what_the_consumer_and_the_operator_get(market: WebMarket, job: str) -> None:
    run_folder(market, job)
    assert [status(market, "buyer", job, what) for what in WHAT] == [200] * 4
    assert [status(market, "hub", job, what) for what in WHAT] == [404, 200, 200, 200]
    assert [status(market, "rival", job, what) for what in WHAT] == [404] * 4


def test_a_model_is_a_zip_of_plain_files(market: WebMarket, job: str) -> None:
    folder = run_folder(market, job)
    (folder / "model" / "other.txt").write_text("not of a model")
    answers = [market.ask("buyer", "GET", f"/v1/jobs/{job}/model") for _ in range(2)]
    assert answers[0].content == answers[1].content and answers[0].headers["content-disposition"].startswith("attach")
    with zipfile.ZipFile(io.BytesIO(answers[0].content)) as archive:
        assert archive.namelist() == ["model/model.safetensors", "model/model.json"]
        assert archive.read("model/model.json") == b"model.json" * 1000
    (folder / "model" / "schema.json").symlink_to(market.settings.home / "hub.sqlite")
    assert status(market, "buyer", job, "model") == 422


def test_a_report_can_do_nothing_at_the_hub(market: WebMarket, job: str) -> None:
    run_folder(market, job)
    policy = market.ask("buyer", "GET", f"/v1/jobs/{job}/report.html").headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'") and "allow-same-origin" not in policy


@pytest.mark.process
def test_before_the_end_and_without_a_run_there_is_nothing(market: WebMarket, job: str) -> None:
    for what in WHAT:
        assert "when it is over" in market.ask("buyer", "GET", f"/v1/jobs/{market.ids['job']}/{what}").json()["error"]
        assert "never played" in market.ask("buyer", "GET", f"/v1/jobs/{job}/{what}").json()["error"]
    market.settings.run_folder(job).mkdir(parents=True)
    assert "no model" in market.ask("buyer", "GET", f"/v1/jobs/{job}/model").json()["error"]
    assert "could not be made" in market.ask("buyer", "GET", f"/v1/jobs/{job}/report.html").json()["error"]


@pytest.mark.process
def test_nobody_waits_for_anothers_report(market: WebMarket, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_folder(market, job)
    with downloads._drawing:
        assert status(market, "buyer", job, "report.html") == 200
        (folder / "report.html").unlink()
        assert status(market, "buyer", job, "report.html") == 429
    monkeypatch.setattr(downloads, "PATIENCE", 0.0)
    assert "too long" in market.ask("buyer", "GET", f"/v1/jobs/{job}/report.html").json()["error"]
    assert not downloads._drawing.locked()


def test_an_own_arbiters_run_is_with_it(market: WebMarket) -> None:
    with market.database.begin() as session:
        enter(session, locked_job(session, market.ids["own job"]), JobState.REFUNDED)
    assert "own arbiter" in market.ask("buyer", "GET", f"/v1/jobs/{market.ids['own job']}/model").json()["error"]


@pytest.mark.process
def test_an_app_begins_and_ends_with_its_supervisor(market: WebMarket) -> None:
    app = create_app(market.settings, market.database)
    with TestClient(app, base_url=market.settings.address) as client:
        assert client.get("/healthz").json()["supervisor"] is True
        app.state.web.wake()
    assert client.get("/healthz").status_code == 503
