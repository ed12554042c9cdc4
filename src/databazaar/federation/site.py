"""Our two FLARE components: the only code of ours that runs inside FLARE's own processes.

FLARE's usual unit is a job, which a server sends to its clients. We use none. Both components live in
FLARE's long-running parent processes and exchange raw blobs over its authenticated connections, so a
provider that restarts is back as soon as it has registered again, and nobody ships code to anybody.

What FLARE leaves open we close here: its client obeys administrative commands from the server, reading
files among them, and checks rights only when the server says so. A provider refuses every such command.
What a provider may send to the server is decided at the server's door, before FLARE sees it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    MessageHeaderKey,
    MessagePropKey,
    MessageType,
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.blob_streamer import BlobHandler
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamDataType,
    StreamHeaderKey,
)
from nvflare.fuel.f3.streaming.stream_types import StreamError

from databazaar.federation import door
from databazaar.federation.arriving import Chunk
from databazaar.federation.capacities import read_capacities
from databazaar.federation.exchange import BEAT, Exchange
from databazaar.federation.frames import MAX_BYTES, Channel, ClosedError
from databazaar.federation.guest import (
    ANSWER,
    ASK,
    CHANNEL,
    CODE,
    HERE,
    NUMBER,
    PACKED,
    SECONDS,
    SERVER,
    UNPACKS,
)
from databazaar.federation.lanes import LONGEST_NAME
from databazaar.federation.outgoing import Answers, Questions
from databazaar.federation.packing import PackingError, Unpacking
from databazaar.federation.payloads import PIECE
from databazaar.federation.processes import WINDOW
from databazaar.federation.relay import Relay

PROVIDER_FD = "DATABAZAAR_PROVIDER_FD"
MAX_BYTES_VARIABLE = "DATABAZAAR_MAX_BYTES"
_ACKNOWLEDGE = WINDOW // 4

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
        elif event_type == EventType.CLIENT_REGISTER_PROCESSED:
            forget_former_tokens(fl_ctx.get_engine().server)

    def _start(self, fl_ctx: FLContext) -> None:
        if not door.standing():
            raise RuntimeError("this server was not started by `bazaar federation up`, and has no guard")
        engine = fl_ctx.get_engine()
        self._clients = engine.server.client_manager
        self._cell = engine.get_cell()
        self._questions = Questions(self._cell)
        self._here: dict[str, Any] = {}  # provider → the connection on which it last said that it is ready
        self._capacities = read_capacities(Path.cwd())
        self._exchange = Exchange(
            self._questions.send,
            self._connected,
            max_bytes(),
            ended=self._questions.stop,
            capacity=lambda name: self._capacities.get(name, 1),
            taken=self._questions.taken,
            passed=lambda name, piece: self._acknowledge(
                name, piece.stream, piece.sequence, piece.at + len(piece.data), len(piece.data)
            ),
        )
        self._cell.core_cell.add_incoming_filter("*", "*", self._take)
        door.HOUSE.revoked = self._clients.is_client_disabled
        door.HOUSE.awaits = lambda numbers: awaited(self._cell, numbers)
        door.HOUSE.expects = self._exchange.hears
        door.HOUSE.sends = self._questions.sends
        door.HOUSE.registered = lambda name: name in self._clients.name_to_clients
        Relay(self._obey, max_bytes()).start(Path.cwd())

    def _take(self, message: Any) -> Any:
        """Takes what is ours out of FLARE's hands: signs of life, and answers as they come in, piece by piece.

        FLARE has checked the token by now, and the door the name and the size. FLARE's own streams are not used on
        this side: they take memory on the sender's word. Whatever is returned but None ends the message here.
        """
        get = message.get_header
        if get(MessageHeaderKey.CHANNEL) != STREAM_CHANNEL or get(MessageHeaderKey.TOPIC) != STREAM_DATA_TOPIC:
            return None
        name = get(MessageHeaderKey.ORIGIN)
        if name == message.get_prop(MessagePropKey.COMMON_NAME) and get(StreamHeaderKey.CHANNEL) == CHANNEL:
            if get(StreamHeaderKey.TOPIC) == HERE:
                self._here[name] = self._connection(name)
                self._questions.unpacks[name] = get(UNPACKS) is True
            elif get(StreamHeaderKey.TOPIC) == ANSWER:
                self._answered(name, message)
        return make_reply(ReturnCode.OK)

    def _answered(self, name: str, message: Any) -> None:
        get, data = message.get_header, bytes(message.payload or b"")
        last, packed = get(StreamHeaderKey.DATA_TYPE) == StreamDataType.FINAL, get(PACKED) is True
        stream, sequence, size = (
            get(key) for key in (StreamHeaderKey.STREAM_ID, StreamHeaderKey.SEQUENCE, StreamHeaderKey.SIZE)
        )
        received = self._exchange.take(name, get(NUMBER), Chunk(stream, sequence, size, last, get(CODE), data, packed))
        if received:
            self._acknowledge(name, stream, sequence, received, len(data))

    def _acknowledge(self, name: str, stream: Any, sequence: Any, received: int, last: int) -> None:
        """Lets the provider send on, for every so many bytes; without that it stops when its window is full."""
        if received // _ACKNOWLEDGE > (received - last) // _ACKNOWLEDGE:
            headers = {StreamHeaderKey.STREAM_ID: stream, StreamHeaderKey.DATA_TYPE: StreamDataType.ACK}
            headers |= {StreamHeaderKey.OFFSET: received, StreamHeaderKey.SEQUENCE: sequence}
            self._cell.core_cell.fire_and_forget(
                STREAM_CHANNEL, STREAM_ACK_TOPIC, name, Message(headers), optional=True
            )

    def _connected(self, name: str) -> bool:
        """Registered, and ready on the connection it has now: FLARE remembers a dead client's name."""
        connection = self._connection(name)
        return connection is not None and self._here.get(name) is connection and name in self._clients.name_to_clients

    def _connection(self, name: str) -> Any:
        agent = self._cell.core_cell.agents.get(name)
        return None if agent is None else agent.endpoint

    def _obey(self, channel: Channel, header: dict[str, Any], body: bytes) -> None:
        match header.get("op"):
            case "request":
                self._ask(channel, header, body)
            case "status":
                names = sorted(name for name in list(self._clients.name_to_clients) if self._connected(name))
                queues = {name: asdict(queue) for name, queue in self._exchange.queues().items()}
                moving = {name: asdict(transfer) for name, transfer in self._exchange.transfers().items()}
                channel.send({"op": "status", "connected": names, "queues": queues, "transfers": moving})
            case "capacity":
                self._capacities = read_capacities(Path.cwd())
                self._exchange.capacity_changed(str(header["name"]))
                channel.send({"op": "capacity", "name": header["name"]})
            case "revoke":
                name = str(header["name"])
                self._clients.disable_client(name)
                channel.send({"op": "revoked", "name": name, "closed": door.show_out(name)})
            case _:
                raise ClosedError("an unknown request")

    def _ask(self, channel: Channel, header: dict[str, Any], body: bytes) -> None:
        """Asks, and says meanwhile who waits and who is asked: where nobody hears that, the ask is over. Large answers
        are passed on as they come."""
        number, names = header["id"], [str(name) for name in header["names"]]
        consumer = str(header.get("consumer", ""))[:LONGEST_NAME]
        channel.settimeout(10 * BEAT)
        replies, failures = self._exchange.ask(
            names,
            body,
            float(header["timeout"]),
            consumer,
            lambda states: channel.send({"op": "states", "id": number, "states": states}),
            lambda name, size, data: channel.send({"op": "piece", "id": number, "name": name, "size": size}, data),
            lambda moving: channel.send(
                {"op": "transfers", "id": number, "transfers": {name: asdict(one) for name, one in moving.items()}}
            ),
            partial(self._questions.send, pack=header.get("pack") is True),
        )
        channel.settimeout(None)
        for name, reply in replies.items():
            channel.send({"op": "reply", "id": number, "name": name}, reply)
        channel.send({"op": "done", "id": number, "failures": failures})


