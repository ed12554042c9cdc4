"""Signing in at an identity provider: a real one, small, that the test runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi import FastAPI

from databazaar.service.http.app import create_app
from databazaar.service.http.security_oidc import CALLBACK, START, Provider
from databazaar.service.settings import Settings
from oidc_provider import CLIENT, SECRET, OidcProvider
from web_market import ENDLESS, MakeMarket, TestClient, WebMarket
from web_server import bound, serving

pytestmark = pytest.mark.process

EMAIL = "ann@buyer.example"


@pytest.fixture(scope="module")
def market(make_market: MakeMarket) -> WebMarket:
    return make_market("sqlite")


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with bound() as (listening, address):
        made = OidcProvider(address)
        with serving(made.app, listening):
            yield made


@pytest.fixture(scope="module")
def hub(market: WebMarket, provider: OidcProvider) -> FastAPI:
    settings = Settings(market.settings.home, oidc_issuer=provider.issuer, oidc_client=CLIENT, oidc_secret=SECRET)
    return create_app(settings, market.database, supervise=False, limits=ENDLESS())


@pytest.fixture
def browser(hub: FastAPI, provider: OidcProvider) -> TestClient:
    """Somebody who has not signed in, at a hub that has not yet asked the provider for anything."""
    provider.faulty, provider.claims = "", {"email": EMAIL}
    settings = hub.state.web.settings
    hub.state.oidc = Provider(settings)
    return TestClient(hub, base_url=settings.address, follow_redirects=False)


def signed_in(browser: TestClient, **changes: str) -> Any:
    """The way there and back; `changes` are made to what comes back."""
    there = browser.get(START)
    if not there.headers.get("location", "").startswith("http"):
        return there
    back = httpx.get(there.headers["location"])
    assert back.status_code == 302
    given = {name: values[0] for name, values in parse_qs(urlsplit(back.headers["location"]).query).items()}
    return browser.get(CALLBACK, params={**given, **changes})


def test_who_was_invited_comes_in(browser: TestClient) -> None:
    answer = signed_in(browser)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "bazaar-oidc" not in browser.cookies
    assert browser.get("/v1/me").json()["organisation"]["slug"] == "buyer"


@pytest.mark.parametrize(
    "claims",
    [
        {"email": EMAIL, "email_verified": False},
        {"email": EMAIL, "email_verified": "true"},
        {"email_verified": True},
        {"email": "stranger@buyer.example"},
        {"email": EMAIL, "nonce": "another"},
        {"email": EMAIL, "aud": "another"},
        {"email": EMAIL, "iss": "https://other.example"},
        {"email": EMAIL, "exp": 1},
    ],
    ids=str,
)
def test_what_the_provider_does_not_vouch_for_is_refused(
    browser: TestClient, provider: OidcProvider, claims: dict[str, Any]
) -> None:
    provider.claims = claims
    signed_in(browser)
    assert "bazaar" not in browser.cookies


@pytest.mark.parametrize("fault", ["issuer", "key"])
def test_another_provider_is_not_believed(browser: TestClient, provider: OidcProvider, fault: str) -> None:
    provider.faulty = fault
    signed_in(browser)
    assert "bazaar" not in browser.cookies


@pytest.mark.parametrize("changes", [{"state": "another"}, {"code": "guessed"}, {"code": ""}], ids=str)
def test_an_answer_that_nobody_asked_for_is_refused(browser: TestClient, changes: dict[str, str]) -> None:
    signed_in(browser, **changes)
    assert "bazaar" not in browser.cookies


def test_without_having_begun_nobody_comes_back(browser: TestClient) -> None:
    browser.get(CALLBACK, params={"code": "x", "state": "y"})
    assert "bazaar" not in browser.cookies
    browser.cookies.set("bazaar-oidc", '{"state": 1}')
    browser.get(CALLBACK, params={"code": "x", "state": "y"})
    assert "bazaar" not in browser.cookies
