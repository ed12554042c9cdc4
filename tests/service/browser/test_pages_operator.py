"""What the operator does on its pages: who takes part, and whose money moves."""

from __future__ import annotations

import re
from collections.abc import Callable

from databazaar.codes import Code
from databazaar.service import cash, journal
from databazaar.service.database.tables import Job
from databazaar.service.hub.settlement import UNSOUND
from databazaar.service.lifecycle import JobState
from page_market import PageMarket
from visitor import Visitor


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
    lines = hub.get("/v1/journal/export").text.splitlines()
    with market.database.read() as session:
        assert len(lines) >= journal.audit(session).entries
    with market.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE accounts SET balance = balance + 1 WHERE name = 'cash:buyer'")
    assert "The books do not hold" in hub.sees(hub.post("/operator/journal/audit"))
    assert "The books do not hold" in hub.get("/operator").text
    assert "audit it there" in hub.get("/operator", headers={"HX-Request": "true"}).text


def test_a_job_that_cannot_be_settled_is_refunded_by_hand(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    hub, buyer, job = visit("hub"), visit("buyer"), market.jobs[JobState.SETTLING]
    refund = f"/operator/jobs/{job}/refund"
    assert "others settle themselves" in hub.sees(hub.post(refund))
    with market.database.begin() as session:
        row, why = session.get_one(Job, job), Code.of(UNSOUND, why="entry 7 is broken")
        row.reason, row.reason_code = str(why), why.name
    assert "entry 7 is broken" in buyer.get(f"/jobs/{job}").text
    assert refund in hub.get("/operator/jobs").text
    assert "cash again" in hub.sees(hub.post(refund))
    assert "Nobody was paid" in buyer.get(f"/jobs/{job}").text


def test_the_operator_stops_a_job_on_its_page(market: PageMarket, visit: Callable[..., Visitor]) -> None:
    hub, buyer, job = visit("hub"), visit("buyer"), market.jobs[JobState.RUNNING]
    stop = f"/operator/jobs/{job}/stop"
    assert stop in hub.get("/operator/jobs").text
    assert "It is stopped" in hub.sees(hub.post(stop))
    shown = hub.get("/operator/jobs").text
    assert stop not in shown and "stopped by the operator" in shown
    assert "The operator has stopped it" in buyer.get(f"/jobs/{job}").text
    assert "only one that is funded" in hub.sees(hub.post(f"/operator/jobs/{market.jobs[JobState.DRAFT]}/stop"))


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
    assert hub.post(f"/operator/cash/{deposit.id}/refuse").status_code == 422
    assert "Refused" in hub.sees(hub.post(f"/operator/cash/{deposit.id}/refuse", reason="nothing has come"))
    assert hub.post(f"/operator/cash/{deposit.id}/confirm").status_code == 422
    assert "Confirmed: 3.00 EUR" in hub.sees(hub.post(f"/operator/cash/{payout.id}/confirm", reference="17"))
    assert "nothing has come" in buyer.get("/money").text
