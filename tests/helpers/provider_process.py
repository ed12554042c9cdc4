"""A provider of these tests in a process of its own: `python -m provider_process KIT MODULE:FUNCTION [MAX_BYTES]`."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import threading
from pathlib import Path

from databazaar.federation.frames import MAX_BYTES
from databazaar.federation.provider import ProviderNode


def main(kit: str, handler: str, max_bytes: str = str(MAX_BYTES)) -> None:
    module, _, name = handler.partition(":")
    function = getattr(importlib.import_module(module), name)
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # A test that cuts a connection waits until it is made again, which would be after 2, 4, 8, 16 and 30 seconds.
    with ProviderNode(Path(kit), lambda payload: function(bytes(payload)), int(max_bytes), longest_pause=0.5):
        done.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
