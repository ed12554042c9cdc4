"""What the other tests pass by."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.responses import StreamingResponse

from databazaar.service.http import security_limits
from databazaar.service.http.resources import live, money
from databazaar.service.http.security import Credentials
from web_market import MakeMarket, WebMarket


@pytest.fixture(scope="module")
def market(make_market: MakeMarket) -> WebMarket:
    return make_market("sqlite", cash="test")


def test_queues_count_jobs_by_how_far_they_are(market: WebMarket) -> None:
    market.ask("buyer", "POST", "/v1/deposits", json={"amount": 100})
    market.ask("hub", "POST", f"/v1/cash/{market.ids['cash']}/confirm", json={})
    waiting, agreed = market.agreed_job(), market.agreed_job()
    assert market.ask("buyer", "POST", f"/v1/jobs/{waiting}/fund").json()["state"] == "queued"
    (north,) = market.ask("north", "GET", "/v1/queues").json()["items"]
    assert (north["requested"], north["agreed"], north["waiting"], north["running"]) == (0, 1, 1, 0)
    both = market.ask("hub", "GET", "/v1/queues").json()["items"]
    assert [(one["offer"], one["requested"]) for one in both] == [("north-sales", 0), ("south-sales", 1)]
    assert market.ask("rival", "POST", f"/v1/jobs/{waiting}/stop").status_code == 404
    stopped = market.ask("hub", "POST", f"/v1/jobs/{waiting}/stop").json()
    assert (stopped["state"], stopped["stopped_by"]) == ("settling", "operator")
    market.end(agreed)


def test_a_hub_without_runners_says_where_an_arbiter_goes(make_market: MakeMarket) -> None:
    """And counts the queue of the other one as well as it can."""
    beside = make_market("sqlite", runners=0, cash="test")
    for method, path in (("GET", "market"), ("GET", "entries"), ("GET", "connected"), ("POST", "ask?provider=north")):
        answer = beside.ask("buyer", method, f"/v1/jobs/{beside.ids['own job']}/{path}")
        assert answer.status_code == 421 and "use the address of the one that does" in answer.json()["error"], path
    assert beside.ask("buyer", "GET", f"/v1/jobs/{beside.agreed_job()}/quote").json()["wait"] == 0.0


def test_an_operators_link_takes_a_person(market: WebMarket) -> None:
    path = f"/v1/people/{market.ids['person']}/link"
    assert market.ask("hub", "POST", path).status_code == 403
    assert "/join#" in market.ask_as_person("hub", "POST", path).json()["link"]


def test_a_list_goes_on_where_it_was(market: WebMarket) -> None:
    whole = market.ask("hub", "GET", "/v1/organisations").json()["items"]
    first = market.ask("hub", "GET", "/v1/organisations?limit=2").json()
    rest = market.ask("hub", "GET", f"/v1/organisations?after={first['next']}").json()
    assert first["items"] + rest["items"] == whole and rest["next"] is None


def test_a_long_journal_is_sent_in_parts(market: WebMarket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(money, "LINES", 1)
    market.ask("buyer", "POST", "/v1/deposits", json={"amount": 1})
    entries = len(market.ask("hub", "GET", "/v1/journal").json()["items"])
    assert len(market.ask("hub", "GET", "/v1/journal/export").text.splitlines()) == entries > 0
    page = market.ask("buyer", "GET", "/v1/statement?limit=1").json()
    assert len(page["items"]) == 1 and page["next"] is not None


def test_a_market_toml_brings_its_files(market: WebMarket) -> None:
    text = '[data]\nholdout = "own.csv"\n'
    files = {"file": ("other.csv", b"a\n1\n")}
    for data in ({"market": text}, {}):
        refused = market.ask("buyer", "POST", "/v1/jobs/from-market", data=data, files=files)
        assert refused.status_code == 422 and "send" in refused.json()["error"]


@pytest.mark.parametrize("bound", ["MOST_VIEWERS", "MOST_OF_ONE"])
def test_there_is_an_end_to_viewers(market: WebMarket, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, bound, 0)
    assert market.ask("buyer", "GET", f"/v1/jobs/{market.ids['job']}/live").status_code == 429


def test_whoever_has_not_asked_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_limits, "MOST_BUCKETS", 1)
    buckets = security_limits.Buckets(per_second=1e-9, burst=1)
    for name in ("a", "b", "a"):
        buckets.take(name)
    with pytest.raises(security_limits.RetryError):
        buckets.take("a")  # nobody else has asked since


def test_credentials_do_not_show_themselves() -> None:
    assert "sesame" not in f"{Credentials('sesame', 'api')!r}"


def test_an_answer_that_breaks_off_is_not_another_answer(market: WebMarket) -> None:
    @market.app.get("/v1/breaks-off")
    def breaks_off() -> StreamingResponse:
        def pieces() -> Iterator[str]:
            yield "half"
            raise RuntimeError("it broke off")

        return StreamingResponse(pieces())

    with pytest.raises(RuntimeError, match="broke off"):
        market.ask("buyer", "GET", "/v1/breaks-off")
