"""What guards the app: headers, hosts, forms, bodies, rates, logs."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request, Response

from databazaar.service import credentials
from databazaar.service.database.connection import Database
from databazaar.service.http.app import create_app
from databazaar.service.http.cookies import SESSION, cookie_name, delete_cookie, known_browser, set_cookie
from databazaar.service.http.logs import JsonLines, write_logs
from databazaar.service.http.security import CSRF_HEADER, HEADERS, csrf_of, csrf_token
from databazaar.service.http.security_limits import Buckets, Limits
from databazaar.service.settings import Settings
from desk_market import table
from web_market import ENDLESS, MakeMarket, TestClient, WebMarket

CLEAN = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"


@pytest.fixture(scope="module")
def market(make_market: MakeMarket) -> WebMarket:
    made = make_market("sqlite", most_body=2000, most_upload=20_000)

    @made.app.get("/v1/broken/{secret}")
    def broken(secret: str) -> None:
        raise RuntimeError("it broke")

    @made.app.get("/v1/form-token")
    def form_token(request: Request) -> str:
        return csrf_of(request)

    return made


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "databazaar.hub"):
        yield caplog


def test_every_answer_has_the_headers(market: WebMarket) -> None:
    for path in ("/v1/me", "/v1/key", "/nowhere", "/v1/broken/x", "/healthz"):
        headers = market.ask("buyer", "GET", path).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS and headers["x-request-id"]
        assert headers["content-security-policy"] == CLEAN
        assert "strict-transport-security" not in headers


def test_a_secure_hub_wants_tls_from_then_on(market: WebMarket) -> None:
    settings = Settings(market.settings.home, address="https://market.example", secure=True)
    app = create_app(settings, market.database, supervise=False)
    answer = TestClient(app, base_url=settings.address).get("/v1/key")
    assert answer.headers["strict-transport-security"].startswith("max-age=31536000")
    assert cookie_name(settings) == "__Host-bazaar"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1:8001", ""])
def test_another_hosts_requests_are_not_looked_at(market: WebMarket, host: str) -> None:
    assert market.ask("buyer", "GET", "/v1/me", headers={"Host": host}).status_code == 421
    assert market.ask("", "GET", "/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}])
def test_another_sites_forms_are_refused(market: WebMarket, headers: dict[str, str]) -> None:
    with market.client() as client:
        client.cookies.set(cookie_name(market.settings), secret := market.session_of("buyer"))
        given = {CSRF_HEADER: csrf_token(secret), **headers}
        assert client.post("/v1/deposits", json={"amount": 5}, headers=given).status_code == 403
        assert client.get("/v1/me", headers=headers).status_code == 200


def test_a_persons_post_carries_the_token_of_the_forms(market: WebMarket) -> None:
    with market.client() as client:
        client.cookies.set(cookie_name(market.settings), secret := market.session_of("buyer"))
        token = client.get("/v1/form-token").json()
        assert token == csrf_token(secret) and secret not in token
        for wrong in ({}, {CSRF_HEADER: "no"}, {CSRF_HEADER: csrf_token("another session")}):
            refused = client.post("/v1/deposits", json={"amount": 5}, headers=wrong)
            assert refused.status_code == 403 and "form" in refused.json()["error"]
        assert client.post("/v1/deposits", json={"amount": 5}, headers={CSRF_HEADER: token}).status_code == 201
        form = {"file": ("table.csv", table(5, rows=12))}
        assert client.post("/v1/files", files=form, data={"csrf": token}).status_code == 201
        assert client.post("/v1/files", files=form, data={"csrf": "no"}).status_code == 403
    assert market.ask("buyer", "GET", "/v1/form-token").json() == ""


def test_the_cookie_is_for_the_browser_alone(market: WebMarket) -> None:
    response = Response()
    set_cookie(response, Settings(market.settings.home, secure=True), SESSION, "secret")
    cookie = response.headers["set-cookie"].lower()
    assert cookie.startswith("__host-bazaar=secret;")
    assert all(part in cookie for part in ("httponly", "secure", "samesite=lax", "path=/")) and "domain" not in cookie
    delete_cookie(response, Settings(market.settings.home, secure=True), SESSION)
    assert "max-age=0" in response.headers.getlist("set-cookie")[1].lower()


def test_a_token_in_the_cookie_or_a_session_as_a_token_is_nobody(market: WebMarket) -> None:
    with market.client() as client:
        client.cookies.set(cookie_name(market.settings), market.tokens["buyer"])
        assert client.get("/v1/me").status_code == 401
    assert market.ask(market.session_of("buyer"), "GET", "/v1/me").status_code == 401
    assert market.ask("", "GET", "/v1/me", headers={"Authorization": "Basic YTpi"}).status_code == 401


def test_a_body_is_bounded_whether_or_not_it_says_how_long_it_is(market: WebMarket) -> None:
    long = b'{"amount": 5' + b" " * 3000 + b"}"
    for content in (long, (long[i : i + 100] for i in range(0, len(long), 100))):
        refused = market.ask(
            "buyer", "POST", "/v1/deposits", content=content, headers={"Content-Type": "application/json"}
        )
        assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
    refused = market.ask("buyer", "POST", "/v1/deposits", content=b"", headers={"Content-Length": "abc"})
    assert refused.status_code == 413


def test_an_upload_may_be_longer_and_has_its_own_bound(market: WebMarket) -> None:
    assert market.ask("buyer", "POST", "/v1/files", files={"file": ("t.csv", table(5, rows=200))}).status_code == 201
    large = {"file": ("t.csv", table(5, rows=5000))}
    assert market.ask("buyer", "POST", "/v1/files", files=large).status_code == 413
    assert market.ask("", "POST", "/v1/files", files=large).status_code in (401, 413)
    assert market.ask("buyer", "POST", "/v1/files", json={"amount": 5}).status_code == 422
    assert market.ask("buyer", "POST", "/v1/files", data={"file": "text"}, files={"x": ("x", b"1")}).status_code == 422


def test_a_token_that_asks_too_often_waits(market: WebMarket) -> None:
    limits = ENDLESS()
    limits.token = Buckets(per_second=0.5, burst=3)
    limits.strangers = Buckets(per_second=0.5, burst=2)
    app = create_app(market.settings, market.database, supervise=False, limits=limits)
    client = TestClient(app, base_url=market.settings.address)

    def statuses(token: str, count: int) -> list[int]:
        return [client.get("/v1/me", headers={"Authorization": f"Bearer {token}"}).status_code for _ in range(count)]

    assert statuses(market.tokens["buyer"], 4) == [200, 200, 200, 429]
    assert statuses(market.tokens["north"], 1) == [200]
    assert [statuses(f"guess{number}", 1)[0] for number in range(3)] == [401, 401, 429]
    answer = client.get("/v1/me", headers={"Authorization": f"Bearer {market.tokens['buyer']}"})
    assert 1 <= int(answer.headers["retry-after"]) <= 2 and "seconds" in answer.json()["error"]


PASSWORD = "four words are enough"


def attempts(market: WebMarket, limits: Limits) -> Callable[..., Any]:
    """Signs in at the real app, from an address and perhaps with a browser's cookies; gives the answer."""
    app = create_app(market.settings, market.database, supervise=False, limits=limits)

    def attempt(host: str, password: str, email: str = "ann@buyer.example", cookies: Any = None) -> Any:
        client = TestClient(app, base_url=market.settings.address, client=(host, 1), follow_redirects=False)
        client.cookies.update(cookies or {})
        return client.post("/sign-in", data={"email": email, "password": password})

    return attempt


