"""A registered provider that means harm, against a real server and real providers beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from loopback import WAIT, Federation
from nvflare.apis.shareable import Shareable
from raw_provider import RawProvider, joined

from databazaar.federation.transport import FlareTransport

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A server, an honest provider `victim`, and the kit of `mallory`."""
    made = Federation(tmp_path_factory.mktemp("federation"))
    try:
        for name in ("victim", "mallory"):
            made.enroll(name)
        made.up()
        made.start("victim")
        yield made
    finally:
        made.close()


@pytest.fixture
def transport(federation: Federation) -> Iterator[FlareTransport]:
    with FlareTransport(federation.market) as opened:
        assert opened.wait_for(["victim"], WAIT) == []
        yield opened


@pytest.fixture
def mallory(federation: Federation, transport: FlareTransport) -> Iterator[RawProvider]:
    with joined(federation.root / "mallory") as provider:
        assert transport.wait_for(["mallory"], WAIT) == []
        yield provider


class Asking(threading.Thread):
    """A question under way."""

    def __init__(self, transport: FlareTransport, names: list[str], payload: bytes, seconds: float = 20.0) -> None:
        super().__init__()
        self._ask = lambda: transport.request(names, payload, seconds)
        self.start()

    def run(self) -> None:
        self.replies, self.failures = self._ask()

    def end(self) -> None:
        self.join(60)
        assert not self.is_alive()


def test_a_provider_cannot_answer_in_another_s_name_with_a_token_of_its_past(
    federation: Federation, transport: FlareTransport, mallory: RawProvider
) -> None:
    old = mallory.token
    new = mallory.register()
    mallory.ready()
    mallory.token = old
    released = federation.root / "victim" / "released"
    asking = Asking(transport, ["victim", "mallory"], b"hang victim")
    number, _ = mallory.question()
    mallory.answer(number, b"a lie", cn__origin="victim")
    mallory.token = new
    mallory.answer(number, b"my own")
    mallory.ask("heart_beat", Shareable(), project_name="fraud")  # the lie has been looked at
    released.touch()
    asking.end()
    released.unlink()
    assert asking.replies.get("victim") == b"victim:hang victim"
