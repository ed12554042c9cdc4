"""What the processes of these tests run: an obedient handler, a curious server, an unguarded provider."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.f3.message import Message
from nvflare.private.admin_defs import Message as AdminMessage
from nvflare.private.defs import CellMessageHeaderKeys

from databazaar.federation.frames import Channel
from databazaar.federation.guest import ANSWER, ASK, CHANNEL, CODE, NUMBER, SECONDS, SERVER
from databazaar.federation.site import MarketSite, ProviderSite
from loopback import WAIT, eventually

BOUND = "refused a message of unguarded in the name of 'guarded'"
"""What the market's server writes into its log about an answer in another's name."""


def kit(name: str) -> Path:
    """A file in the kit of the provider that runs here."""
    return Path(os.environ["NOTES"]).parent / name


def handler(payload: bytes) -> bytes:
    """`WHAT NAME …` makes the provider of that name behave badly; everything else is echoed.

    One that hangs does so until there is a file `released` in its kit.
    """
    me = os.environ["PARTY"]
    words = payload[:100].split()
    if len(words) > 1 and words[1].decode(errors="replace") == me:
        match words[0]:
            case b"hang":
                eventually(kit("released").exists, WAIT)
            case b"fail":
                raise ValueError("a secret of the provider")
            case b"big":
                return bytes(int(words[2]))
    return me.encode() + b":" + payload


class CuriousMarketSite(MarketSite):
    """A server that sends its providers FLARE's administrative commands, with no word of authorization."""

    def _obey(self, channel: Channel, header: dict[str, Any], body: bytes) -> None:
        if header.get("op") != "command":
            return super()._obey(channel, header, body)
        command = AdminMessage(topic=header["topic"], body=body if header["binary"] else body.decode())
        for key, value in header["headers"].items():
            command.set_header(key, value)
        if header["bulk"]:
            request = new_cell_message({}, command)
            self._cell.core_cell.queue_message(CellChannel.CLIENT_MAIN, "command", header["name"], request)
            return channel.send({"op": "said"}, b"timeout: bulk messages have no reply")
        reply = self._cell.send_request(
            channel=CellChannel.CLIENT_MAIN,
            target=header["name"],
            topic="command",
            request=new_cell_message({}, command),
            timeout=2.0,
        )
        said = reply.payload.body if isinstance(reply.payload, AdminMessage) else str(reply.headers)
        channel.send({"op": "said"}, str(said).encode())


class UnguardedProviderSite(ProviderSite):
    """A provider without our guard, so that FLARE's own policy has to do the refusing; and a liar.

    Asked `lie NAME`, it answers in NAME's name before it answers in its own; asked `gossip NAME`, it
    puts a question of its own to NAME.
    """

    def _start(self, fl_ctx: Any) -> None:
        super()._start(fl_ctx)
        self._mask = ""
        self._cell.core_cell.add_outgoing_request_filter("*", "*", self._put_on)

    def _put_on(self, message: Any) -> Any:
        if self._mask and message.get_header(NUMBER):
            message.set_header(MessageHeaderKey.ORIGIN, self._mask)
            message.set_header(CellMessageHeaderKeys.CLIENT_NAME, self._mask)
        return None

    def _only_questions(self, message: Any) -> Any:
        return None

    def _asked(self, future: Any) -> None:
        number, words = future.headers[NUMBER], bytes(future.result()[:100]).decode(errors="replace").split()
        if words[:1] == ["lie"]:
            self._mask = words[1]
            self._cell.send_blob(CHANNEL, ANSWER, SERVER, Message({NUMBER: number, CODE: ""}, b"a lie")).result(2)
            self._mask = ""
        elif words[:1] == ["gossip"]:
            self._cell.send_blob(CHANNEL, ASK, words[1], Message({NUMBER: "1" * 32, SECONDS: 9.0}, b"gossip"))
        super()._asked(future)


class SecondGuardSite(ProviderSite):
    """A provider whose first guard has fallen, as if a bulk message had come before it stood."""

    def _start(self, fl_ctx: Any) -> None:
        super()._start(fl_ctx)
        self._cell.core_cell.in_filter_reg.reg.clear()


def noting(payload: bytes) -> bytes:
    """Like `handler`, and keeps a note of all that it was asked. A market's messages go to a worker.

    Whoever is lied about answers after the lie has reached the server.
    """
    if payload.startswith(b"DBZ1"):
        from market_party import market

        return market(payload)
    if payload.startswith(b"lie " + os.environ["PARTY"].encode()):
        log = kit("../market/server/log.txt")
        eventually(lambda: BOUND in log.read_text(), WAIT)
    with kit("notes.txt").open("ab") as notes:
        notes.write(payload + b"\n")
    return handler(payload)