def test_who_guesses_locks_nobody_else_out_and_is_bounded(market: WebMarket) -> None:
    """Wrong passwords from elsewhere, from everywhere, and from the owner's own address."""
    with market.database.begin() as session:
        credentials.set_password(session, market.desk["buyer"], PASSWORD)
    few = {"place": Buckets(1e-4, 3), "account": Buckets(1e-4, 8), "browser": Buckets(1e-4, 3)}
    attempt = attempts(market, Limits(address=Buckets(1e-4, 6), **few))
    owner = attempt("192.0.2.1", PASSWORD).cookies
    assert [attempt("192.0.2.66", "wrong").status_code for _ in range(5)] == [401, 401, 401, 429, 429]
    assert attempt("192.0.2.2", PASSWORD).status_code == 303, "another address is not locked by that one"
    guessed = [attempt(f"192.0.2.{host}", "wrong").status_code for host in range(100, 108)]
    assert guessed == [401] * 3 + [429] * 5, "eight in all, three of them above and two that were right"
    assert attempt("192.0.2.3", PASSWORD).status_code == 429
    for host in ("192.0.2.1", "192.0.2.66", "192.0.2.77"):
        assert attempt(host, PASSWORD, " Ann@buyer.example", owner).status_code == 303, "the owner's browser"
    assert attempt("192.0.2.4", PASSWORD, cookies={"known": "a" * 32 + "." + "b" * 64}).status_code == 429
    assert attempt("192.0.2.5", PASSWORD, "ann@rival.example", owner).status_code == 401, "it is another's browser"
    assert [attempt("192.0.2.6", "wrong", cookies=owner).status_code for _ in range(4)] == [401, 401, 401, 429]
    assert [attempt("192.0.2.7", "wrong", f"{n}@a.example").status_code for n in range(7)][-2:] == [401, 429]


