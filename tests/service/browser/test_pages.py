"""The pages without a browser: who may see which, what a mistake says, and what every form comes to."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from httpx import Response
from page_market import NAMES, PageMarket, page_market

from databazaar.service import cash, journal, members
from databazaar.service.database.connection import Database
from databazaar.service.http.app import create_app
from databazaar.service.http.security_callers import cookie_name, csrf_token
from databazaar.service.settings import Settings
from databazaar.service.states import JobState
from desk_market import table
from web_market import ENDLESS, TestClient

PLAIN = {slug: slug.title() for slug in NAMES}


class Visitor:
    """Somebody's browser, as far as forms and links go."""

    def __init__(self, market: PageMarket, app: Any, slug: str = "") -> None:
        self.client = TestClient(app, base_url=market.settings.address, follow_redirects=False)
        self.secret = market.secrets.get(slug, "")
        if slug:
            self.client.cookies.set(cookie_name(market.settings), self.secret)

    def get(self, path: str, **more: Any) -> Response:
        answer: Response = self.client.get(path, **more)
        return answer

    def post(self, path: str, files: Any = None, **form: Any) -> Response:
        answer: Response = self.client.post(path, data={"csrf": csrf_token(self.secret), **form}, files=files)
        return answer

    def sees(self, response: Response) -> str:
        """The page that a form leads to."""
        assert response.status_code == 303, response.text
        return self.get(response.headers["location"]).text


