"""Pages in a hostile world, in the dark, on a phone, without scripts, and by keyboard alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from browsing import NEEDS_CHROMIUM
from databazaar.service import credentials, members, outbox
from databazaar.service.database.tables import Job, Offer
from databazaar.service.http.cookies import cookie_name
from databazaar.service.lifecycle import JobState
from looking import PHONE, Person, assert_accessible
from page_market import PageMarket, page_market
from running_hub import RunningHub

pytestmark = [pytest.mark.slow, *NEEDS_CHROMIUM, pytest.mark.process]
OVERRIDE = "\u202eetad\u202c \u2067 right to left"


@pytest.fixture(scope="module")
def market(make_url: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageMarket]:
    url, home = make_url("sqlite"), tmp_path_factory.mktemp("hostile") / "hub"
    with RunningHub(home, url, page_market) as hub:
        assert isinstance(hub.market, PageMarket)
        yield hub.market


def test_the_watch_itself_sees_what_is_wrong(browser: Browser) -> None:
    person = Person.of(browser, "about:blank")
    person.page.set_content(
        '<title>t · databazaar</title><main><h1>One</h1><img src="x"><p style="width:2000px">wide</p>'
    )
    with pytest.raises(AssertionError, match="at 390"):
        person.look()
    with pytest.raises(AssertionError, match="image-alt"):
        assert_accessible(person.page)
    person.page.evaluate("console.error('oops')")
    person.page.wait_for_timeout(50)
    assert "oops" in person.troubles


def signed_in(browser: Browser, market: PageMarket, slug: str, *, dark: bool = False, scripts: bool = True) -> Person:
    person = Person.of(browser, market.settings.address, dark=dark, scripts=scripts)
    cookie = {"name": cookie_name(market.settings), "value": market.secrets[slug], "url": market.settings.address}
    person.context.add_cookies([cookie])  # type: ignore[list-item]
    return person


ALL = {
    "hub": ("/operator", "/operator/organisations", "/operator/jobs", "/operator/queues", "/operator/journal"),
    "buyer": (
        "/",
        "/market",
        "/market/{offer of north}",
        "/market/{offer of south}",
        "/jobs",
        "/jobs/new",
        "/jobs/{draft}/change",
        "/money",
        "/files",
    ),
    "north": ("/", "/offers", "/offers/{offer of north}", "/requests", "/earnings", "/webhooks"),
}


def test_names_that_want_to_break_pages_are_only_names(browser: Browser, market: PageMarket) -> None:
    """In the dark, so that its colours are looked at too. Some names are older than the rules for names."""
    with market.database.begin() as session:
        outbox.add_webhook(session, market.callers["north"], "https://north.example/a?b=<script>")
        outbox.tell(session, market.callers["north"].organisation_id, "job", {"name": OVERRIDE, "state": "<b>"})
        session.get_one(Offer, market.ids["offer of north"]).name = OVERRIDE
        session.get_one(Job, market.jobs[JobState.DRAFT]).name = OVERRIDE
    for slug, paths in ALL.items():
        person = signed_in(browser, market, slug, dark=True)
        jobs = [f"/jobs/{job}" for job in market.jobs.values()] if slug == "buyer" else []
        for path in [*paths, *jobs]:
            page = person.goto(path.format(**market.ids, draft=market.jobs[JobState.DRAFT]))
            person.seen.clear()
            person.look()
            assert page.locator("main script, main img").count() == 0, path
            assert "\u202e" not in page.content(), path
        assert person.troubles == [], slug
        person.context.close()


def test_what_is_not_there_looks_like_the_rest(browser: Browser, market: PageMarket) -> None:
    buyer, stranger = signed_in(browser, market, "buyer"), Person.of(browser, market.settings.address)
    for person, path, title in (
        (buyer, "/jobs/none", "Nothing is here"),
        (buyer, "/operator", "Not yours to do"),
        (stranger, "/nothing", "Nothing is here"),
        (stranger, "/sign-in", "Sign in"),
        (stranger, "/join", "Join the market"),
        (stranger, "/who-sees-what", "Who sees what"),
    ):
        page = person.goto(path)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        person.seen.clear()
        person.look()
    rival = signed_in(browser, market, "rival")
    for path in ("/", "/market", "/jobs", "/money", "/account"):
        rival.goto(path)
        rival.look()
    assert "You have no job yet" in rival.goto("/jobs").content()


def test_the_menu_of_a_phone_and_its_keys(browser: Browser, market: PageMarket) -> None:
    north = signed_in(browser, market, "north")
    north.page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    page = north.goto("/offers")
    menu, button = page.get_by_role("navigation", name="Main"), page.get_by_role("button", name="Menu")
    expect(menu).to_be_hidden()
    north.by_keyboard(button)
    expect(menu).to_be_visible()
    expect(menu.get_by_role("link").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(button).to_be_focused()


def test_signing_in_by_keyboard_alone(browser: Browser, market: PageMarket) -> None:
    with market.database.begin() as session:
        credentials.set_password(session, market.callers["south"], "four words are enough")
    person = Person.of(browser, market.settings.address)
    page = person.goto("/requests")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    person.by_keyboard(page.get_by_label("E-mail address"), "a")
    page.keyboard.type("nn@south.example")
    page.keyboard.press("Tab")
    page.keyboard.type("four words are wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_focused()
    expect(page.get_by_label("E-mail address")).to_have_value("ann@south.example")
    person.by_keyboard(page.get_by_label("Password"), "f")
    page.keyboard.type("our words are enough")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Requests")


def test_pages_work_without_scripts(browser: Browser, market: PageMarket) -> None:
    """A one-time link is pasted, the menu is there, a job's page shows its rounds, and buttons do what they say."""
    with market.database.begin() as session:
        person_id = members.people(session, market.callers["buyer"])[0].id
        secret = credentials.issue_link(session, market.callers["buyer"], person_id)
    buyer = Person.of(browser, market.settings.address, scripts=False)
    page = buyer.goto(f"/join#{secret}")
    page.get_by_label("One-time link").fill(f"{market.settings.address}/join#{secret}")
    buyer.press("Go on")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    page.goto(f"{buyer.address}/jobs/{market.jobs[JobState.RUNNING]}")
    expect(page.locator("#rounds-body tr")).to_have_count(50)
    expect(page.locator("#now-spent")).to_have_text("4.80")
    expect(page.locator("#now-held")).to_contain_text("1.80 of it is held back")
    buyer.press("Stop early")
    expect(page.get_by_text("It ends after the round under way.")).to_be_visible()
    assert Path(market.settings.job_folder(market.jobs[JobState.RUNNING]) / "stop").exists()


def test_a_part_of_a_page_renews_itself(browser: Browser, market: PageMarket) -> None:
    """htmx asks again by itself after ten seconds, under the policy that lets nothing inline run."""
    hub = signed_in(browser, market, "hub")
    hub.page.clock.install()
    page = hub.goto("/operator/queues")
    with page.expect_response(lambda answer: "hx-request" in answer.request.headers) as renewed:
        page.clock.fast_forward(10_000)
    assert renewed.value.ok
    expect(page.get_by_role("heading", name="Waiting and running")).to_be_visible()
    assert hub.troubles == []
