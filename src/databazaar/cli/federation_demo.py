"""The fraud story over a federation on loopback: one server, four banks, real certificates, all gone at the end."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from databazaar.cli import play
from databazaar.cli.interrupts import on_signal
from databazaar.config.jobs import job_of
from databazaar.config.market_file import parse_market
from databazaar.data.fraud import TARGET, Bank, fraud_banks
from databazaar.errors import BazaarError
from databazaar.federation import enrolment, server

BANKS = ("harbour-bank", "meadow-credit-union", "alpine-business-bank", "coastal-direct")


def play_demo(out: Path | None, budget: int, seed: int, output: play.Output) -> None:
    story = fraud_banks(seed)
    banks = [bank for bank in story.banks if bank.id in BANKS]

    def say(text: str) -> None:
        if output.full:
            typer.echo(text, err=True)

    with (
        on_signal(signal.SIGTERM, signal.default_int_handler),  # ended politely, it leaves nothing running either
        tempfile.TemporaryDirectory(prefix="bazaar-") as name,
        contextlib.ExitStack() as stack,
    ):
        root = Path(name)
        say("the operator makes the market's certificates and starts its server")
        market = enrolment.init_market(root / "federation", "demo", "localhost", _free_port()).folder
        stack.callback(server.down, market)
        server.up(market)
        for bank in banks:
            say(f"{bank.id} makes its key, is certified, and joins with its own file")
            stack.callback(_stop, _join(root, market, bank))
        story.holdout.to_csv(root / "holdout.csv", index=False)
        job = job_of(parse_market(_market(budget, seed), "the demo"), root)
        job = replace(job, notes={bank.id: bank.note for bank in banks})
        say("the consumer's bank runs its market, as it would at home")
        try:
            play.play(job, out, "federation-demo", output)
        finally:
            say("the banks leave, and the server stops")


def _market(budget: int, seed: int) -> dict[str, Any]:
    return {
        "market": {"name": "Fraud model over a federation", "budget": budget, "per_round": 4, "seed": seed},
        "data": {"holdout": "holdout.csv", "target": TARGET},
        "model": {"kind": "mlp", "hidden": [16]},
        "oracle": {"step": 0.05},
        "engine": {"kind": "federated"},
        "federation": {"folder": "federation", "wait": 120.0},
        "providers": [{"id": bank} for bank in BANKS],
    }


def _join(root: Path, market: Path, bank: Bank) -> subprocess.Popen[bytes]:
    kit = root / bank.id
    asked = enrolment.request(enrolment.invite(market, bank.id), kit)
    enrolment.complete(kit, enrolment.sign(market, asked))
    data = kit / "transactions.parquet"
    bank.frame.to_parquet(data, index=False)
    command = [sys.executable, "-m", "databazaar", "provider", "join", str(kit), "--data", str(data)]
    with (kit / "provider.txt").open("wb") as output:
        return subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    """Below the ports of outgoing connections, so that it stays free."""
    for port in random.sample(range(20_000, 32_000), 50):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise BazaarError("no free port was found on this machine: try again")
