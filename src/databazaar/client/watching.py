"""A job as it happens: the hub's events, with reconnections that lose and repeat nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from databazaar.client.sending import Sender, place, refuse, unreachable

OVER = frozenset({"settled", "refunded", "failed"})
SILENCE = 45.0
"""Seconds without a sign of the hub, which sends one every 15, after which the line is taken for dead."""


@dataclass(frozen=True)
class Seen:
    """One round of a job, or that its state has changed."""

    kind: Literal["round", "state"]
    data: dict[str, Any]


class Watching(Sender):
    def watch(self, job_id: str, since: int = 0) -> Iterator[Seen]:
        """Every round after `since` and every change of state, as they happen, until the job is over."""
        import httpx

        failures = 0
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(since)} if since else {})
            patience = httpx.Timeout(SILENCE, connect=10.0)
            try:
                with self._http.stream("GET", place("jobs", job_id, "live"), headers=headers, timeout=patience) as got:
                    if got.is_error:
                        got.read()
                    refuse(got)
                    if got.status_code == 204:
                        return
                    for event, data in events(got.iter_lines()):
                        failures = 0
                        for seen in _seen(event, data):
                            since = seen.data["round"] if seen.kind == "round" else since
                            yield seen
                            if seen.data.get("state") in OVER:
                                return
            except httpx.TransportError as failure:
                failures += 1
                if failures >= self._attempts:
                    raise unreachable(self.address, failure) from None
            time.sleep(min(5.0, 0.2 * 2**failures))


def events(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The name and the data of each event of a stream; comments, such as heartbeats, are none.

    >>> list(events([": ping", "", "event: state", "data: {", "data: }", "", "data: 1"]))
    [('state', '{\\n}')]
    """
    name, data = "message", list[str]()
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif not line:
            if data:
                yield name, "\n".join(data)
            name, data = "message", []


def _seen(event: str, data: str) -> Iterator[Seen]:
    told = json.loads(data)
    if event == "rounds":
        for one in told["rounds"]:
            yield Seen("round", one)
    elif event == "state":
        yield Seen("state", told)
