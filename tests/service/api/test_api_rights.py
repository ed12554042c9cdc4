"""Every route of the app, asked by everybody who may not: all are denied, and nothing has changed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fastapi.routing import iter_route_contexts
from sqlalchemy import func, select

from databazaar.service import credentials
from databazaar.service.caller import allowed_scopes
from databazaar.service.database.tables import Table, now
from databazaar.service.http.cookies import cookie_name
from databazaar.service.http.security import csrf_token
from web_market import MakeMarket, WebMarket
from web_rights import PUBLIC, PUBLIC_PAGES, RIGHTS, Row

ROUTES = list(RIGHTS.items())
NAMES = [f"{method} {path}" for method, path in RIGHTS]


@pytest.fixture(scope="module")
def market(make_market: MakeMarket) -> WebMarket:
    return make_market("sqlite")


@pytest.fixture(scope="module")
def made_market(make_market: MakeMarket) -> WebMarket:
    return make_market("sqlite")


@pytest.fixture
def used_market(made_market: WebMarket) -> Iterator[WebMarket]:
    """Each test finds it as it was made, whatever others have done in it before."""
    with made_market.put_back() as market:
        yield market


def rows_of(market: WebMarket) -> dict[str, int]:
    tables = Table.metadata.sorted_tables
    with market.database.read() as session:
        return {table.name: session.scalar(select(func.count()).select_from(table)) or 0 for table in tables}


def test_every_route_has_a_row(market: WebMarket) -> None:
    found = {
        (method, str(route.path))
        for route in iter_route_contexts(market.app.routes)
        for method in (route.methods or ())
        if method != "HEAD" and str(route.path).startswith(("/v1/", "/healthz", "/metrics"))
    }
    assert found == {*PUBLIC, *RIGHTS}


@pytest.mark.parametrize(("route", "row"), ROUTES, ids=NAMES)
def test_whoever_may_not_is_denied(market: WebMarket, route: tuple[str, str], row: Row) -> None:
    method, path = route[0], row.at(route[1], market)

    def status(token: str) -> int:
        return int(market.ask(token, method, path, **row.given(market)).status_code)

    before = rows_of(market)
    strangers = ["", "no-token", market.revoked(row.who), market.expired(row.who)]
    assert [status(one) for one in strangers] == [401] * 4
    assert status(_without(market, row)) == 403
    if row.person:
        assert status(row.who) in (403, 404), "a token is no person"
    if row.wrong:
        assert status(row.wrong) in (403, 404)
    if row.other and row.person:
        assert market.ask_as_person(row.other, method, path, **row.given(market)).status_code == 404
    elif row.other:
        assert status(row.other) == (403 if row.scope == "operate" else 404)
    after = rows_of(market)
    del before["tokens"], after["tokens"]  # those that are asked with here
    assert after == before


def _without(market: WebMarket, row: Row) -> str:
    """A token of whoever may, with every right but the one that it takes."""
    caller = market.desk[row.who]
    rights = allowed_scopes(caller.operates, caller.consumes, caller.provides)
    left = rights - set(row.scope.split())
    return market.token(row.who, *left)


@pytest.mark.parametrize(("route", "row"), ROUTES, ids=NAMES)
def test_whoever_may_is_let_in(used_market: WebMarket, route: tuple[str, str], row: Row) -> None:
    """Else the rows above would test nothing: each request is one that the right caller can make."""
    if route[1].endswith("/live"):  # it ends when the job does
        used_market.end(used_market.ids["asked job"])
    answer = row.ask(used_market, route)
    assert answer.status_code in (200, 201, 204, 409), answer.text


def test_the_public_routes_answer_anybody(market: WebMarket) -> None:
    assert {market.ask("", method, path).status_code for method, path in PUBLIC} == {200}


def pages_of(market: WebMarket) -> list[tuple[str, str]]:
    """The routes for people, but for those that anybody may see, or that let somebody in."""
    return [
        (method, re.sub(r"{.*?}", "some", str(route.path)))
        for route in iter_route_contexts(market.app.routes)
        for method in (route.methods or ())
        if method != "HEAD" and not str(route.path).startswith(("/v1/", "/healthz", "/metrics", *PUBLIC_PAGES))
    ]


def test_pages_lead_strangers_to_where_they_sign_in(market: WebMarket) -> None:
    spoilt = market.session_of("hub"), market.session_of("hub")
    market.spoil(spoilt[0], revoked_at=now())
    market.spoil(spoilt[1], expires_at=now())
    for secret in ("", "no-session", *spoilt):
        with market.client() as client:
            client.cookies.set(cookie_name(market.settings), secret)
            for method, path in pages_of(market):
                answer = client.request(method, path, follow_redirects=False)
                led = answer.status_code == 303 and answer.headers["location"].startswith("/sign-in")
                assert led, f"{method} {path}: {answer.status_code}"


def test_no_page_takes_a_form_of_another_session(market: WebMarket) -> None:
    before = rows_of(market)
    with market.client() as client:
        client.cookies.set(cookie_name(market.settings), market.session_of("hub"))
        for method, path in pages_of(market):
            if method == "POST":
                answer = client.post(path, data={"csrf": csrf_token("another")}, follow_redirects=False)
                assert answer.status_code == 403, f"{path}: {answer.status_code}"
    after = rows_of(market)
    del before["tokens"], after["tokens"]
    assert after == before


def test_a_suspended_organisation_is_unknown(market: WebMarket) -> None:
    east = market.ask(
        "hub", "POST", "/v1/organisations", json={"name": "E", "slug": "e", "email": "e@e.example", "consumes": True}
    ).json()["organisation"]["id"]
    with market.database.begin() as session:
        token = credentials.issue_token(
            session, market.desk["hub"], label="theirs", scopes=["read"], days=1, organisation_id=east
        )[1]
    assert market.ask(token, "GET", "/v1/me").json()["organisation"]["slug"] == "e"
    market.ask("hub", "POST", f"/v1/organisations/{east}/suspend")
    assert market.ask(token, "GET", "/v1/me").status_code == 401
