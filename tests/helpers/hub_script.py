"""A hub without pages, in a process of its own: `python hub_script.py SETTINGS`, as JSON. It ends on SIGTERM.

Its children load this file too, and with it the faults that tests add.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from pathlib import Path

import sql_faults

sql_faults.install()


def main() -> None:
    from databazaar.service.database.connection import Database
    from databazaar.service.hub.supervisor import Supervisor
    from databazaar.service.settings import Settings

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    given = json.loads(sys.argv[1])
    settings = Settings(**{**given, "home": Path(given["home"])})
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    supervisor = Supervisor(settings, Database(settings.database_url))
    supervisor.start()
    print("ready", flush=True)  # noqa: T201
    signal.sigwait([signal.SIGTERM])
    supervisor.stop()


if __name__ == "__main__":
    main()