def forget_former_tokens(server: Any) -> None:
    """FLARE keeps every token that a provider ever had, and a provider may register as often as it likes."""
    for token in {*server.tokens, *server.admin_server.clients} - set(server.client_manager.clients):
        server.remove_client_data(token)
        server.admin_server.client_dead(token)


def awaited(cell: Any, numbers: Any) -> bool:
    """Does anybody in this process wait for the reply of one of these numbers?"""
    numbers = numbers if isinstance(numbers, list) else [numbers]
    return any(isinstance(number, str) and number in cell.core_cell.waiters for number in numbers)


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
        self._small = BlobHandler(self._asked)
        self._cell.register_stream_cb(CHANNEL, ASK, self._question)
        self._answers = Answers(self._cell)
        threading.Thread(target=self._pass_answers, name="answers", daemon=True).start()

    def _say_ready(self) -> None:
        self._cell.send_blob(CHANNEL, HERE, SERVER, Message({UNPACKS: True}, b"1"), optional=True)

    def _only_questions(self, message: Any) -> Any:
        """Refuse whatever is not a reply we wait for, the connection's own upkeep, or a question from the server.

        FLARE's bulk messages are refused with the rest: they carry others inside, which FLARE takes out past its
        filter of messages and puts through its filter of requests only. So we stand at both; the second also stops
        what came in bulk before we stood here. A reply is decoded by FLARE even if nobody asked, so it is stopped.
        """
        if message.get_header(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
            here = awaited(self._cell, message.get_header(MessageHeaderKey.REQ_ID))
            return None if here else make_reply(ReturnCode.UNAUTHENTICATED)
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

    def _asked(self, future: Any) -> None:
        number, seconds = future.headers.get(NUMBER), future.headers.get(SECONDS)
        if isinstance(number, str) and isinstance(seconds, float | int):
            self._parent.send({"op": "ask", "number": number, "seconds": seconds}, future.result())

    def _question(self, future: Any, stream: Any, resume: bool) -> int:
        """FLARE calls this in a thread of its own. A small question is taken as a whole, as FLARE takes blobs."""
        if stream.get_size() <= PIECE:
            return int(self._small.handle_blob_cb(future, stream, resume))
        self._asked_long(stream)
        return 0

    def _asked_long(self, stream: Any) -> None:
        """A large question, passed on piece by piece."""
        get, size, at = stream.get_headers().get, stream.get_size(), 0
        number, seconds = get(NUMBER), get(SECONDS)
        if not isinstance(number, str) or not isinstance(seconds, float | int):
            return
        unpacking = Unpacking(size) if get(PACKED) is True else None
        if unpacking is not None:
            self._answers.pack(number)
        try:
            while at <= size and (part := stream.read(PIECE)):
                for piece in (memoryview(part),) if unpacking is None else unpacking.add(part):
                    at += len(piece)
                    self._parent.send({"op": "ask", "number": number, "seconds": seconds, "size": size}, piece)
        except (StreamError, PackingError):
            at = -1
        if at != size:
            self._parent.send({"op": "lost", "number": number})

    def _pass_answers(self) -> None:
        try:
            while True:
                header, body = self._parent.receive()
                self._answers.pass_on(header["number"], header["code"], header.get("size"), body)
        except (ClosedError, KeyError):
            pass
        finally:
            os._exit(0)
