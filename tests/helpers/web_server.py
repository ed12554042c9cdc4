"""A hub's app behind a real uvicorn, in a thread of the test."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import FastAPI

from databazaar.service.http.connections import server_of
from databazaar.service.settings import Settings


@contextmanager
def bound(port: int = 0) -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens at a free port, or at this one, and its address."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        yield listening, f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def serving(app: FastAPI, listening: socket.socket) -> Iterator[None]:
    """While the block runs the app answers there. Streams that are open at its end are cut."""
    server = server_of(app, Settings(Path()), timeout_graceful_shutdown=0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def until(holds: Callable[[], bool], patience: float = 30.0) -> None:
    """Waits until something holds."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.01)


def certificate(folder: Path) -> tuple[Path, Path]:
    """One for 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "hub")])
    moment = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(moment - dt.timedelta(days=1))
        .not_valid_after(moment + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert, private = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return cert, private
