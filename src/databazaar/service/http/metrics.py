"""Counts of the hub, as Prometheus reads them."""

from __future__ import annotations

import threading
from collections import defaultdict

BOUNDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Counts:
    """What has been asked since the start: by method, route's template and status; and how long it took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str, int], int] = defaultdict(int)
        self._took: dict[float, int] = defaultdict(int)
        self._seconds = 0.0

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds += seconds
            for bound in BOUNDS:
                self._took[bound] += seconds <= bound

    def lines(self) -> list[str]:
        """
        >>> counts = Counts()
        >>> counts.add("GET", "/v1/jobs", 200, 0.004)
        >>> counts.lines()[1]
        'bazaar_http_requests_total{method="GET",route="/v1/jobs",status="200"} 1'
        """
        with self._lock:
            requests, took, seconds = dict(self._requests), dict(self._took), self._seconds
        name = "bazaar_http_request_seconds"
        return [
            "# TYPE bazaar_http_requests_total counter",
            *(
                sample("bazaar_http_requests_total", count, method=method, route=route, status=str(status))
                for (method, route, status), count in sorted(requests.items())
            ),
            f"# TYPE {name} histogram",
            *(sample(f"{name}_bucket", took.get(bound, 0), le=str(bound)) for bound in BOUNDS),
            sample(f"{name}_bucket", sum(requests.values()), le="+Inf"),
            sample(f"{name}_sum", round(seconds, 6)),
            sample(f"{name}_count", sum(requests.values())),
        ]


def sample(name: str, value: float, **labels: str) -> str:
    """One line of the text format.

    >>> sample("jobs", 2, state='a"b')
    'jobs{state="a\\\\"b"} 2'
    """
    quoted = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{quoted}}} {value}" if quoted else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
