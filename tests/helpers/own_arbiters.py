"""A hub in this process, and a consumer beside it that runs its own arbiter over HTTP."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from databazaar.cli.own_arbiter import playing_own
from databazaar.client.own_arbiter import HubEngine, NotaryClient
from databazaar.config.play import Playing
from databazaar.engines import Ask, Replies
from databazaar.federation.messages import encode_request
from databazaar.market.arbiter import Arbiter
from databazaar.market.run import Progress
from databazaar.runs.folder import RunFolder
from databazaar.service import credentials, jobs, submission
from databazaar.service.database.connection import Database
from databazaar.service.database.tables import Job
from databazaar.service.http.app import create_app
from databazaar.service.hub.children import LOADED
from databazaar.service.notary.commands import Notaries
from databazaar.service.settings import Settings
from desk_market import SPEC, DeskMarket, desk_market, table

HOLDOUT = table(99, rows=80)


@dataclass
class OwnMarket:
    """The desk's small market behind HTTP at `address`; `token` is the buyer's."""

    market: DeskMarket
    address: str
    token: str
    notaries: Notaries

    def job(self, mode: str = "own", name: str = "Own", **market: Any) -> str:
        """A funded job over two providers."""
        spec = {**SPEC, "market": {**SPEC["market"], **market}}
        caller, settings = self.market["buyer"], self.market.settings
        with self.market.database.begin() as session:
            files = {} if mode == "own" else {"holdout": self.market.upload(session, "buyer", HOLDOUT)}
            offers = ["north-sales", "south-sales"]
            job = jobs.draft(session, caller, settings, name=name, spec=spec, files=files, offers=offers, mode=mode)
            submission.submit(session, caller, settings, job.id)
            return jobs.fund(session, caller, job.id).id

    def found(self, job_id: str) -> Job:
        with self.market.database.read() as session:
            return session.get_one(Job, job_id)

    def notary(self, job_id: str, **how: Any) -> NotaryClient:
        return NotaryClient(self.address, self.token, job_id, **how)

    def hub_folder(self, job_id: str) -> RunFolder:
        return RunFolder(self.market.settings.run_folder(job_id))

    @contextmanager
    def playing(self, job_id: str, folder: Path) -> Iterator[Playing]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "holdout.csv").write_bytes(HOLDOUT)
        files = {"holdout": folder / "holdout.csv"}
        with self.notary(job_id) as notary, playing_own(notary, folder / "run", files) as playing:
            yield playing


@contextmanager
def own_market(database: Database, settings: Settings) -> Iterator[OwnMarket]:
    market = desk_market(database, settings)
    with database.begin() as session:
        market.offer(session, "north", seed=1)
        market.offer(session, "south", seed=2, price=4)
        market.pay_in(session, "buyer", 10_000)
        _, token = credentials.issue_token(session, market["buyer"], label="arbiter", scopes=["read", "jobs"], days=1)
    with serving(settings, database) as (address, app):
        yield OwnMarket(market, address, token, app.state.web.notaries)


@contextmanager
def serving(settings: Settings, database: Database) -> Iterator[tuple[str, FastAPI]]:
    """The hub's app behind a real server, without a supervisor; its address, and itself."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        app = create_app(replace(settings, address=address), database, supervise=False)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield address, app
        finally:
            server.should_exit = True
            thread.join(30)


def started(work: Callable[..., None], *given: Any) -> BaseProcess:
    """A process of its own, from the server that the hub's processes come from."""
    process = multiprocessing.get_context("forkserver").Process(target=work, args=given)
    process.start()
    return process


def serve(settings: Settings, database: str, port: int) -> None:
    """A hub until it is killed."""
    LOADED[:] = ["databazaar.service.notary.responder"]
    settings = replace(settings, address=f"http://127.0.0.1:{port}")
    app = create_app(settings, Database(database), supervise=False)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


def play_until(port: int, token: str, job_id: str, folder: Path, rounds: int, victim: int) -> None:
    """Plays a job, and kills a process after so many rounds: this one, where no victim is named."""
    victim = victim or os.getpid()

    def tell(progress: Progress) -> None:
        if progress.round == rounds:
            os.kill(victim, signal.SIGKILL)

    notary = NotaryClient(f"http://127.0.0.1:{port}", token, job_id)
    with playing_own(notary, folder / "run", {"holdout": folder / "holdout.csv"}) as playing:
        playing.settle(tell)


class EnoughError(Exception):
    """Nothing more is played."""


def stop_before_asking(playing: Playing) -> None:
    """Plays until the first round is reserved at the hub, and ends with an EnoughError before anybody is asked."""
    engine = playing.arbiter.engine

    def enough(ask: Ask) -> Replies:
        raise EnoughError

    engine.query = enough  # type: ignore[method-assign]
    try:
        playing.settle()
    finally:
        del engine.query


def engine_of(arbiter: Arbiter) -> HubEngine:
    assert isinstance(arbiter.engine, HubEngine)
    return arbiter.engine


def asked(own: OwnMarket, job: str, arbiter: Arbiter, names: list[str], **other: Any) -> Any:
    """A question of the first round to the hub that differs from the right one in these fields, or by its `params`."""
    update, params = other.pop("update", True), other.pop("params", arbiter.consumer.initial_parameters())
    right = engine_of(arbiter)._request(0, 3, "update" if update else "describe").model_copy(update=other)
    with own.notary(job, attempts=1) as notary:
        return notary.request(names, encode_request(right, params if update else None), 30.0)
