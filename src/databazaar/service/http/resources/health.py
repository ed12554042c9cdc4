"""How the hub is: `/healthz` for those who keep it running, `/metrics` for Prometheus."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from databazaar.service.database.tables import Job, JournalHead, Outgoing
from databazaar.service.database.upgrade import current, newest
from databazaar.service.errors import DeniedError
from databazaar.service.http.calls import Reading
from databazaar.service.http.context import InWeb, Web
from databazaar.service.http.routes import Routes
from databazaar.service.lifecycle import JobState

routes = Routes("health")
routes.api = APIRouter(tags=["health"])
log = logging.getLogger(__name__)
BOUNDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Health(BaseModel):
    """`supervisor` is None where another process runs the jobs."""

    ok: bool
    database: bool
    schema_current: bool
    supervisor: bool | None


@routes.api.get("/healthz", response_model=Health)
def healthz(web: InWeb, response: Response) -> Health:
    """Whether the database answers and fits this version, and the jobs' supervisor is at work; 503 where not."""
    try:
        fits, reachable = current(web.database) == newest(), True
    except SQLAlchemyError as error:
        log.warning("the database does not answer: %s", type(error).__name__)
        fits = reachable = False
    works = None if web.supervisor is None else web.supervisor.alive
    health = Health(ok=fits and works is not False, database=reachable, schema_current=fits, supervisor=works)
    response.status_code = 200 if health.ok else 503
    return health


@routes.api.get("/metrics", response_class=PlainTextResponse)
def metrics(call: Reading) -> str:
    """Counts in the text format of Prometheus. For the operator: give Prometheus a token of its organisation with
    the right `read` alone."""
    if not call.caller.operates:
        raise DeniedError("only the market's operator may do this")
    call.caller.require("read")
    return "\n".join([*call.web.counts.lines(), *_of_market(call.web)]) + "\n"


def _of_market(web: Web) -> list[str]:
    with web.database.read() as session:
        jobs = dict(session.execute(select(Job.state, func.count()).group_by(Job.state)).all())
        head = session.scalar(select(JournalHead.seq))
        waiting = select(func.count()).where(Outgoing.delivered_at.is_(None), Outgoing.given_up_at.is_(None))
        parcels = session.scalar(waiting)
    return [
        "# TYPE bazaar_jobs gauge",
        *(sample("bazaar_jobs", jobs.get(state, 0), state=state) for state in JobState),
        "# TYPE bazaar_journal_entries gauge",
        sample("bazaar_journal_entries", (-1 if head is None else head) + 1),
        "# TYPE bazaar_outbox_waiting gauge",
        sample("bazaar_outbox_waiting", parcels or 0),
        "# TYPE bazaar_viewers gauge",
        sample("bazaar_viewers", web.broadcaster.viewers),
    ]


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
    escaped = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    quoted = ",".join(f'{key}="{text.translate(escaped)}"' for key, text in labels.items())
    return f"{name}{{{quoted}}} {value}" if quoted else f"{name} {value}"
