"""One ask of a large model beside the time that TLS alone needs for its bytes, and the memory of everybody on the way.

    python benchmarks/bench_payloads.py [--megabytes 1 20 100] [--rounds 5]

An ask is what an arbiter does: parameters to a provider in a process of its own, over the market's server,
and an update of the same size back, signed by the provider and checked. "TLS" is a bare socket on loopback with the
same certificates and settings, in two processes, that sends as many bytes there and back, and does nothing else. Both
take turns in one run. Memory is what a process takes at its highest during an ask (VmHWM) beyond what it had before the
first large one, in bytes and in copies of the vector; for the arbiter, beyond the model that it asks about. On a busy
machine look at the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from databazaar.engines.protocol import Ask
from databazaar.federation import enrolment, server
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.grpc_transport import GrpcTransport
from databazaar.federation.messages import OracleMessage, TaskMessage
from databazaar.federation.provider import ProviderNode
from databazaar.federation.signatures import MarketKeys, Signer
from databazaar.federation.tls import client_context
from databazaar.federation.worker import ProviderWorker

ORACLE = OracleMessage(kind="full-gradient", step=0.3, batch_size=1, epochs=1, momentum=0.0)
TASK = TaskMessage(model=None, loss="squared-error", oracle=ORACLE, table=None)
PIECE = 1024 * 1024


def turned(w: Any) -> Any:
    """A provider's answer, in place: its own memory is not what is measured."""
    return np.negative(w, out=w)


def provide(kit: Path) -> None:
    """The provider's process, until it is ended."""
    torch.set_num_threads(1)
    worker = ProviderWorker("p0", turned, signer=Signer.of_kit(kit))
    with ProviderNode(kit, worker):
        threading.Event().wait()


@dataclass
class Party:
    """A process on the way."""

    name: str
    process: psutil.Process
    before: int = 0

    def rest(self) -> None:
        """What it has now it has without any large message."""
        self.before = int(self.process.memory_info().rss)

    def forget(self) -> None:
        """From here on its peak counts."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def beyond(self) -> int:
        """Bytes at its highest beyond what it had."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        return max(0, 1024 * peak - self.before)


@contextlib.contextmanager
def federation(root: Path) -> Iterator[tuple[Path, list[Party]]]:
    """A market with one provider, and the processes that take part."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    market = enrolment.init_market(root / "market", "benchmark", "localhost", port).folder
    asked = enrolment.request(enrolment.invite(market, "p0"), root / "p0")
    enrolment.complete(root / "p0", enrolment.sign(market, asked))
    pid = server.up(market)
    command = [sys.executable, __file__, "--provide", str(root / "p0")]
    with (root / "p0" / "provider.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        with GrpcTransport(market) as transport:
            if transport.wait_for(["p0"], 120):
                raise SystemExit("the provider did not connect")
        provider = psutil.Process(process.pid)
        yield (
            market,
            [
                Party("arbiter", psutil.Process()),
                Party("server", psutil.Process(pid)),
                Party("provider", provider),
            ],
        )
    finally:
        process.terminate()
        process.wait()
        server.down(market)


def _receive(secure: Any, size: int) -> None:
    piece = memoryview(bytearray(PIECE))
    while size:
        size -= secure.recv_into(piece[: min(size, PIECE)])


def _send(secure: Any, data: memoryview) -> None:
    for at in range(0, len(data), PIECE):
        secure.sendall(data[at : at + PIECE])


def _far_end(startup: Path, port: int) -> None:
    context = client_context(enrolment.load_kit(startup.parent))
    with (
        socket.create_connection(("localhost", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        while size := int.from_bytes(secure.recv(8), "big"):
            _receive(secure, size)
            _send(secure, memoryview(bytes(size)))


@contextlib.contextmanager
def bare_tls(market: Path, kit: Path) -> Iterator[Any]:
    """A connection with the market's certificates to a process that sends back as much as it gets."""
    startup = market / "server" / "startup"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=startup / "rootCA.pem")
    context.load_cert_chain(startup / "server.crt", startup / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
        far = multiprocessing.get_context("spawn").Process(target=_far_end, args=(kit / "startup", port))
        far.start()
        plain, _ = listener.accept()
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(plain, server_side=True) as secure:
            yield secure
            secure.sendall(bytes(8))
        far.join()


def measure(market: Path, parties: list[Party], tls: Any, megabytes: float, rounds: int) -> None:
    count = int(megabytes * 1e6) // 4
    params = torch.from_numpy(np.random.default_rng(1).standard_normal(count, dtype=np.float32))
    own = {"arbiter": 4 * count}
    data = params.numpy().data.cast("B")
    asks, bare, peaks = [], [], dict.fromkeys([party.name for party in parties], 0)
    with GrpcTransport(market, "benchmark") as transport:
        engine = FederatedEngine(TASK, ["p0"], transport, deadline=120.0, keys=MarketKeys.of(market))
        for number in range(rounds + 1):
            for party in parties:
                party.forget()
            began = time.perf_counter()
            replies = engine.query(Ask(params, [0], number, 7))
            asks.append(time.perf_counter() - began)
            for party in parties:
                peaks[party.name] = max(peaks[party.name], party.beyond() - own.get(party.name, 0))
            if replies.failures or not torch.equal(replies.updates[0].neg_(), params):
                raise SystemExit(f"a round failed: {replies.failures}")
            del replies
            began = time.perf_counter()
            tls.sendall(len(data).to_bytes(8, "big"))
            _send(tls, data)
            _receive(tls, len(data))
            bare.append(time.perf_counter() - began)
    if megabytes < 1:
        return
    ask, alone = statistics.median(asks[1:]), statistics.median(bare[1:])
    print(f"{megabytes:g} MB there and back: ask {ask:.2f} s, TLS alone {alone:.2f} s, {ask / alone:.1f} times")
    for name, peak in peaks.items():
        print(f"    {name:<17} {peak / 1e6:6.0f} MB beyond what it had, {peak / len(data):5.1f} copies", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[1, 20, 100])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--provide", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.provide is not None:
        return provide(given.provide)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="payloads-") as name:
        root = Path(name)
        with federation(root) as (market, parties), bare_tls(market, root / "p0") as tls:
            measure(market, parties, tls, 0.1, 3)
            for party in parties:
                party.rest()
            for megabytes in given.megabytes:
                measure(market, parties, tls, megabytes, given.rounds)


if __name__ == "__main__":
    main()
