"""Our two FLARE components: the only code of ours that runs inside FLARE's own processes.

FLARE's usual unit is a job, which a server sends to its clients. We use none. Both components live in
FLARE's long-running parent processes and exchange raw blobs over its authenticated connections, so a
provider that restarts is back as soon as it has registered again, and nobody ships code to anybody.

What FLARE leaves open we close here: its client obeys administrative commands from the server, reading
files among them, and checks rights only when the server says so. A provider refuses every such command.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    MessageHeaderKey,
    MessageType,
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)

from databazaar.federation.exchange import Exchange
from databazaar.federation.frames import MAX_BYTES, Channel, ClosedError
from databazaar.federation.kits import write_json

CHANNEL = "databazaar"
ASK, ANSWER, HERE = "ask", "answer", "here"
NUMBER, CODE, SECONDS = "databazaar.number", "databazaar.code", "databazaar.seconds"
SERVER = "server"
PROVIDER_FD = "DATABAZAAR_PROVIDER_FD"
MAX_BYTES_VARIABLE = "DATABAZAAR_MAX_BYTES"
RELAY_FILE = "relay.json"

log = logging.getLogger(__name__)


def max_bytes() -> int:
    return int(os.environ.get(MAX_BYTES_VARIABLE, MAX_BYTES))


def _or_exit(start: Callable[[FLContext], None], fl_ctx: FLContext) -> None:
    """FLARE logs what a component raises and goes on. A site without its guard must not go on."""
    try:
        start(fl_ctx)
    except BaseException:
        log.exception("cannot start")
        logging.shutdown()
        os._exit(1)


class MarketSite(FLComponent):  # type: ignore[misc]
    """In the server's process: passes an operator's requests on to the providers that are connected."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_START:
            _or_exit(self._start, fl_ctx)

    def _start(self, fl_ctx: FLContext) -> None:
        engine = fl_ctx.get_engine()
        self._clients = engine.server.client_manager
        self._cell = engine.get_cell()
        self._exchange = Exchange(self._send, self._connected, max_bytes())
        self._here: dict[str, Any] = {}  # provider → the connection on which it last said that it is ready
        self._cell.register_blob_cb(CHANNEL, ANSWER, self._answered)
        self._cell.register_blob_cb(CHANNEL, HERE, self._ready)
        self._cell.core_cell.add_incoming_filter("*", "*", self._only_expected)
        listener = socket.create_server(("127.0.0.1", 0))
        self._token = secrets.token_hex(32)
        write_json(
            Path.cwd() / RELAY_FILE,
            {
                "port": listener.getsockname()[1],
                "token": self._token,
                "pid": os.getpid(),
                "max_bytes": max_bytes(),
            },
        )
        threading.Thread(target=self._accept, args=(listener,), name="relay", daemon=True).start()

    def _only_expected(self, message: Any) -> Any:
        """Providers never talk to each other through the server, and send us only what we asked for.

        This is decided on each frame's header, before memory is set aside for what it announces.
        """
        name, to = (
            message.get_header(MessageHeaderKey.ORIGIN),
            message.get_header(MessageHeaderKey.DESTINATION),
        )
        bulk = message.get_header(MessageHeaderKey.CHANNEL) == CellChannel.CELLNET and (
            message.get_header(MessageHeaderKey.TOPIC) != CellChannelTopic.Bye
        )
        if to != SERVER or bulk:
            log.warning("refused a message of %s to %s", name, to)
            return make_reply(ReturnCode.UNAUTHENTICATED)
        if message.get_header(StreamHeaderKey.CHANNEL) == CHANNEL:
            size = message.get_header(StreamHeaderKey.SIZE)
            here = message.get_header(StreamHeaderKey.TOPIC) == HERE
            asked = here or self._exchange.expects(name, message.get_header(NUMBER))
            if not asked or not isinstance(size, int) or not 0 <= size <= (1 if here else max_bytes()):
                log.info("dropped a message of %s that nobody waits for", name)
                return make_reply(ReturnCode.UNAUTHENTICATED)
        return None

    def _connected(self, name: str) -> bool:
        """Registered, and ready on the connection it has now: FLARE remembers a dead client's name."""
        connection = self._connection(name)
        return connection is not None and self._here.get(name) is connection and name in self._clients.name_to_clients

    def _connection(self, name: str) -> Any:
        agent = self._cell.core_cell.agents.get(name)
        return None if agent is None else agent.endpoint

    def _ready(self, future: Any) -> None:
        name = future.headers.get(MessageHeaderKey.ORIGIN)
        if isinstance(name, str) and (connection := self._connection(name)) is not None:
            self._here[name] = connection

    def _send(self, name: str, number: str, payload: bytes, seconds: float) -> None:
        message = Message({NUMBER: number, SECONDS: seconds}, payload)
        self._cell.send_blob(CHANNEL, ASK, name, message, optional=True)

    def _answered(self, future: Any) -> None:
        headers = future.headers
        name, number, code = headers.get(MessageHeaderKey.ORIGIN), headers.get(NUMBER), headers.get(CODE)
        if not (isinstance(name, str) and isinstance(number, str) and isinstance(code, str)):
            return
        body = bytes(future.result())
        self._exchange.answer(name, number, code, body)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._converse, args=(connection,), name="operator", daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        channel = Channel(connection, max_bytes=0)
        try:
            channel.settimeout(5.0)
            hello, _ = channel.receive()
            if not secrets.compare_digest(str(hello.get("token", "")), self._token):
                return
            channel.max_bytes = max_bytes()
            channel.settimeout(None)
            while True:
                header, body = channel.receive()
                self._obey(channel, header, body)
        except (ClosedError, TimeoutError, TypeError):
            pass
        finally:
            channel.close()

    def _obey(self, channel: Channel, header: dict[str, Any], body: bytes) -> None:
        match header.get("op"):
            case "request":
                names = [str(name) for name in header["names"]]
                replies, failures = self._exchange.ask(names, body, float(header["timeout"]))
                for name, reply in replies.items():
                    channel.send({"op": "reply", "id": header["id"], "name": name}, reply)
                channel.send({"op": "done", "id": header["id"], "failures": failures})
            case "status":
                names = sorted(name for name in list(self._clients.name_to_clients) if self._connected(name))
                channel.send({"op": "status", "connected": names})
            case "revoke":
                self._clients.disable_client(str(header["name"]))
                channel.send({"op": "revoked"})
            case _:
                raise ClosedError("an unknown request")


