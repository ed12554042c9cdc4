"""What the processes of these tests run: an obedient handler, a curious server, an unguarded provider."""

from __future__ import annotations

import os
import time
from typing import Any

from nvflare.fuel.f3.cellnet.defs import CellChannel
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.private.admin_defs import Message as AdminMessage

from databazaar.federation.frames import Channel
from databazaar.federation.site import MarketSite, ProviderSite


def handler(payload: bytes) -> bytes:
    """`WHAT NAME …` makes the provider of that name behave badly; everything else is echoed."""
    me = os.environ["PARTY"]
    words = payload[:100].split()
    if len(words) > 1 and words[1].decode(errors="replace") == me:
        match words[0]:
            case b"hang":
                time.sleep(float(words[2]))
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
    """A provider without our guard, so that FLARE's own policy has to do the refusing."""

    def _only_questions(self, message: Any) -> Any:
        return None
