"""Jobs as they happen, through a real server: batches, reconnections, shared readers, rights that end."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import httpx
import pytest

from databazaar.client import Hub, Seen
from databazaar.service.database.tables import now
from databazaar.service.http.resources import live as events
from databazaar.service.http.resources.live import Broadcaster
from databazaar.service.lifecycle import JobState, enter, locked_job
from event_streams import parsed
from web_market import MakeMarket, WebMarket
from web_server import bound, serving, until

pytestmark = pytest.mark.process


class Live:
    """A market behind a server, and one job of the buyer's whose rounds the test writes itself."""

    def __init__(self, market: WebMarket, address: str) -> None:
        self.market, self.address = market, address
        self.job = market.agreed_job()
        self.path = f"/v1/jobs/{self.job}/live"
        self.folder = market.settings.job_folder(self.job)
        self.folder.mkdir(parents=True)

    @property
    def broadcaster(self) -> Broadcaster:
        broadcaster = self.market.app.state.web.broadcaster
        assert isinstance(broadcaster, Broadcaster)
        return broadcaster

    def play(self, *numbers: int) -> None:
        with (self.folder / "progress.jsonl").open("a") as file:
            for number in numbers:
                told = {"round": number, "spent": number, "asked": number, "budget": 40, "utility": 0.5, "loss": None}
                file.write(json.dumps({**told, "paid": ["north-sales"], "flagged": []}) + "\n")

    def enter(self, *states: JobState) -> None:
        for state in states:
            with self.market.database.begin() as session:
                enter(session, locked_job(session, self.job), state)

    def streamed(self) -> Iterator[Seen]:
        """The job as a browser sees it."""
        headers = {"Authorization": f"Bearer {self.market.tokens['buyer']}"}
        with httpx.stream("GET", self.address + self.path, headers=headers, timeout=30) as stream:
            for name, data in parsed(stream.iter_lines()):
                told = json.loads(data)
                yield from [Seen("round", one) for one in told["rounds"]] if name == "rounds" else [Seen("state", told)]

    def watched(self) -> Iterator[Seen]:
        """The job as the client sees it, which asks again and again."""
        with Hub(self.address, self.market.tokens["buyer"]) as hub:
            yield from hub.watch(self.job)

    def viewer(self, look_on: Callable[[Live], Iterator[Seen]] = streamed) -> queue.Queue[Seen | None]:
        """Somebody who looks on in a thread; None is put when there is no more to see."""
        seen: queue.Queue[Seen | None] = queue.Queue()

        def look() -> None:
            try:
                for one in look_on(self):
                    seen.put(one)
            finally:
                seen.put(None)

        threading.Thread(target=look, daemon=True).start()
        return seen


@pytest.fixture(scope="module")
def served(make_market: MakeMarket) -> Iterator[WebMarket]:
    with bound() as (listening, address):
        market = make_market("sqlite", address=address)
        with serving(market.app, listening):
            yield market


@pytest.fixture
def live(served: WebMarket) -> Live:
    return Live(served, served.settings.address)


def rounds(seen: queue.Queue[Seen | None], most: int) -> list[int]:
    """The numbers of the next rounds, whatever states come between."""
    found: list[int] = []
    while len(found) < most:
        one = seen.get(timeout=30)
        assert one is not None
        found += [one.data["round"]] if one.kind == "round" else []
    return found


@pytest.mark.parametrize("look_on", [Live.streamed, Live.watched])
def test_a_viewer_sees_all_rounds_and_states_until_the_job_is_over(
    live: Live, look_on: Callable[[Live], Iterator[Seen]]
) -> None:
    live.play(1, 2)
    seen = live.viewer(look_on)
    assert rounds(seen, 2) == [1, 2]
    live.play(3)
    assert rounds(seen, 1) == [3]
    live.enter(JobState.REFUNDED)
    last = [one for one in iter(lambda: seen.get(timeout=30), None) if one is not None]
    assert [one.data["state"] for one in last if one.kind == "state"][-1] == "refunded"
    until(lambda: live.broadcaster.viewers == 0)


