"""Who may see which page and send which form, and what is shown instead."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable

from databazaar.service.http.cookies import cookie_name
from databazaar.service.http.pages import served
from databazaar.service.lifecycle import JobState
from page_market import PageMarket
from visitor import Visitor

PAGES = {
    "operator": ("", "/organisations", "/jobs", "/jobs?state=draft", "/queues", "/journal", "/cash"),
    "consumer": (
        "/market",
        "/market/{offer of north}",
        "/jobs",
        "/jobs/new",
        "/jobs/{draft}/change",
        *(f"/jobs/{{{s}}}" for s in JobState),
    ),
    "provider": ("/offers", "/offers/new", "/offers/{offer of north}", "/requests", "/earnings"),
}
POSTS = {
    "operator": (
        "/fee",
        "/organisations",
        "/people/x/link",
        "/organisations/x/suspend",
        "/organisations/x/restore",
        "/journal/audit",
        "/cash/x/confirm",
        "/cash/x/refuse",
        "/jobs/x/refund",
        "/jobs/x/stop",
    ),
    "consumer": (
        "/jobs",
        "/jobs/from-file",
        *(f"/jobs/{{draft}}/{deed}" for deed in ("submit", "fund", "stop", "change")),
    ),
    "provider": ("/offers", *(f"/offers/{{offer of north}}/{deed}" for deed in ("versions", "policy", "withdraw"))),
}
WHO = {"operator": "hub", "consumer": "buyer", "provider": "north"}
OTHERS = {"consumer": "rival", "provider": "south"}


def filled(market: PageMarket, role: str, path: str) -> str:
    named = {**market.ids, **{str(state): job for state, job in market.jobs.items()}}
    path = re.sub(r"\{(.*?)\}", lambda found: named.get(found[1], ""), path)
    return f"/operator{path}" if role == "operator" else path


def test_each_page_is_for_those_whose_it_is(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    visitors = {role: visit(slug) for role, slug in WHO.items()}
    stranger = visit()
    for role, paths in PAGES.items():
        for path in paths:
            path = filled(market, role, path)
            if path.endswith("/"):
                continue
            assert visitors[role].get(path).status_code == 200, path
            away = stranger.get(path)
            assert (away.status_code, away.headers["location"]) == (303, f"/sign-in?next={path.partition('?')[0]}")
            for other, visitor in visitors.items():
                if other != role:
                    assert visitor.get(path).status_code == 403, (other, path)
            if role in OTHERS and re.search("[0-9a-f]{32}", path) and not path.startswith("/market"):
                assert visit(OTHERS[role]).get(path).status_code == 404, path


def test_each_form_is_for_those_whose_it_is_and_of_their_own_session(
    market: PageMarket, visit: Callable[..., Visitor]
) -> None:
    visitors = {role: visit(slug) for role, slug in WHO.items()}
    for role, paths in POSTS.items():
        for path in paths:
            path = filled(market, role, path)
            assert visit().post(path).headers["location"] == "/sign-in?next=/"
            assert visitors[role].client.post(path, data={"csrf": "forged"}).status_code == 403, path
            for other, visitor in visitors.items():
                if other != role:
                    assert visitor.post(path, reason="x").status_code == 403, (other, path)
            if role in OTHERS and re.search("[0-9a-f]{32}", path):
                assert visit(OTHERS[role]).post(path, price="1").status_code == 404, path


def test_what_is_not_there_and_what_goes_wrong(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    buyer = visit("buyer")
    for visitor, path in ((visit(), "/nothing"), (visit(), "/static/nothing.js"), (buyer, f"/jobs/{'0' * 32}")):
        answer = visitor.get(path)
        assert answer.status_code == 404 and "<h1>" in answer.text, path
    north = visit("north")
    assert north.get("/receipts/none").status_code == 404
    assert visit().client.put("/jobs").status_code == 405
    assert "/who-sees-what" in visit().get("/sign-in").text
    assert visit().get("/who-sees-what").status_code == buyer.get("/who-sees-what").status_code == 200
    buyer.client.cookies.set(cookie_name(market.settings), "spent")
    assert buyer.get("/who-sees-what").status_code == 200
    with market.database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM journal_head")
    broken = visit("hub").get("/operator")
    assert broken.status_code == 500 and "Something went wrong" in broken.text and "Traceback" not in broken.text


def test_a_cookie_that_is_no_notice_is_none(visit: Callable[..., Visitor]) -> None:
    deep = base64.b64encode(b"[" * 3000).decode()
    for kept in ("%", "bm90aGluZw==", "eyJ0ZXh0IjogMX0=", "eyJ0ZXh0IjoiYSIsImtpbmQiOiJiIiwic2VjcmV0IjoiYyJ9", deep):
        stranger = visit()
        stranger.client.cookies.set("notice", kept)
        answer = stranger.get("/sign-in")
        assert answer.status_code == 200 and 'class="notice' not in answer.text


def test_static_files_are_kept_by_their_content(visit: Callable[..., Visitor]) -> None:
    page = visit().get("/sign-in").text
    style = re.search(r'href="(/static/app.css\?v=\w+)"', page)
    assert style and "immutable" in visit().get(style[1]).headers["cache-control"]
    assert visit().get("/static/app.css?v=old").headers["cache-control"] == "no-cache"
    assert visit().get("/static/vendor/htmx-LICENSE.txt").text.startswith("Zero-Clause BSD")


def test_the_vendored_files_are_those_that_were_released() -> None:
    listed = re.findall(r"^\| (\S+) .* \| ([0-9a-f]{64}) \|$", served()["vendor/README.md"].decode(), re.M)
    assert len(listed) == 3
    assert all(hashlib.sha256(served()[f"vendor/{name}"]).hexdigest() == digest for name, digest in listed)


def test_who_provides_and_who_operates_come_in_elsewhere(visit: Callable[..., Visitor]) -> None:
    assert visit("hub").get("/").headers["location"] == "/operator"
    assert "asks for" in visit("north").get("/").text
    assert "look at the quote" in visit("buyer").get("/").text
