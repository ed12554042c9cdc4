"""A hub without pages, in a process of its own: `python hub_script.py SETTINGS`, as JSON. It ends on SIGTERM.

Its children load this file too, and with it what tests add: faults, and reports without drawings, which take longer
than all the rest.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import signal
import sys
import threading
from pathlib import Path

import sql_faults

sql_faults.install()


def main() -> None:
    from databazaar.service.database.connection import Database
    from databazaar.service.hub import supervisor
    from databazaar.service.settings import Settings

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    supervisor.FIRST_DELAY, supervisor.LONGEST_DELAY = 0.1, 1.0
    given = json.loads(sys.argv[1])
    federation = None if given["federation"] is None else Path(given["federation"])
    settings = Settings(**{**given, "home": Path(given["home"]), "federation": federation})
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    hub = supervisor.Supervisor(settings, Database(settings.database_url))
    hub.start()
    print("ready", flush=True)
    ended.wait()
    hub.stop()


if __name__ == "__main__":
    main()
elif multiprocessing.parent_process() is not None:
    from undrawn import undraw

    undraw()