def test_who_comes_back_goes_on_after_the_last_round(live: Live) -> None:
    live.play(1, 2, 3)
    live.enter(JobState.REFUNDED)
    headers = {"Authorization": f"Bearer {live.market.tokens['buyer']}"}
    whole = httpx.get(live.address + live.path, headers=headers)
    assert whole.headers["content-type"].startswith("text/event-stream")
    assert "id: 3" in whole.text and "no-store" in whole.headers["cache-control"]
    told = dict(parsed(whole.text.splitlines()))
    assert [one["round"] for one in json.loads(told["rounds"])["rounds"]] == [1, 2, 3]
    rest = httpx.get(live.address + live.path, headers={**headers, "Last-Event-ID": "2"})
    assert [one["round"] for one in json.loads(dict(parsed(rest.text.splitlines()))["rounds"])["rounds"]] == [3]
    assert httpx.get(live.address + live.path, headers={**headers, "Last-Event-ID": "3"}).status_code == 204


def test_many_viewers_share_one_reader_and_hold_no_connection(live: Live) -> None:
    live.play(1)
    viewers = [live.viewer() for _ in range(12)]
    assert [rounds(seen, 1) for seen in viewers] == [[1]] * 12
    assert live.broadcaster.viewers == 12 and len(live.broadcaster._feeds) == 1
    pool: Any = live.market.database.engine.pool
    until(lambda: pool.checkedout() == 0)
    live.play(2, 3)
    assert [rounds(seen, 2) for seen in viewers] == [[2, 3]] * 12
    live.enter(JobState.REFUNDED)
    for seen in viewers:
        while seen.get(timeout=30) is not None:
            pass


def test_a_stream_ends_when_its_token_is_revoked(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "CHECK_EVERY", 0.2)
    token = live.market.token("buyer")
    live.play(1)
    seen: list[str] = []
    with (
        httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30) as client,
        client.stream("GET", live.address + live.path) as stream,
    ):
        for name, _ in parsed(stream.iter_lines()):
            seen.append(name)
            if name == "state":
                live.market.spoil(token, revoked_at=now())
    assert seen == ["rounds", "state"]
    until(lambda: live.broadcaster.viewers == 0)


def test_a_quiet_stream_has_heartbeats(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT", 1)
    headers = {"Authorization": f"Bearer {live.market.tokens['buyer']}"}
    with httpx.stream("GET", live.address + live.path, headers=headers, timeout=30) as stream:
        assert next(line for line in stream.iter_lines() if line.startswith(": ping"))


def test_streams_end_when_the_hub_does(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"Authorization": f"Bearer {live.market.tokens['buyer']}"}
    with httpx.stream("GET", live.address + live.path, headers=headers, timeout=30) as stream:
        names = (name for name, _ in parsed(stream.iter_lines()))
        assert next(names) == "state"
        monkeypatch.setattr(live.broadcaster, "ending", lambda: True)
        assert list(names) == []
    until(lambda: live.broadcaster.viewers == 0)


def test_who_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "SEND_PATIENCE", 0.01)
    sent: list[Any] = []
    closed: list[bool] = []

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"data: 1\n\n"
        finally:
            closed.append(True)

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 3:
            await asyncio.Event().wait()

    asyncio.run(events.EventStream(endless()).stream_response(send))
    assert len(sent) == 3 and all(one.get("more_body", True) for one in sent) and closed == [True]


def test_a_client_that_loses_the_hub_goes_on_where_it_was(make_market: MakeMarket) -> None:
    with bound() as (listening, address):
        market = make_market("sqlite", address=address)
        with serving(market.app, listening):
            live = Live(market, address)
            live.play(1, 2)
            seen = live.viewer(Live.watched)
            assert rounds(seen, 2) == [1, 2]
        port = int(address.rpartition(":")[2])
    live.play(3)
    with bound(port) as (again, _), serving(market.app, again):
        assert rounds(seen, 1) == [3]
        live.enter(JobState.REFUNDED)
        while seen.get(timeout=30) is not None:
            pass
