"""What `bazaar provider join` is made of: the source of updates, the policy, and staying connected."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path

import torch
import typer

from databazaar.cli.screen import OneLine, say
from databazaar.data.tables import read_table
from databazaar.errors import BazaarError
from databazaar.federation.onboarding import load_kit
from databazaar.federation.policy import Policy
from databazaar.federation.provider import ProviderNode, load_function
from databazaar.federation.records import ANSWERS, SCHEMA, Record
from databazaar.federation.worker import Privacy, ProviderWorker, Source, Table, VectorOracle
from databazaar.files import lock
from databazaar.learning.kinds import MODEL_KINDS


def source(data: Path | None, oracle: str | None) -> Source:
    if (data is None) == (oracle is None):
        raise BazaarError("give either --data FILE or --oracle module:function: one of them answers")
    if data is not None:
        read_table(data)
        return Table(data.resolve())
    assert oracle is not None
    return _load(oracle)


def _load(name: str) -> VectorOracle:
    """The provider's own function, by the name that it wrote on its own command line."""
    sys.path.insert(0, str(Path.cwd()))
    return load_function(name, f"--oracle {name} is not found", "parameters to update")


def policy(models: str, max_parameters: int, max_samples: int) -> Policy:
    kinds = tuple(kind.strip() for kind in models.split(","))
    for kind in kinds:
        if kind not in MODEL_KINDS:
            raise BazaarError(f"--models {kind} is unknown: use some of {', '.join(MODEL_KINDS)}")
    return Policy(kinds, max_parameters, max_samples)


def privacy(kit: Path, cap: float | None, noise: float, clip: float, delta: float) -> Privacy | None:
    if cap is None:
        return None
    from databazaar.federation.privacy import Accountant, PrivateUpdates

    return PrivateUpdates(noise, clip, Accountant(load_kit(kit).folder / "privacy.json", delta, cap))


def stay(kit: Path, source: Source, policy: Policy, privacy: Privacy | None, threads: int) -> None:
    """Answers until the process is asked to end."""
    torch.set_num_threads(threads)
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    loaded = load_kit(kit)
    with lock(loaded.folder / "invitation.json", f"another process has joined with {kit}: stop it first"):
        record = Record(loaded.folder / ANSWERS)
        if isinstance(source, Table):
            source.kept = loaded.folder / SCHEMA
        worker = ProviderWorker(loaded.provider, source, policy, record=record, privacy=privacy)
        with ProviderNode(kit, worker) as node:
            say(f"{loaded.provider} joins {loaded.market} at {loaded.host}:{loaded.port}; Ctrl-C leaves", err=True)
            while not done.wait(0.2):
                if node.connected.is_set():
                    typer.echo("connected", err=True)
                    break
            done.wait()
