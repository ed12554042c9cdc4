"""How long one request to all providers takes, and where the time goes.

    python benchmarks/bench_federation.py [--providers 2 4 8] [--rounds 100] [--size 1000000]

Server and providers are real processes on loopback with real certificates; the handler returns what it
got. "relay" asks nobody: the payload only goes from this process to the server's. "empty" is a round
with one byte: what gRPC and the processes cost whatever the size. The rest is moving bytes through TLS.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from databazaar.federation import enrolment, server
from databazaar.federation.grpc_transport import GrpcTransport


def echo(payload: bytes) -> bytes:
    return payload


def times(transport: GrpcTransport, names: Sequence[str], payload: bytes, rounds: int) -> tuple[float, float]:
    """p50 and p95 in milliseconds, after a warm-up."""
    took = []
    for number in range(rounds + 10):
        began = time.perf_counter()
        replies, failures = transport.request(names, payload, 60.0)
        if number >= 10:
            took.append(1e3 * (time.perf_counter() - began))
        if failures or any(reply != payload for reply in replies.values()):
            raise SystemExit(f"a round failed: {failures}")
    cuts = statistics.quantiles(took, n=20)
    return statistics.median(took), cuts[-1]


def measure(count: int, rounds: int, size: int) -> None:
    with tempfile.TemporaryDirectory(prefix="federation-") as name:
        root = Path(name)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        market = enrolment.init_market(root / "market", "benchmark", "localhost", port).folder
        names = [f"p{i}" for i in range(count)]
        for provider in names:
            asked = enrolment.request(enrolment.invite(market, provider), root / provider)
            enrolment.complete(root / provider, enrolment.sign(market, asked))
        running = []
        began = time.perf_counter()
        server.up(market)
        ready = time.perf_counter() - began
        try:
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
            for provider in names:
                command = [sys.executable, "-m", "databazaar.federation.provider", str(root / provider)]
                with (root / provider / "provider.txt").open("wb") as output:
                    running.append(
                        subprocess.Popen(
                            [*command, "--handler", f"{Path(__file__).stem}:echo"],
                            env=environment,
                            stdout=output,
                            stderr=output,
                        )
                    )
            with GrpcTransport(market) as transport:
                if missing := transport.wait_for(names, 120):
                    raise SystemExit(f"not connected: {missing}")
                joined = time.perf_counter() - began - ready
                payload = os.urandom(size)
                p50, p95 = times(transport, names, payload, rounds)
                empty, _ = times(transport, names, b"x", rounds)
                relay, _ = times(transport, [], payload, rounds)
            print(
                f"{count} providers: p50 {p50:.0f} ms, p95 {p95:.0f} ms"
                f" = relay {relay:.1f} + empty {empty:.1f} + bytes {max(0.0, p50 - relay - empty):.0f} ms;"
                f" server up in {ready:.1f} s, providers joined in {joined:.1f} s",
                flush=True,
            )
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
            server.down(market)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--providers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--size", type=int, default=1_000_000)
    given = parser.parse_args()
    for count in given.providers:
        measure(count, given.rounds, given.size)


if __name__ == "__main__":
    main()
