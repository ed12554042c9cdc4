"""What every form comes to, and what a mistake in one says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from httpx import Response

from databazaar.service import members
from databazaar.service.http.security_callers import cookie_name
from databazaar.service.states import JobState
from desk_market import table
from page_market import PageMarket
from visitor import Visitor

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
    ("buyer", "/money/deposits", {"amount": "1,50"}, "amount", "is not an amount"),
    ("buyer", "/money/payouts", {"source": "cash", "paid_out": "9999999"}, "paid_out", "can be paid out"),
    ("buyer", "/money/payouts", {"source": "earned", "paid_out": "1"}, "source", "choose one of cash"),
    ("buyer", "/jobs", {"name": "Job", "target": "late", "budget": "-4"}, "budget", "negative"),
    ("buyer", "/jobs", {**JOB, "per_round": "x"}, "per_round", "whole number"),
    ("buyer", "/jobs", {**JOB, "target_utility": "nan"}, "target_utility", "0.9"),
    ("buyer", "/jobs", {**JOB, "target_utility": "high"}, "target_utility", "0.9"),
    ("buyer", "/jobs", {"name": "Job", "budget": "4", "mode": "elsewhere"}, "mode", "hosted"),
    ("buyer", "/jobs", {"name": "Job", "budget": "4"}, "holdout", "choose a CSV"),
    ("buyer", "/jobs", {"name": "Job", "budget": "4", "holdout_id": "gone"}, "holdout", "choose it again"),
    ("buyer", "/jobs/from-file", {}, "market", "choose a market.toml"),
    ("north", "/offers", {"name": "N", "slug": "two", "price": "12.345"}, "price", "is not an amount"),
    ("north", "/offers", {"name": "N", "slug": "two", "price": "1,5"}, "price", "is not an amount"),
    ("north", "/offers", {"name": "N", "slug": "two", "price": "1", "most_accesses": "1,5"}, "most_accesses", "whole"),
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


def test_a_colleague_comes_in_and_is_shut_out(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    buyer = visit("buyer")
    page = buyer.sees(buyer.post("/account/people", email="bob@buyer.example"))
    link = re.search(r'<code class="secret">(\S+/join#\S+)</code>', page)
    assert link and visit().post("/join", secret=link[1]).headers["location"] == "/password"
    again = buyer.post("/account/people", email="bob@buyer.example")
    assert again.status_code == 422 and 'id="e-email"' in again.text
    button = re.search(r'action="(/account/people/\w+/disable)"', page)
    assert button and "can sign in no longer" in buyer.sees(buyer.post(button[1]))
    assert visit("rival").post(button[1]).status_code == 404
    own = f"/account/people/{market.callers['buyer'].person_id}/disable"
    assert own not in page and "nobody shuts themselves out" in buyer.sees(buyer.post(own))


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
    assert "no-progress" not in page and ">3<" in page
    assert "own arbiter" in buyer.sees(buyer.post("/jobs", **form, mode="own", defence="none", ends="budget"))
    assert 'id="e-defence"' in buyer.post("/jobs", **form, mode="own").text
    assert 'id="e-target"' in buyer.post("/jobs", holdout, **{**form, "target": "later"}).text
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
