"""What every form comes to, and what a mistake in one says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import select, update

from databazaar.service import credentials, jobs, members, outbox
from databazaar.service.database.tables import Job, Outgoing, now
from databazaar.service.http.cookies import cookie_name
from databazaar.service.lifecycle import JobState, enter, locked_job
from desk_market import SPEC, table
from page_market import PageMarket
from visitor import Response, Visitor

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
        link = credentials.issue_link(session, market.callers["buyer"], person.id)
    assert visit().post("/join", secret=f"https://hub/join#{link}").headers["location"] == "/"
    assert again.post("/sign-out").headers["location"] == "/sign-in"
    assert again.get("/jobs").status_code == 303


def test_files_are_deleted_when_nothing_needs_them(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    buyer, rival = visit("buyer"), visit("rival")
    spare, draft = market.upload("buyer", 9, 120), market.jobs[JobState.DRAFT]
    assert visit("hub").get("/files").status_code == 403 and "You keep no files" in rival.get("/files").text
    page = buyer.get("/files").text
    assert page.count("rows.csv") == 7 and page.count(">Delete<") == 1 and f'href="/jobs/{draft}"' in page
    assert "stay until you delete them" in page and "of the 10.0 GiB" in page
    assert rival.post(f"/files/{spare}/delete").status_code == 404
    assert visit("hub").post(f"/files/{spare}/delete").status_code == 403
    assert "rows.csv is deleted" in buyer.sees(buyer.post(f"/files/{spare}/delete"))
    with market.database.read() as session:
        used = jobs.own_job(session, market.callers["buyer"], draft).files["holdout"]
    assert "uses it: withdraw or stop that job" in buyer.sees(buyer.post(f"/files/{used}/delete"))


def test_a_draft_is_changed_and_keeps_what_the_form_does_not_speak_of(
    market: PageMarket, visit: Callable[..., Visitor]
) -> None:
    buyer, draft = visit("buyer"), market.jobs[JobState.DRAFT]
    path = f"/jobs/{draft}/change"
    assert path in buyer.get(f"/jobs/{draft}").text
    page = buyer.get(path).text
    for shown in ('value="0.40"', 'value="late"', '"logistic" selected>', "rows.csv</bdi> has been received"):
        assert shown in page, shown
    assert page.count(" checked>") == 2 and "Or send a market.toml" not in page and 'name="mode"' not in page
    form = {"name": "Renamed", "target": "late", "budget": "0.80", "offers": ["south-sales"], "model": "logistic"}
    kept = re.search(r'name="holdout_id" value="(\w+)"', page)
    assert kept
    wrong = buyer.post(path, **{**form, "target": "later"}, holdout_id=kept[1])
    assert wrong.status_code == 422 and 'id="e-target"' in wrong.text and f'action="{path}"' in wrong.text
    assert "choose a CSV" in buyer.post(path, **form).text
    told = buyer.sees(buyer.post(path, **form, holdout_id=kept[1], defence="none", ends="budget"))
    assert "The draft is changed" in told and "Renamed" in told and "0.80" in told
    with market.database.read() as session:
        spec = jobs.own_job(session, market.callers["buyer"], draft).spec
    assert spec["oracle"] == SPEC["oracle"] and spec["market"]["budget"] == "0.80" and "stops" not in spec
    assert buyer.get(f"/jobs/{market.jobs[JobState.QUEUED]}/change").status_code == 409
    own = buyer.post("/jobs", **form, mode="own", defence="none").headers["location"]
    assert 'type="file"' not in buyer.get(f"{own}/change").text
    assert "The draft is changed" in buyer.sees(buyer.post(f"{own}/change", **form, defence="none"))


def test_webhooks_are_added_watched_and_removed(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    buyer, rival = visit("buyer"), visit("rival")
    assert "No program of yours is told" in buyer.get("/webhooks").text
    page = buyer.sees(buyer.post("/webhooks", url="https://buyer.example/hook"))
    secret = re.search(r'<code class="secret">(\S+)</code>', page)
    assert secret and secret[1] not in buyer.get("/webhooks").text and "Nothing has happened yet" in page
    for given in ("", "ftp://buyer.example"):
        refused = buyer.post("/webhooks", url=given)
        assert refused.status_code == 422 and 'id="e-url"' in refused.text
    remove = re.search(r'action="(/webhooks/\w+/remove)"', page)
    assert remove and rival.post(remove[1]).status_code == 404
    buyer.post(f"/jobs/{market.jobs[JobState.DRAFT]}/submit")
    page = buyer.get("/webhooks").text
    assert ": submitted" in page and "Waiting" in page
    outbox.deliver_due(market.database, lambda parcel, private: b'"event":"job"' in parcel.body)
    page = buyer.get("/webhooks").text
    assert "Delivered" in page and "Tried again at" in page
    with market.database.begin() as session:
        session.execute(update(Outgoing).values(delivered_at=None, given_up_at=now()))
    assert "Given up" in buyer.get("/webhooks").text
    assert "Nothing more is sent to" in buyer.sees(buyer.post(remove[1]))
    assert remove[1] not in buyer.get("/webhooks").text and buyer.post(remove[1]).status_code == 404


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


def test_what_came_back_adds_up_and_an_entry_is_one_row(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    buyer = visit("buyer")
    with market.database.begin() as session:
        job = locked_job(session, market.jobs[JobState.SETTLING])
        job.budget, job.escrow, job.paid, job.fee, job.refunded = 20_000, 20_250, 4350, 55, 15_845
        enter(session, job, JobState.SETTLED, "29 rounds played, 43.50 EUR paid, 156.50 EUR back to the consumer")
    page = buyer.get(f"/jobs/{job.id}").text
    assert "158.45" in page and "156.50 of the budget and 1.95 of the fee" in page
    funded = buyer.get("/money").text.partition("<h2>Statement</h2>")[2]
    assert funded.count("A job was funded") == len(re.findall("<td>\\W?0.40</td><td>0.40</td>", funded)) == 3
    assert "Earned" not in funded and ">–<" in funded


def test_a_job_of_a_market_toml(visit: Callable[..., Visitor]) -> None:
    text = '[market]\nname = "By file"\nbudget = 1\nper_round = 2\n[data]\nholdout = "mine.csv"\ntarget = "late"\n'
    text += '[[providers]]\nid = "south-sales"\n'
    buyer = visit("buyer")

    def sent(content: bytes, *tables: str) -> Response:
        files = [("market", ("market.toml", content)), *(("file", (name, table(9, 120))) for name in tables)]
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


def test_settings_of_a_model_and_its_learner_in_the_form(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    """They come from the declarations, and what does not fit is told at its field."""
    buyer = visit("buyer")
    form = {"name": "Trees", "target": "late", "budget": "10", "offers": ["south-sales"], "model": "trees"}
    holdout = {"holdout": ("rows.csv", table(9, 120))}
    given = {"model_rising": "distance, weight", "learner_leaves": "15", "learner_rate": "0.2", "learner_rows": "40"}
    new = buyer.get("/jobs/new").text
    assert '<option value="auto" selected>auto: trees and a linear model' in new and "boosting: boosted trees" in new
    made = buyer.post("/jobs", holdout, **form, **given)
    assert "<dd>trees<" in buyer.sees(made)
    with market.database.read() as session:
        spec = session.scalars(select(Job.spec).where(Job.name == "Trees")).one()
    assert spec["model"] == {"kind": "trees", "rising": ["distance", "weight"]}
    assert spec["learner"] == {"leaves": 15, "rate": 0.2, "rows": 40}
    page = buyer.get(f"{made.headers['location']}/change").text
    assert 'value="distance, weight"' in page and 'name="learner_leaves" aria' in page and 'value="0.2"' in page
    for name, typed, words in (
        ("learner_rows", "31", "must go over at least 32"),
        ("learner_ridge", "1", "remove ridge or change the kind"),
        ("learner_leaves", "many", "must be"),
        ("model_rising", "height", "which is no feature column"),
    ):
        refused = buyer.post("/jobs", holdout, **form, **{name: typed})
        assert refused.status_code == 422 and f'id="e-{name}"' in refused.text and words in refused.text, name
    changed = buyer.post(f"{made.headers['location']}/change", holdout, **{**form, "model": "mlp"}, model_hidden="[8]")
    assert "The draft is changed" in buyer.sees(changed)
    with market.database.read() as session:
        spec = session.scalars(select(Job.spec).where(Job.name == "Trees")).one()
    assert spec["model"] == {"kind": "mlp", "hidden": [8]} and "learner" not in spec


def test_an_offer_from_new_to_withdrawn(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    north = visit("north")
    terms = {
        "price": "0.10",
        "approval": "automatic",
        "models": ["mlp", "auto"],
        "learners": ["blending", "averaging"],
        "consumers": "buyer, rival",
    }
    file = {"file": ("rows.csv", table(3))}
    made = north.post("/offers", file, name="More", slug="more", **terms)
    path = made.headers["location"]
    assert "buyer</bdi>, <bdi>rival" in north.sees(made) and "<dd>blending, averaging</dd>" in north.sees(made)
    assert 'id="e-slug"' in north.post("/offers", file, name="More", slug="More!", **terms).text
    assert "Version 2 is offered" in north.sees(north.post(f"{path}/versions", file))
    assert 'id="e-file"' in north.post(f"{path}/versions").text
    assert "The terms are set" in north.sees(north.post(f"{path}/policy", price="0.20", days_to_decide="3"))
    assert 'id="e-epsilon"' in north.post(f"{path}/policy", price="0.20", epsilon="2").text
    assert "no new job can choose it" in north.sees(north.post(f"{path}/withdraw"))
    assert "was withdrawn" in north.sees(north.post(f"{path}/withdraw"))


def test_a_site_is_shown_the_schema_of_a_request(
    market: PageMarket, visit: Callable[..., Visitor], tmp_path: Path
) -> None:
    object.__setattr__(market.settings, "federation", tmp_path)
    north, buyer = visit("north"), visit("buyer")
    form = {"name": "Ours", "slug": "ours", "kind": "site", "price": "1", "site": "north-ours"}
    columns = "".join(f"{name} number\n" for name in ("distance", "weight", "vehicle", "late"))
    north.sees(north.post("/offers", **form, columns=columns))
    job = {"name": "Mine", "target": "late", "budget": "10", "offers": ["north-ours"], "model": "logistic"}
    made = buyer.post("/jobs", {"holdout": ("rows.csv", table(9, 120))}, **job).headers["location"]
    buyer.sees(buyer.post(f"{made}/submit"))
    page = north.get("/requests").text
    assert "<bdi>late</bdi>" in page and "The consumer gets the model, and not your updates." in page
    assert "<dt>Defence</dt><dd>standard<" in page
    (link,) = re.findall(r'href="(/v1/contracts/\w+/schema\.json)"', page)
    assert north.get(link).json()["target"] == "late"
    job["offers"] = ["north-sales"]
    made = buyer.post("/jobs", **job, mode="own", defence="none").headers["location"]
    buyer.sees(buyer.post(f"{made}/submit"))
    page = north.get("/requests").text
    assert "Your updates go to the consumer as they are." in page and "which is not here" in page
    assert "<dt>Defence</dt><dd>none<" in page


def test_a_site_is_offered_where_there_is_a_federation(
    market: PageMarket, visit: Callable[..., Visitor], tmp_path: Path
) -> None:
    object.__setattr__(market.settings, "federation", tmp_path)
    north = visit("north")
    assert "our own site" in north.get("/offers/new").text
    form = {"name": "Ours", "slug": "ours", "kind": "site", "price": "1", "epsilon": "4", "site": "north-ours"}
    page = north.sees(north.post("/offers", **form, columns="distance number\nlate category"))
    assert "at your site" in page and "ε 4 in all" in page
    assert "bazaar provider join kit --data FILE --schemas 20 --epsilon-cap 4" in page
    assert "hosted and own" in page
    path = re.search(r'action="(/offers/\w+)/policy"', page)
    assert path and "<dd>hosted</dd>" in north.sees(
        north.post(f"{path[1]}/policy", price="1", epsilon="4", modes="hosted")
    )
    assert "ε left" in north.get("/earnings").text
    assert 'id="e-site"' in north.post("/offers", **{**form, "slug": "two"}, columns="a number").text
    third = {**form, "slug": "three", "site": "north-three"}
    assert 'id="e-columns"' in north.post("/offers", **third, columns="a b").text
