"""A provider of these tests in a process of its own: `python -m provider_process KIT MODULE:FUNCTION [MAX_BYTES]`."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import threading
from pathlib import Path

from databazaar.federation.provider import ProviderNode
from databazaar.federation.wire import MAX_BYTES


def main(kit: str, handler: str, max_bytes: str = str(MAX_BYTES)) -> None:
    module, _, name = handler.partition(":")
    function = getattr(importlib.import_module(module), name)
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with ProviderNode(Path(kit), lambda payload: function(bytes(payload)), int(max_bytes)):
        done.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
