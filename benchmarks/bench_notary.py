"""The hub as notary: what a round costs it to replay, to keep for good, and to be told over HTTP.

.venv/bin/python benchmarks/bench_notary.py
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn

from databazaar.cli.own_arbiter import playing_own
from databazaar.client.own_arbiter import NotaryClient as Hub
from databazaar.client.own_arbiter import in_steps
from databazaar.ledger import Entry, Notary
from databazaar.runs.folder import RunFolder
from databazaar.service import credentials, files, jobs, journal, members, offers, submission
from databazaar.service.database.connection import Database
from databazaar.service.database.upgrade import upgrade
from databazaar.service.http.app import create_app
from databazaar.service.http.security_limits import Buckets, Limits
from databazaar.service.notary.run import NotarisedRun
from databazaar.service.policy import Policy
from databazaar.service.settings import Settings
from long_ledgers import make


def replaying(rounds: int, providers: int, per_round: int) -> None:
    """One process, no network: an entry after the other, a round as a step that can be taken back, and kept."""
    with tempfile.TemporaryDirectory() as place:
        make(Path(place) / "run", rounds, providers, per_round, "osmd")
        entries = list(RunFolder(Path(place) / "run").entries())
        steps = in_steps(entries, 1)
        began = time.process_time()
        Notary(entries)
        replayed = time.process_time() - began
        notary, began = Notary(), time.process_time()
        for step in steps:
            notary = notary.after(step)
        stepped = time.process_time() - began
        run = NotarisedRun.begin(Path(place) / "job" / "run", "ab" * 16, "bench")
        began = time.perf_counter()
        for step in steps:
            _hand_out(run, step)
            run.take(step)
        kept = time.perf_counter() - began
        run.dispose()
    figures = [f"{1000 * seconds / rounds:6.2f}" for seconds in (replayed, stepped, kept)]
    print(f"{rounds:6,} rounds, n = {providers:4}, K = {per_round:3}: " + " ".join(figures) + " ms a round")


def _hand_out(run: NotarisedRun, step: Sequence[Entry]) -> None:
    """As after an answer, in memory alone: what it costs to keep updates depends on the model."""
    settled = [entry for entry in step if entry.kind in ("post", "void")]
    run.replies = replace(
        run.replies,
        answers={entry.provider or "": b"" for entry in settled if entry.kind == "post"},
        failures={entry.provider or "": entry.body["reason"] for entry in settled if entry.kind == "void"},
    )


def table(seed: int, rows: int) -> bytes:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 8))
    late = (x @ rng.normal(size=8) > 0).astype(int)
    lines = [",".join([*(f"c{i}" for i in range(8)), "late"])]
    lines += [",".join([*(f"{value:.4f}" for value in row), str(label)]) for row, label in zip(x, late, strict=True)]
    return "\n".join(lines).encode()


def serve(settings: Settings, port: int) -> None:
    database, patient = Database(settings.database_url), Buckets(per_second=1e6, burst=1e6)
    app = create_app(settings, database, supervise=False, limits=replace(Limits(), token=patient))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


def over_http(rounds: int, providers: int, hidden: int) -> None:
    """A whole job with a hub in a process of its own; the consumer's part is in this one."""
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as found:
        place, port = Path(name), found.getsockname()[1]
        settings = Settings(home=place / "hub", address=f"http://127.0.0.1:{port}", cash="test")
        token, job_id = _market(settings, rounds, providers, hidden)
        (place / "holdout.csv").write_bytes(table(99, 500))
        found.close()
        hub = multiprocessing.get_context("spawn").Process(target=serve, args=(settings, port))
        hub.start()
        try:
            taken = _played(Hub(settings.address, token, job_id), place)
        finally:
            hub.kill()
            hub.join()
    for what, seconds in taken.items():
        low, high = statistics.median(seconds), float(np.quantile(seconds, 0.99))
        print(f"  {what:16} {1000 * low:7.1f} ms, 99 % {1000 * high:7.1f} ms, {len(seconds)} times")


def _played(hub: Hub, place: Path) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {"a round's entries": [], "a question": [], "a whole round": []}
    hub.report = _timed(hub.report, taken["a round's entries"])  # type: ignore[method-assign]
    hub.request = _timed(hub.request, taken["a question"])  # type: ignore[method-assign]
    last = [0.0]

    def tell(_: object) -> None:
        now = time.perf_counter()
        taken["a whole round"] += [now - last[0]] if last[0] else []
        last[0] = now

    with playing_own(hub, place / "run", {"holdout": place / "holdout.csv"}) as playing:
        playing.settle(tell)
    return {what: seconds[2:] for what, seconds in taken.items()}


def _timed(call: Callable[..., Any], taken: list[float]) -> Callable[..., Any]:
    def timed(*given: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*given)
        finally:
            taken.append(time.perf_counter() - began)

    return timed


def _market(settings: Settings, rounds: int, providers: int, hidden: int) -> tuple[str, str]:
    """A market of one consumer and one provider of many files; a token of the consumer's and its funded job."""
    settings.home.mkdir(parents=True)
    database = Database(settings.database_url)
    upgrade(database)
    with database.begin() as session:
        members.create_market(session, "Bench", "EUR")
        operator = credentials.redeem_link(session, members.make_operator(session, "Hub", "hub", "a@b.example").secret)
        callers = []
        for slug, role in (("buyer", "consumes"), ("seller", "provides")):
            given: dict[str, Any] = {"name": slug, "slug": slug, "email": f"a@{slug}.example", role: True}
            invited = members.invite(session, operator.caller, **given)
            callers.append(credentials.redeem_link(session, invited.secret).caller)
        buyer, seller = callers
        policy = Policy(price=1, approval="automatic")
        slugs = []
        for number in range(providers):
            file = files.keep(session, seller, settings, "t.csv", io.BytesIO(table(number, 400)))
            told: dict[str, Any] = {
                "name": f"Table {number}",
                "slug": f"t{number}",
                "description": "",
                "policy": policy,
            }
            slugs.append(offers.make_offer(session, seller, settings, **told, file_id=file.id).slug)
        spec = {
            "market": {"budget": f"{rounds * providers / 100:.2f}", "per_round": providers, "seed": 1},
            "data": {"target": "late", "task": "classification"},
            "model": {"kind": "mlp", "hidden": [hidden]},
            "oracle": {"kind": "local-sgd", "steps": 5, "batch_size": 20},
            "sampler": {"kind": "uniform", "replacement": False},
        }
        cash = {"outside": -(10**6), journal.cash("buyer"): 10**6}
        journal.post(session, "deposit", "deposit:bench", cash)
        job = jobs.draft(session, buyer, settings, name="Bench", spec=spec, files={}, offers=slugs, mode="own")
        submission.submit(session, buyer, settings, job.id)
        jobs.fund(session, buyer, job.id)
        _, token = credentials.issue_token(session, buyer, label="bench", scopes=["read", "jobs"], days=1)
    database.dispose()
    return token, job.id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--played", type=int, default=60)
    given = parser.parse_args()
    print("replayed entry by entry, as steps that can be refused, and kept for good in SQLite:")
    for providers, per_round in ((10, 2), (10, 10), (100, 10)):
        replaying(given.rounds, providers, per_round)
    for providers, hidden in ((5, 16), (5, 2000)):
        size = 4 * (8 * hidden + hidden + 2 * hidden + 2)
        print(f"over HTTP, {providers} providers a round, a model of {size / 1000:,.0f} kB:")
        over_http(given.played, providers, hidden)


if __name__ == "__main__":
    main()