class ProviderSite(FLComponent):  # type: ignore[misc]
    """In the provider's FLARE process: hands payloads to the provider's own process and its answers back.

    That process is our parent, at the other end of an inherited socket. When it is gone, so are we.
    """

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            _or_exit(self._start, fl_ctx)
        elif event_type == EventType.SYSTEM_START:
            self._parent.send({"op": "connected"})
            self._say_ready()
        elif event_type == EventType.AFTER_CLIENT_HEARTBEAT:
            self._say_ready()

    def _start(self, fl_ctx: FLContext) -> None:
        self._parent = Channel(socket.socket(fileno=int(os.environ.pop(PROVIDER_FD))), max_bytes())
        self._cell = fl_ctx.get_engine().get_cell()
        self._cell.core_cell.add_incoming_filter("*", "*", self._only_questions)
        self._cell.core_cell.add_incoming_request_filter("*", "*", self._only_questions)
        self._cell.register_blob_cb(CHANNEL, ASK, self._asked)
        threading.Thread(target=self._pass_answers, name="answers", daemon=True).start()

    def _say_ready(self) -> None:
        self._cell.send_blob(CHANNEL, HERE, SERVER, Message({}, b"1"), optional=True)

    def _only_questions(self, message: Any) -> Any:
        """Refuse whatever is not a reply we wait for, the connection's own upkeep, or a question from the server.

        FLARE's bulk messages are refused with the rest: they carry others inside, which FLARE takes out past its
        filter of messages and puts through its filter of requests only. So we stand at both; the second also stops
        what came in bulk before we stood here. A reply is decoded by FLARE even if nobody asked, so it is stopped.
        """
        if message.get_header(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
            return None if self._awaited(message) else make_reply(ReturnCode.UNAUTHENTICATED)
        channel, topic = (
            message.get_header(MessageHeaderKey.CHANNEL),
            message.get_header(MessageHeaderKey.TOPIC),
        )
        inner = message.get_header(StreamHeaderKey.CHANNEL)
        if message.get_header(MessageHeaderKey.ORIGIN) == SERVER:
            bye = channel == CellChannel.CELLNET and topic == CellChannelTopic.Bye
            upkeep = channel == STREAM_CHANNEL and topic in (STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC)
            size = message.get_header(StreamHeaderKey.SIZE)
            small = isinstance(size, int) and 0 <= size <= max_bytes()
            reply = inner == CellChannel.RETURN_ONLY and (
                message.get_header(StreamHeaderKey.STREAM_REQ_ID) in self._cell.requests_dict
            )
            ours = channel == STREAM_CHANNEL and (inner == CHANNEL or reply)
            if bye or upkeep or (ours and small):
                return None
        topic = message.get_header(StreamHeaderKey.TOPIC) or topic
        log.warning("refused by provider policy: %s", json.dumps([str(inner or channel), str(topic)]))
        return make_reply(ReturnCode.UNAUTHENTICATED, error="refused by provider policy")

    def _awaited(self, reply: Any) -> bool:
        """Does anybody in this process wait for this reply?"""
        numbers = reply.get_header(MessageHeaderKey.REQ_ID)
        numbers = numbers if isinstance(numbers, list) else [numbers]
        return any(isinstance(number, str) and number in self._cell.core_cell.waiters for number in numbers)

    def _asked(self, future: Any) -> None:
        number, seconds = future.headers.get(NUMBER), future.headers.get(SECONDS)
        if isinstance(number, str) and isinstance(seconds, float | int):
            self._parent.send({"op": "ask", "number": number, "seconds": seconds}, future.result())

    def _pass_answers(self) -> None:
        try:
            while True:
                header, body = self._parent.receive()
                message = Message({NUMBER: header["number"], CODE: header["code"]}, body)
                self._cell.send_blob(CHANNEL, ANSWER, SERVER, message, optional=True)
        except (ClosedError, KeyError):
            pass
        finally:
            os._exit(0)
