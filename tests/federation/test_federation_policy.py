"""A server that turns against its providers: it can ask questions, and nothing else that it sends does anything."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from databazaar.federation.frames import decode_frame, encode_frame
from databazaar.federation.provider import ProviderNode
from databazaar.federation.tls import ServerCertificate
from databazaar.federation.wire import SERVICE, grpc
from loopback import WAIT, Federation, eventually

pytestmark = [pytest.mark.slow, pytest.mark.process]
NUMBER = "0" * 32
QUESTION = {"op": "ask", "number": NUMBER, "seconds": 20.0, "size": 5, "at": 0}


class HostileServer:
    """Has the market's own certificate, and sends every provider that joins what a test wants."""

    def __init__(self, federation: Federation, *messages: bytes) -> None:
        self._messages = messages
        self.answers: list[tuple[dict[str, Any], bytes]] = []
        self.done = threading.Event()
        handler = grpc.method_handlers_generic_handler(
            SERVICE, {"Join": grpc.stream_stream_rpc_method_handler(self._join)}
        )
        self._server = grpc.server(ThreadPoolExecutor(4), [handler])
        certificate = ServerCertificate(federation.market / "server" / "startup").current()
        credentials = grpc.dynamic_ssl_server_credentials(certificate, lambda: None, True)
        self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        federation.edit("bank1/invitation.json", lambda kit: kit.update(port=self.port))

    def __enter__(self) -> HostileServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self._server.stop(0).wait()

    def _join(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        def read() -> None:
            with contextlib.suppress(grpc.RpcError):
                for message in messages:
                    header, piece = decode_frame(message)
                    self.answers.append((header, bytes(piece)))

        threading.Thread(target=read, daemon=True).start()
        yield encode_frame({"op": "welcome"})
        yield from self._messages
        self.done.wait(WAIT)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    made = Federation(tmp_path, "hostile")
    made.enroll("bank1")
    return made


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (encode_frame({"op": "command", "shell": "ls startup"}), "neither a question nor the end of one"),
        (encode_frame({"op": "deploy"}, b"PK\x03\x04"), "neither a question nor the end of one"),
        (b"\x80\x04K\x01.", "a frame lies about its length"),
        (b"\x00\x00\x00\x02[]", "a frame has no JSON header"),
        (encode_frame({**QUESTION, "size": None}, b"hello"), "a question without a size or a deadline"),
        (encode_frame({**QUESTION, "seconds": "long"}, b"hello"), "a question without a size or a deadline"),
    ],
)
def test_whatever_is_no_question_ends_the_connection_with_a_sentence(
    federation: Federation, caplog: pytest.LogCaptureFixture, message: bytes, why: str
) -> None:
    with HostileServer(federation, message), ProviderNode(federation.root / "bank1", bytes):
        assert eventually(lambda: f"hostile sends what cannot be read ({why}" in caplog.text, WAIT)


def test_pieces_that_make_no_question_are_let_go_and_the_next_is_answered(federation: Federation) -> None:
    other = "1" * 32
    pieces = (
        encode_frame({**QUESTION, "number": "2" * 32, "size": 2**62}, b"more than there is room for"),
        encode_frame({**QUESTION, "number": other, "size": 3}, b"longer than it says"),
        encode_frame({**QUESTION, "number": other, "at": 7}, b"without a beginning"),
        encode_frame({**QUESTION, "number": "3" * 32, "size": 9}, b"half"),
        encode_frame({"op": "over", "number": "3" * 32}),
        encode_frame(QUESTION, b"hello"),
    )
    with (
        HostileServer(federation, *pieces) as server,
        ProviderNode(federation.root / "bank1", lambda asked: b"heard " + bytes(asked)),
    ):
        assert eventually(lambda: bool(server.answers), WAIT)
    header = {"op": "answer", "number": NUMBER, "code": "", "size": 11, "at": 0}
    assert server.answers == [(header, b"heard hello")]
