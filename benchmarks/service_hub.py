"""A real hub in a process of its own: `python service_hub.py SETTINGS PROFILE`, as JSON. It ends on SIGTERM.

Its runners load this file too, and say with each round at which second it was over. With a file for the profile, the
hub looks a hundred times a second at what its threads are doing, and writes down which calls were at work most often.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

EVERY, SHOWN, DEEP, WRITTEN = 0.01, 60, 4, 500
IDLE = frozenset({"select", "poll", "wait", "_wait", "_recv", "get", "accept", "epoll", "run_forever", "_look"})
"""Functions in which a thread waits."""


def note_moments() -> None:
    """From here on what a runner tells of a round has the moment, too, and what the runner had worked by then."""
    from databazaar.service.hub import progress

    line = progress._line
    progress._line = lambda told: line({**told, "at": time.time(), "cpu": time.process_time()})


class Sampler:
    """Counts, by thread, the innermost calls that are not waiting."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: Counter[str] = Counter()
        self.looks = 0
        threading.Thread(target=self._look, name="sampler", daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(EVERY)
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            self.looks += 1
            for ident, frame in sys._current_frames().items():
                if frame.f_code.co_name not in IDLE:
                    name = names.get(ident, "?").partition("_")[0].rstrip("-0123456789 ")
                    self.found[f"{name}: {_path(frame)}"] += 1
            if self.looks % WRITTEN == 0:
                self._write()

    def _write(self) -> None:
        lines = [f"{count / self.looks:7.1%}  {where}" for where, count in self.found.most_common(SHOWN)]
        self.file.write_text("\n".join(lines) + "\n")


def _path(frame: FrameType | None) -> str:
    """The innermost calls, and the innermost of ours where it is none of them."""
    calls: list[str] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if len(calls) < DEEP or "databazaar" in file:
            calls.append(f"{Path(file).stem}.{frame.f_code.co_name}")
            if "databazaar" in file:
                break
        frame = frame.f_back
    return " < ".join(calls)


def serve(given: dict[str, Any], profile: str) -> None:
    import uvicorn

    from databazaar.service.database.connection import Database
    from databazaar.service.http.app import create_app
    from databazaar.service.http.logs import write_logs
    from databazaar.service.settings import Settings

    settings = Settings(**{**given, "home": Path(given["home"])})
    write_logs()
    app = create_app(settings, Database(settings.database_url))
    port = int(settings.address.rpartition(":")[2])
    config = uvicorn.Config(app, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=5)
    if profile:
        Sampler(Path(profile))
    server = uvicorn.Server(config)
    app.state.web.tailers.ending = lambda: server.should_exit
    server.run()


if __name__ == "__mp_main__":
    note_moments()
if __name__ == "__main__":
    serve(json.loads(sys.argv[1]), *sys.argv[2:])
