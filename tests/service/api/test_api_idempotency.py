"""A POST with an Idempotency-Key is done once: every route, repeated, at once, refused, with secrets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import func, select

from databazaar.service.database.tables import Answered, CashRecord
from databazaar.service.http.calls import REPEATED
from databazaar.service.http.cookies import cookie_name
from databazaar.service.http.security import CSRF_HEADER, csrf_token
from web_market import MakeMarket, WebMarket
from web_rights import OWN_KEY, RIGHTS, Row

POSTS = [(route, row) for route, row in RIGHTS.items() if route[0] != "GET" and route not in OWN_KEY]
NAMES = [" ".join(route) for route, _ in POSTS]


@pytest.fixture(scope="module")
def market(make_market: MakeMarket) -> WebMarket:
    return make_market("sqlite")


@pytest.fixture
def used_market(market: WebMarket) -> Iterator[WebMarket]:
    with market.put_back() as used:
        yield used


def asked(market: WebMarket, row: Row, method: str, path: str, key: str, secret: str, **given: Any) -> Any:
    """By token or, for a person, by the same session each time."""
    if not row.person:
        return market.ask(row.who, method, path, headers={"Idempotency-Key": key}, **given)
    with market.client() as client:
        client.cookies.set(cookie_name(market.settings), secret)
        headers = {"Idempotency-Key": key, CSRF_HEADER: csrf_token(secret)}
        return client.request(method, path, headers=headers, **given)


@pytest.mark.parametrize(("route", "row"), POSTS, ids=NAMES)
def test_every_post_is_done_once_for_each_key(used_market: WebMarket, route: tuple[str, str], row: Row) -> None:
    market = used_market
    path, given = row.at(route[1], market), row.given(market)
    key, secret = f"key of {route[0]} {route[1]}".replace(" ", "-"), market.session_of(row.who) if row.person else ""
    first = asked(market, row, route[0], path, key, secret, **given)
    assert first.status_code in (200, 201, 409), first.text
    assert REPEATED not in first.headers
    again = asked(market, row, route[0], path, key, secret, **given)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers[REPEATED] == "true"
    assert again.headers["content-type"] == first.headers["content-type"]
    if row.form is not None:
        name, content = row.form["files"]["file"]
        other = {**row.form, "files": {"file": (name, content + b"1,1,van,1\n")}}
    else:
        other = {"json": {**given["json"], **_another(given["json"])}} if given else {"content": b"another"}
    refused = asked(market, row, route[0], path, key, secret, **other)
    assert refused.status_code == 422 and "another request" in refused.json()["error"]


def _another(body: dict[str, Any]) -> dict[str, Any]:
    """The same with one value changed."""
    name, value = next((name, value) for name, value in body.items() if not isinstance(value, list))
    if isinstance(value, dict):
        return {name: {**value, **_another(value)}}
    return {name: not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}x"}


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.process)])
def test_of_many_at_once_one_is_done(make_market: MakeMarket, kind: str) -> None:
    market = make_market(kind)
    answers: list[Any] = []

    def ask() -> None:
        headers = {"Idempotency-Key": "all-at-once"}
        answers.append(market.ask("buyer", "POST", "/v1/deposits", json={"amount": 7}, headers=headers))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    assert sum(REPEATED not in answer.headers for answer in answers) == 1
    with market.database.read() as session:
        count = session.scalar(select(func.count()).select_from(CashRecord).where(CashRecord.amount == 7))
    assert count == 1


def test_a_refusal_stays_one_for_its_key_and_not_for_another(market: WebMarket) -> None:
    body, headers = {"agree": True}, {"Idempotency-Key": "too-early"}
    nobody = market.ask("south", "POST", "/v1/contracts/none/decide", json=body, headers=headers)
    again = market.ask("south", "POST", "/v1/contracts/none/decide", json=body, headers=headers)
    assert (nobody.status_code, nobody.content) == (again.status_code, again.content) and nobody.status_code == 404
    assert market.ask("south", "POST", "/v1/contracts/none/decide", json=body).status_code == 404


def test_a_secret_is_kept_for_its_caller_alone(market: WebMarket) -> None:
    body = {"url": "https://buyer.example/secret"}
    headers = {"Idempotency-Key": "with-a-secret"}
    answer = market.ask("buyer", "POST", "/v1/webhooks", json=body, headers=headers)
    secret = answer.json()["secret"]
    assert market.ask("buyer", "POST", "/v1/webhooks", json=body, headers=headers).json()["secret"] == secret
    with market.database.read() as session:
        kept = session.scalars(select(Answered.answer).where(Answered.key == "with-a-secret")).one()
    assert kept is not None and secret.encode() not in kept and b"secret" not in kept
    other = market.ask(market.token("buyer"), "POST", "/v1/webhooks", json=body, headers=headers)
    assert other.status_code == 422 and secret not in other.text


def test_what_is_no_key_is_refused(market: WebMarket) -> None:
    for key in ("short", "x" * 101, "with a space in it"):
        headers = {"Idempotency-Key": key}
        assert market.ask("buyer", "POST", "/v1/deposits", json={"amount": 7}, headers=headers).status_code == 422
