"""One market from the first invitation to the last payout, by three roles in three browsers, over a real run."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from browsing import NEEDS_CHROMIUM
from databazaar.client.receipts import verify
from databazaar.service import journal
from databazaar.service.receipts import HubKey
from desk_market import table
from looking import Person
from running_hub import RunningHub

pytestmark = [pytest.mark.slow, *NEEDS_CHROMIUM, pytest.mark.process]
PASSWORD = "four words are enough"
MAY_TAKE_MS = 60_000


@pytest.fixture
def hub(make_url: object, tmp_path: Path) -> Iterator[RunningHub]:
    assert callable(make_url)
    with RunningHub(tmp_path / "hub", make_url("sqlite"), supervise=True) as running:
        yield running


def joined(browser: Browser, hub: RunningHub, seen: set[str], link: str) -> Person:
    """Opens a one-time link, which a script posts, and sets a password."""
    person = Person.of(browser, hub.address, seen=seen)
    page = person.goto(link)
    expect(page.get_by_role("heading", level=1)).to_have_text("Set your password")
    assert "#" not in page.url
    person.look()
    page.get_by_label("New password").fill(PASSWORD)
    page.get_by_label("The same again").fill(PASSWORD)
    person.press("Set the password")
    expect(page.get_by_role("status")).to_contain_text("Your password is set.")
    return person


def invited(operator: Person, name: str, slug: str, role: str) -> str:
    """The one-time link, which the page shows this once."""
    page = operator.goto("/operator/organisations")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Name in ids").fill(slug)
    page.get_by_label("E-mail address").fill(f"ann@{slug}.example")
    page.get_by_label(role).check()
    operator.press("Invite")
    link = page.locator(".notice code").inner_text()
    assert link not in page.url
    operator.look()
    page.reload()
    assert page.locator(".notice code").count() == 0
    return link


def offered(provider: Person, name: str, slug: str, seed: int, approval: str) -> None:
    page = provider.goto("/offers")
    provider.look()
    page.get_by_role("link", name="New offer").click()
    provider.look()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Name in ids").fill(slug)
    page.get_by_label("Description").fill("Deliveries of last year.")
    page.get_by_label("File").set_input_files({"name": "rows.csv", "mimeType": "text/csv", "buffer": table(seed)})
    page.get_by_label("Price of one access").fill("0.05")
    page.get_by_label("Approval").select_option(approval)
    provider.press("Make the offer")
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    expect(page.get_by_role("region", name="Columns of the data")).to_contain_text("vehicle")
    provider.look()


def test_a_market_from_invitation_to_payout(browser: Browser, hub: RunningHub) -> None:
    seen: set[str] = set()
    operator = joined(browser, hub, seen, hub.link(hub.market.secret))
    operator.goto("/operator")
    operator.look()
    operator.page.get_by_label("Fee in per cent").fill("2.5")
    operator.press("Set the fee")
    expect(operator.page.get_by_role("status")).to_contain_text("2.50 %")
    north = joined(browser, hub, seen, invited(operator, "North Deliveries", "north", "Provider"))
    south = joined(browser, hub, seen, invited(operator, "South Freight", "south", "Provider"))
    buyer = joined(browser, hub, seen, invited(operator, "Harbour Bank", "bank", "Consumer"))
    offered(north, "Deliveries of the north", "rounds", 1, "by hand")
    offered(south, "Freight of the south", "freight", 2, "automatic")

    job = asked_for(buyer)
    approved(north)
    paid_for(buyer, operator, job)
    watched_and_stopped(hub, buyer, job)
    downloaded(buyer)
    paid_out(hub, north, operator)
    for path in ("/operator/jobs", "/operator/queues", "/operator/journal", "/operator/cash"):
        operator.goto(path)
        operator.look()
    operator.goto("/operator/journal")
    operator.press("Audit now")
    expect(operator.page.get_by_role("status")).to_contain_text("The books hold")
    operator.goto("/operator")
    expect(operator.page.get_by_text("The books hold")).to_be_visible()


def asked_for(buyer: Person) -> str:
    """Browses, makes a mistake in the form, which keeps what was typed, mends it, and asks the providers."""
    page = buyer.goto("/market")
    buyer.look()
    page.get_by_role("link", name="Deliveries of the north").click()
    buyer.look()
    page.get_by_role("link", name="New job with it").click()
    buyer.look()
    holdout = {"name": "holdout.csv", "mimeType": "text/csv", "buffer": table(9, rows=120)}
    page.get_by_label("Name of the job").fill("Which deliveries are late")
    page.get_by_label("Hold-out").set_input_files(holdout)  # type: ignore[arg-type]
    page.get_by_label("Target", exact=True).fill("late")
    expect(page.get_by_label("Model", exact=True)).to_have_value("auto")
    page.get_by_text("Settings of the model and its learner").click()
    page.get_by_label("Learner: rows").fill("40")
    page.get_by_label("Budget").fill("4 thousand")
    page.get_by_label("Freight of the south").check()
    buyer.press("Make a draft")
    expect(page.locator("#e-budget")).to_contain_text("is not an amount")
    expect(page.get_by_label("Budget")).to_be_focused()
    expect(page.get_by_label("Name of the job")).to_have_value("Which deliveries are late")
    expect(page.get_by_label("Deliveries of the north")).to_be_checked()
    expect(page.get_by_text("holdout.csv has been received")).to_be_visible()
    page.get_by_label("Budget").fill("4000")
    page.get_by_label("It ends").select_option("budget")
    page.get_by_text("More settings").click()
    page.get_by_label("Per round").fill("2")
    buyer.press("Make a draft")
    expect(page.get_by_role("heading", level=1)).to_have_text("Which deliveries are late")
    job = page.url
    buyer.look()
    buyer.press("Ask the providers")
    expect(page.get_by_text("1 request is not decided yet")).to_be_visible()
    return job


def approved(north: Person) -> None:
    page = north.goto("/requests")
    expect(page.get_by_role("heading", name="Harbour Bank asks for Deliveries of the north")).to_be_visible()
    assert "4,000" not in page.content(), "the budget is not the provider's to see"
    expect(page.get_by_text("up to 40 rows of your table")).to_be_visible()
    expect(page.get_by_text("with a model of kind auto, trained by blending")).to_be_visible()
    north.look()
    north.by_keyboard(page.get_by_role("button", name="Agree"))
    expect(page.get_by_role("status")).to_contain_text("Agreed")


def paid_for(buyer: Person, operator: Person, job: str) -> None:
    """The quote, a deposit that the operator confirms, and the escrow, by keyboard."""
    page = buyer.goto(job)
    expect(page.get_by_text("4,100.00 EUR is missing")).to_be_visible()
    buyer.seen.discard(page.title())
    buyer.look()
    buyer.press("Announce the deposit")
    expect(page.get_by_text("Deposits of 4,100.00 EUR wait")).to_be_visible()
    operator.goto("/operator/cash")
    operator.look()
    operator.page.get_by_label("Your bank’s reference").fill("transfer 17")
    operator.press("Confirm")
    expect(operator.page.get_by_role("status")).to_contain_text("Confirmed")
    buyer.goto(job)
    buyer.by_keyboard(page.get_by_role("button", name="Fund with 4,100.00 EUR"))


def rounds_of(page: Page) -> int:
    return int(page.locator("#live").get_attribute("data-rounds") or 0)


def watched_and_stopped(hub: RunningHub, buyer: Person, job: str) -> None:
    """The curves go on after the connection was cut, without a hole; then the job is stopped by keyboard."""
    page = buyer.page
    expect(page.locator("#live")).to_have_attribute("data-rounds", re.compile("[1-9]"), timeout=MAY_TAKE_MS)
    expect(page.locator("#utility-curve canvas")).to_be_visible()
    buyer.seen.discard(page.title())
    buyer.look()
    before = rounds_of(page)
    hub.wire.cut()
    expect(page.locator("#connection")).to_contain_text("The connection was lost")
    hub.wire.heads.clear()
    hub.wire.mend()
    expect(page.locator("#live")).not_to_have_attribute("data-rounds", str(before), timeout=MAY_TAKE_MS)
    expect(page.locator("#connection")).to_have_text("Live.")
    asked = [head for head in hub.wire.heads if b"/live " in head]
    assert asked and re.search(rb"(?i)last-event-id: ?[1-9]", asked[-1]), asked
    numbers = [int(number) for number in page.locator("#rounds-body th").all_inner_texts()]
    assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))
    buyer.by_keyboard(page.get_by_role("button", name="Stop early"))
    expect(page.locator(".head .badge")).to_have_text("Settled", timeout=MAY_TAKE_MS)


def downloaded(buyer: Person) -> None:
    page = buyer.page
    buyer.seen.discard(page.title())
    buyer.look()
    with page.expect_download() as model:
        page.get_by_role("link", name="Model").click()
    assert "model/model.safetensors" in zipfile.ZipFile(model.value.path()).namelist()
    with page.expect_download() as statement:
        page.get_by_role("link", name="Statement (CSV)").click()
    assert "north-rounds" in statement.value.path().read_text()
    page.get_by_role("link", name="Report").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Which deliveries are late")
    assert buyer.troubles == []
    buyer.goto("/money")
    buyer.look()
    buyer.goto("/jobs")
    buyer.look()
    buyer.goto("/")
    buyer.look()


def paid_out(hub: RunningHub, north: Person, operator: Person) -> None:
    """The provider takes its receipt, checks it, and is paid out."""
    north.seen.discard("Requests · Harbour market")
    for path in ("/", "/account", "/who-sees-what", "/requests", "/earnings"):
        page = north.goto(path)
        north.look()
    with page.expect_download() as kept:
        page.get_by_role("link", name="Download").first.click()
    receipt = json.loads(kept.value.path().read_text())
    body = verify(receipt, HubKey.of(hub.settings).public)
    assert (body["provider"], body["offer"]) == ("north", "north-rounds") and body["paid"] > 0
    page = north.goto("/money")
    page.get_by_label("Amount to pay out").fill("99999")
    north.press("Ask for the payout")
    expect(page.locator("#e-paid_out")).to_contain_text("can be paid out")
    north.look()
    with hub.database.read() as session:
        earned = journal.balance(session, "earned:north")
    assert earned == body["paid"]
    page.get_by_label("Amount to pay out").fill(f"{earned / 100:.2f}")
    north.press("Ask for the payout")
    expect(page.get_by_role("status")).to_contain_text("You have asked for")
    operator.goto("/operator/cash")
    operator.press("Confirm")
    page.reload()
    expect(page.get_by_role("region", name="Deposits and payouts")).to_contain_text("Done")
    with hub.database.read() as session:
        assert journal.balance(session, "earned:north") == 0