def test_a_link_too_makes_a_browser_known(market: WebMarket) -> None:
    with market.database.begin() as session:
        link = credentials.issue_link(session, market.desk["hub"], str(market.desk["rival"].person_id))
    with market.client() as client:
        joined = client.post("/join", data={"secret": link}, follow_redirects=False)
    request = Request({"type": "http", "headers": [(b"cookie", f"known={joined.cookies['known']}".encode())]})
    assert known_browser(request, market.settings, "Ann@rival.example")
    assert not known_browser(request, market.settings, "ann@buyer.example")
    assert (market.settings.keys / "browsers.key").stat().st_mode & 0o777 == 0o600


def test_a_log_line_says_what_was_asked_and_no_secret(market: WebMarket, written: pytest.LogCaptureFixture) -> None:
    token = market.tokens["buyer"]
    market.ask("buyer", "GET", f"/v1/jobs/{market.ids['job']}?password=hunter2", headers={"X-Request-ID": "abc-12345"})
    market.ask("buyer", "GET", "/v1/broken/sesame", headers={"X-Request-ID": "evil\nline"})
    market.ask("buyer", "GET", "/nowhere/hunter3")
    lines = [JsonLines().format(record) for record in written.records]
    told = [json.loads(line) for line in lines]
    assert [(one["route"], one["status"], one["organisation"]) for one in told] == [
        ("/v1/jobs/{job_id}", 200, "buyer"),
        ("/v1/broken/{secret}", 500, None),
        ("none", 404, None),
    ]
    assert told[0]["request"] == "abc-12345" and re.fullmatch("[0-9a-f]{16}", told[1]["request"])
    assert told[0]["ms"] > 0 and "it broke" in told[1]["failure"]
    text = "".join(lines)
    assert not any(secret in text for secret in (token, "hunter", "sesame", market.ids["job"]))


def test_what_is_written_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    loggers = [logging.getLogger(name) for name in ("databazaar", "uvicorn")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    try:
        write_logs()
        try:
            raise ValueError("lost")
        except ValueError:
            logging.getLogger("uvicorn.error").exception("it %s", "failed")
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate, logger.level = handlers, propagate, level
    told = json.loads(capsys.readouterr().err)
    assert (told["level"], told["message"]) == ("error", "it failed") and "ValueError: lost" in told["failure"]


def test_a_refusal_repeats_nothing_that_was_sent(market: WebMarket) -> None:
    refused = market.ask("buyer", "POST", "/v1/deposits", json={"amount": "hunter2", "more": "sesame"})
    assert refused.status_code == 422 and refused.json()["code"] == "invalid"
    assert "hunter" not in refused.text and "sesame" not in refused.text and "body.amount" in refused.json()["error"]
    assert market.ask("buyer", "DELETE", "/v1/me").json()["code"] == "wrong_method"
    assert market.ask("buyer", "GET", "/v1/jobs?after=nothing").json()["code"] == "invalid"


def test_healthz_says_when_the_database_does_not_fit_or_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(tmp_path)
    for url, reachable in ((f"sqlite:///{tmp_path / 'new.sqlite'}", True), (f"sqlite:///{tmp_path}/no/where", False)):
        database = Database(url)
        client = TestClient(create_app(settings, database, supervise=False), base_url=settings.address)
        answer = client.get("/healthz")
        assert answer.status_code == 503
        assert answer.json() == {"ok": False, "database": reachable, "schema_current": False, "supervisor": None}
        assert ("the database does not answer" in caplog.text) == (not reachable)
        assert client.get("/v1/me", headers={"Authorization": "Bearer x"}).status_code in (500, 503)
        database.dispose()


def test_metrics_count_requests_jobs_and_entries(market: WebMarket) -> None:
    market.ask("hub", "GET", "/v1/me")
    text = market.ask("hub", "GET", "/metrics").text
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(samples['bazaar_http_requests_total{method="GET",route="/v1/me",status="200"}']) > 0
    assert samples['bazaar_jobs{state="draft"}'] == "2" and samples['bazaar_jobs{state="submitted"}'] == "1"
    assert samples["bazaar_journal_entries"] == "0" and samples["bazaar_viewers"] == "0"
    assert samples['bazaar_http_request_seconds_bucket{le="+Inf"}'] == samples["bazaar_http_request_seconds_count"]
