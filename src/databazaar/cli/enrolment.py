"""What `bazaar provider join` is made of: the source of updates, the policy, and staying connected."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import torch
import typer

from databazaar.cli.options import named
from databazaar.cli.screen import OneLine, say
from databazaar.errors import BazaarError
from databazaar.federation.accepted_schemas import AcceptedSchemas, read_schema
from databazaar.federation.accountant import Accountant, Accounts, refuse_unfit, users_folder
from databazaar.federation.enrolment import load_kit
from databazaar.federation.policy import Policy
from databazaar.federation.privacy import PrivateUpdates
from databazaar.federation.provider import ProviderNode, only_copy
from databazaar.federation.provider import log as transfers
from databazaar.federation.receipts import ReceiptKeeper
from databazaar.federation.records import ANSWERS, AccessRecord
from databazaar.federation.signatures import Signer
from databazaar.federation.table import Table
from databazaar.federation.worker import ProviderWorker, Source, VectorOracle
from databazaar.files import lock
from databazaar.models import MODEL_KINDS


def source(
    data: Path | None, oracle: str | None, kit: Path, schema: Path | None = None, schemas: int | None = None
) -> Source:
    """What answers: the provider's own function, or a file, which is read here, once. The schemas that a file is
    answered by are the kit's, with `schema`, and as many as `schemas` as they come."""
    if (data is None) == (oracle is None):
        raise BazaarError("give either --data FILE or --oracle module:function: one of them answers")
    if data is not None:
        pins = AcceptedSchemas(load_kit(kit).folder, schemas or 1)
        if schema is not None and not pins.admits(given := read_schema(schema)):
            pins.accept(given, "given")
        for line in pins.current():
            say(f"schema {line}", err=True)
        return Table.read(data.resolve(), pins)
    for option, chosen in (("--schema", schema), ("--schemas", schemas)):
        if chosen is not None:
            raise BazaarError(f"{option} says how a file is encoded, and --oracle has none: leave {option} out")
    sys.path.insert(0, str(Path.cwd()))
    module, _, attribute = (oracle or "").partition(":")
    try:
        found: VectorOracle = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        raise BazaarError(
            f"--oracle {oracle} is not found: write module:function of something installed here"
        ) from None
    if not callable(found):
        raise BazaarError(f"{oracle} cannot be called: name a function from parameters to update")
    return found


def policy(models: str, consumers: str | None = None, **limits: Any) -> Policy:
    kinds = tuple(named(models, "--models", MODEL_KINDS, "kinds"))
    allowed = None if consumers is None else tuple(filter(None, (name.strip() for name in consumers.split(","))))
    if allowed == ():
        raise BazaarError("--consumers names nobody: leave it out to answer all, or name some with commas between them")
    return Policy(kinds, consumers=allowed, **limits)


def privacy(
    source: Source,
    cap: float | None,
    noise: float,
    clip: float,
    delta: float,
    account: str | None,
    per_consumer: float | None = None,
) -> PrivateUpdates | None:
    """What answers with differential privacy, charged to the account of the data; None without a cap."""
    if cap is None:
        for option, given in (("--max-epsilon-per-consumer", per_consumer), ("--account", account)):
            if given is not None:
                raise BazaarError(f"{option} {given} is for answers with differential privacy: give --epsilon-cap too")
        return None
    refuse_unfit(delta, cap, per_consumer)
    if not isinstance(source, Table):
        raise BazaarError("a callable oracle sees to its own privacy: leave --epsilon-cap out, or give --data")
    path, says = Accounts(users_folder()).choose(source.path, source.file.digest, account)
    made = PrivateUpdates(noise, clip, Accountant(path, delta, cap, per_consumer))
    for line in filter(None, [says, f"account {path.stem}: ε = {made.accountant.spent:.3g} of {cap:g} is spent"]):
        say(line, err=True)
    return made


def stay(
    kit: Path, source: Source, policy: Policy, privacy: PrivateUpdates | None, threads: int, at_once: int = 1
) -> None:
    """Answers until the process is asked to end."""
    if at_once > 1 and not callable(source):
        raise BazaarError(
            f"--at-once {at_once} is for an --oracle of your own: a file is answered one question at a time"
        )
    torch.set_num_threads(threads)
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    transfers.setLevel(logging.INFO)
    loaded = load_kit(kit)
    otherwise = f"another process has joined with {kit}: stop it first"
    with lock(loaded.folder / "invitation.json", otherwise), only_copy(loaded.folder / "startup" / "client.key"):
        record = AccessRecord(loaded.folder / ANSWERS)
        signer = Signer.of_kit(loaded.folder)
        receipts = ReceiptKeeper(loaded.folder, loaded.provider, loaded.market)
        worker = ProviderWorker(
            loaded.provider, source, policy, record=record, privacy=privacy, signer=signer, receipts=receipts
        )
        with ProviderNode(kit, worker, at_once=at_once) as node:
            say(f"{loaded.provider} joins {loaded.market} at {loaded.host}:{loaded.port}; Ctrl-C leaves", err=True)
            while not done.wait(0.2):
                if node.connected.is_set():
                    typer.echo("connected", err=True)
                    break
            done.wait()