@pytest.fixture(scope="module")
def built(make_url: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> PageMarket:
    """Made once; every test has a copy of its own."""
    url, home = make_url("sqlite"), tmp_path_factory.mktemp("built") / "hub"
    made = page_market(Database(url), Settings(home=home, database=url, cash="test"), PLAIN)
    made.database.dispose()
    return made


@pytest.fixture
def market(built: PageMarket, tmp_path: Path) -> Iterator[PageMarket]:
    shutil.copytree(built.settings.home, tmp_path / "hub")
    shutil.copyfile(built.settings.database.removeprefix("sqlite:///"), tmp_path / "hub.sqlite")
    url = f"sqlite:///{tmp_path / 'hub.sqlite'}"
    copy = replace(built, database=Database(url), settings=Settings(home=tmp_path / "hub", database=url, cash="test"))
    yield copy
    copy.database.dispose()


@pytest.fixture
def visit(market: PageMarket) -> Iterator[Callable[..., Visitor]]:
    app = create_app(market.settings, market.database, supervise=False, limits=ENDLESS())
    yield lambda slug="": Visitor(market, app, slug)


PAGES = {
    "operator": ("", "/organisations", "/jobs", "/jobs?state=draft", "/queues", "/journal", "/journal/export", "/cash"),
    "consumer": ("/market", "/market/{offer of north}", "/jobs", "/jobs/new", *(f"/jobs/{{{s}}}" for s in JobState)),
    "provider": ("/offers", "/offers/new", "/offers/{offer of north}", "/requests", "/queue", "/earnings"),
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
    ),
    "consumer": ("/jobs", "/jobs/from-file", *(f"/jobs/{{draft}}/{deed}" for deed in ("submit", "fund", "stop"))),
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


INVITED = {"name": "A", "slug": "a", "email": "a@b", "roles": "provides"}
JOB = {"name": "Job", "target": "late", "budget": "4"}
MISTAKES = [
    ("", "/sign-in", {"email": "ann@buyer.example"}, "password", "Write your password"),
    ("", "/join", {"secret": "http://x/join#nonsense"}, "secret", "used before"),
    ("", "/join", {"secret": ""}, "secret", "paste the link"),
    ("buyer", "/password", {"password": "long enough for all", "again": "other"}, "again", "not the same"),
    ("buyer", "/password", {"password": "short", "again": "short"}, "password", "password"),
    ("buyer", "/account/tokens", {"label": "", "scopes": "read"}, "label", "what the token is for"),
    ("buyer", "/account/tokens", {"label": "mine", "days": "8"}, "scopes", "tick at least one"),
    ("hub", "/operator/fee", {"percent": "1.234"}, "percent", "two decimals"),
    ("hub", "/operator/organisations", {**INVITED, "slug": "Not So"}, "slug", "small letters"),
    ("hub", "/operator/organisations", {**INVITED, "email": "none"}, "email", "e-mail"),
    ("hub", "/operator/organisations", {**INVITED, "roles": ""}, "roles", "consumes"),
    ("buyer", "/money/deposits", {"amount": "0"}, "amount", "above zero"),
    ("buyer", "/money/payouts", {"source": "cash", "paid_out": "9999999"}, "paid_out", "can be paid out"),
    ("buyer", "/money/payouts", {"source": "earned", "paid_out": "1"}, "source", "choose one of cash"),
    ("buyer", "/jobs", {"name": "Job", "target": "late", "budget": "-4"}, "budget", "negative"),
    ("buyer", "/jobs", {**JOB, "per_round": "x"}, "per_round", "whole number"),
    ("buyer", "/jobs", {**JOB, "target_utility": "nan"}, "target_utility", "0.9"),
    ("buyer", "/jobs", {"name": "Job", "budget": "4", "mode": "elsewhere"}, "mode", "hosted"),
    ("buyer", "/jobs", {"name": "Job", "budget": "4"}, "holdout", "choose a CSV"),
    ("buyer", "/jobs", {"name": "Job", "budget": "4", "holdout_id": "gone"}, "holdout", "choose it again"),
    ("buyer", "/jobs/from-file", {}, "market", "choose a market.toml"),
    ("north", "/offers", {"name": "N", "slug": "two", "price": "12.345"}, "price", "is not an amount"),
    ("north", "/offers", {"name": "N", "slug": "two", "price": "1"}, "file", "choose a CSV"),
]


def test_a_mistake_keeps_what_was_typed_and_is_told_beside_its_field(visit: Callable[..., Visitor]) -> None:
    for slug, path, form, field, words in MISTAKES:
        answer = visit(slug).post(path, **form)
        assert answer.status_code == 422, (path, form, answer.text)
        told = re.search(rf'<p class="fault" id="e-{field}">(.*?)</p>', answer.text)
        assert told and words.lower() in told[1].lower(), (path, form, answer.text)
        for name in {"name", "target", "email", "label", "budget"} & form.keys():
            assert f'value="{form[name]}"' in answer.text, (path, name)
        assert "nonsense" not in answer.text and "long enough" not in answer.text, "a secret is not shown again"


def test_signing_in_and_out(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    buyer, again = visit("buyer"), visit()
    typed = {"password": "four words are enough", "again": "four words are enough"}
    assert "Your password is set" in buyer.sees(buyer.post("/password", **typed))
    wrong = again.post("/sign-in", email="ann@buyer.example", password="wrong")
    assert wrong.status_code == 401 and 'role="alert"' in wrong.text
    right = again.post("/sign-in", email="Ann@buyer.example", password=typed["password"], next="//elsewhere.example")
    assert right.headers["location"] == "/"
    again.secret = str(again.client.cookies[cookie_name(market.settings)])
    assert again.get("/jobs").status_code == 200
    with market.database.begin() as session:
        person = members.people(session, market.callers["buyer"])[0]
        link = members.issue_link(session, market.callers["buyer"], person.id)
    assert visit().post("/join", secret=f"https://hub/join#{link}").headers["location"] == "/"
    assert again.post("/sign-out").headers["location"] == "/sign-in"
    assert again.get("/jobs").status_code == 303


def test_a_token_is_shown_once_and_revoked(visit: Callable[..., Visitor]) -> None:
    buyer = visit("buyer")
    page = buyer.sees(buyer.post("/account/tokens", label="nightly", scopes=["read", "jobs"], days="30"))
    secret = re.search(r'<code class="secret">(.*?)</code>', page)
    assert secret and buyer.client.get("/v1/jobs", headers={"Authorization": f"Bearer {secret[1]}"}).status_code == 200
    after = buyer.get("/account").text
    assert secret[1] not in after and "nightly" in after
    revoke = re.search(r'action="(/account/tokens/\w+/revoke)"', after)
    assert revoke and "holds no longer" in buyer.sees(buyer.post(revoke[1]))
    assert buyer.client.get("/v1/jobs", headers={"Authorization": f"Bearer {secret[1]}"}).status_code == 401


def test_the_operator_invites_suspends_and_lets_in_again(visit: Callable[..., Visitor]) -> None:
    hub = visit("hub")
    invited = {"name": "West", "slug": "west", "email": "w@west.example", "roles": ["provides"]}
    page = hub.sees(hub.post("/operator/organisations", **invited))
    link = re.search(r'<code class="secret">(\S+/join#\S+)</code>', page)
    assert link and visit().post("/join", secret=link[1]).headers["location"] == "/password"
    buttons = re.findall(r'action="(/operator/(?:people|organisations)/\w+/\w+)"', page)
    new_link, suspend = [button for button in buttons if "/link" in button][-1], buttons[-1]
    assert "A new one-time link for w@west.example" in hub.sees(hub.post(new_link))
    assert "West is suspended" in hub.sees(hub.post(suspend))
    assert "takes part again" in hub.sees(hub.post(suspend.replace("suspend", "restore")))
    own = hub.post(f"/operator/organisations/{_own_id(hub)}/suspend")
    assert "the last operator" in hub.sees(own)
    assert "1.25 %" in hub.sees(hub.post("/operator/fee", percent="1,25"))


def _own_id(hub: Visitor) -> str:
    shown = hub.client.get("/v1/organisations").json()["items"]
    return str(next(one["id"] for one in shown if one["slug"] == "hub"))


def test_the_journal_is_paged_audited_and_exported(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    for _ in range(60):
        market.pay_in("rival", 1)
    hub = visit("hub")
    newest = hub.get("/operator/journal").text
    older = re.search(r'href="(/operator/journal\?before=\d+)">Older', newest)
    assert older and "Newer entries" in hub.get(older[1]).text
    assert "The books hold" in hub.sees(hub.post("/operator/journal/audit"))
    lines = hub.get("/operator/journal/export").text.splitlines()
    with market.database.read() as session:
        assert len(lines) >= journal.audit(session).entries
    with market.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE accounts SET balance = balance + 1 WHERE name = 'cash:buyer'")
    assert "The books do not hold" in hub.sees(hub.post("/operator/journal/audit"))
    assert "The books do not hold" in hub.get("/operator").text
    assert "audit it there" in hub.get("/operator", headers={"HX-Request": "true"}).text


def test_money_comes_in_and_goes_out(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    """At once with the cashier for tests, and when the operator says so with the manual one."""
    buyer, hub = visit("buyer"), visit("hub")
    assert "20.00 EUR is in your cash" in buyer.sees(buyer.post("/money/deposits", amount="20"))
    assert "5.00 EUR is paid out" in buyer.sees(buyer.post("/money/payouts", source="cash", paid_out="5"))
    object.__setattr__(market.settings, "cash", "manual")
    job = market.jobs[JobState.AGREED]
    answer = buyer.post("/money/deposits", amount="7", job=job)
    assert answer.headers["location"] == f"/jobs/{job}" and "is announced" in buyer.sees(answer)
    assert "You have asked for 3.00 EUR" in buyer.sees(buyer.post("/money/payouts", source="cash", paid_out="3"))
    with market.database.read() as session:
        payout, deposit = cash.records(session, market.callers["hub"], state="requested")
    assert hub.post(f"/operator/cash/{deposit.id}/refuse").status_code == 409
    assert "Refused" in hub.sees(hub.post(f"/operator/cash/{deposit.id}/refuse", reason="nothing has come"))
    assert hub.post(f"/operator/cash/{deposit.id}/confirm").status_code == 409
    assert "Confirmed: 3.00 EUR" in hub.sees(hub.post(f"/operator/cash/{payout.id}/confirm", reference="17"))
    assert "nothing has come" in buyer.get("/money").text


def test_a_job_by_its_buttons(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    buyer, north = visit("buyer"), visit("north")
    of = {state: f"/jobs/{job}" for state, job in market.jobs.items()}
    assert "The providers are asked" in buyer.sees(buyer.post(f"{of[JobState.DRAFT]}/submit"))
    assert "only one that is agreed" in buyer.sees(buyer.post(f"{of[JobState.DRAFT]}/fund"))
    assert "is in escrow" in buyer.sees(buyer.post(f"{of[JobState.AGREED]}/fund"))
    assert "the money comes back" in buyer.sees(buyer.post(f"{of[JobState.QUEUED]}/stop"))
    assert "ends after the round under way" in buyer.sees(buyer.post(f"{of[JobState.RUNNING]}/stop"))
    decisions = re.findall(r'action="(/requests/\w+)"', north.get("/requests").text)
    assert "Refused" in north.sees(north.post(decisions[0], answer="refuse", reason="not for you"))
    assert "nothing is left to decide" in north.sees(north.post(decisions[0], answer="agree"))
    assert "Agreed" in north.sees(north.post(decisions[-1], answer="agree"))
    assert "It has cost nothing" in buyer.sees(buyer.post(f"{of[JobState.SUBMITTED]}/withdraw"))


def test_a_job_of_a_market_toml(visit: Callable[..., Visitor]) -> None:
    text = '[market]\nname = "By file"\nbudget = 1\nper_round = 2\n[data]\nholdout = "mine.csv"\ntarget = "late"\n'
    text += '[[providers]]\nid = "south-sales"\n'
    buyer = visit("buyer")

    def sent(content: bytes, *tables: str) -> Response:
        files = [("market", ("market.toml", content)), *(("tables", (name, table(9, 120))) for name in tables)]
        return buyer.post("/jobs/from-file", files)

    assert "By file" in buyer.sees(sent(text.encode(), "mine.csv"))
    for content, words in (
        (text.encode(), "which was not sent"),
        (b"\xff", "is not UTF-8"),
        (b"[market", "not valid TOML"),
        (b"#" * 2**21, "more than"),
        (text.replace("budget", "bugdet").encode(), "bugdet"),
    ):
        answer = sent(content, *(() if words == "which was not sent" else ("mine.csv",)))
        assert answer.status_code == 422 and words in answer.text, words


def test_a_job_by_form_in_either_mode(visit: Callable[..., Visitor]) -> None:
    buyer = visit("buyer")
    form = {"name": "Mine", "target": "late", "budget": "1,000.00", "offers": ["south-sales"], "model": "logistic"}
    holdout = {"holdout": ("rows.csv", table(9, 120)), "train": ("own.csv", table(8, 60))}
    more = {"target_utility": "0.9", "most_per_access": "1", "seed": "7", "per_round": "3"}
    page = buyer.sees(buyer.post("/jobs", holdout, **form, **more))
    assert "own.csv" in page and "1,000.00" in page
    assert "own arbiter" in buyer.sees(buyer.post("/jobs", **form, mode="own"))
    broken = {"holdout": ("rows.csv", b"PAR1 but no table")}
    assert 'id="e-holdout"' in buyer.post("/jobs", broken, **form).text
    refused = buyer.post("/jobs", holdout, **{**form, "model": "linear"})
    assert refused.status_code == 422 and 'id="e-model"' in refused.text and "has been received" in refused.text
    kept = re.search(r'name="holdout_id" value="(\w+)"', refused.text)
    assert kept and "The draft is made" in buyer.sees(buyer.post("/jobs", **form, holdout_id=kept[1]))


def test_an_offer_from_new_to_withdrawn(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    north = visit("north")
    terms = {
        "price": "0.10",
        "approval": "automatic",
        "models": ["mlp"],
        "consumers": "buyer, rival",
    }
    file = {"file": ("rows.csv", table(3))}
    made = north.post("/offers", file, name="More", slug="more", **terms)
    path = made.headers["location"]
    assert "buyer</bdi>, <bdi>rival" in north.sees(made)
    assert 'id="e-slug"' in north.post("/offers", file, name="More", slug="More!", **terms).text
    assert "Version 2 is offered" in north.sees(north.post(f"{path}/versions", file))
    assert 'id="e-file"' in north.post(f"{path}/versions").text
    assert "The terms are set" in north.sees(north.post(f"{path}/policy", price="0.20", days_to_decide="3"))
    assert 'id="e-epsilon"' in north.post(f"{path}/policy", price="0.20", epsilon="2").text
    assert "no new job can choose it" in north.sees(north.post(f"{path}/withdraw"))
    assert "was withdrawn" in north.sees(north.post(f"{path}/withdraw"))


def test_a_site_is_offered_where_there_is_a_federation(
    market: PageMarket, visit: Callable[..., Visitor], tmp_path: Path
) -> None:
    object.__setattr__(market.settings, "federation", tmp_path)
    north = visit("north")
    assert "our own site" in north.get("/offers/new").text
    form = {"name": "Ours", "slug": "ours", "kind": "site", "price": "1", "epsilon": "4", "site": "north-ours"}
    page = north.sees(north.post("/offers", **form, columns="distance number\nlate category"))
    assert "at your site" in page and "ε 4 in all" in page
    assert "ε left" in north.get("/earnings").text
    assert 'id="e-site"' in north.post("/offers", **{**form, "slug": "two"}, columns="a number").text
    third = {**form, "slug": "three", "site": "north-three"}
    assert 'id="e-columns"' in north.post("/offers", **third, columns="a b").text


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
    for kept in ("%", "bm90aGluZw==", "eyJ0ZXh0IjogMX0=", "eyJ0ZXh0IjoiYSIsImtpbmQiOiJiIiwic2VjcmV0IjoiYyJ9"):
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
    import hashlib

    from databazaar.service.http.pages.static_files import served

    listed = re.findall(r"^\| (\S+) .* \| ([0-9a-f]{64}) \|$", served()["vendor/README.md"].content.decode(), re.M)
    assert len(listed) == 3
    assert all(hashlib.sha256(served()[f"vendor/{name}"].content).hexdigest() == digest for name, digest in listed)


def test_who_provides_and_who_operates_come_in_elsewhere(visit: Callable[..., Visitor]) -> None:
    assert visit("hub").get("/").headers["location"] == "/operator"
    assert "asks for" in visit("north").get("/").text
    assert "look at the quote" in visit("buyer").get("/").text
