"""What `bazaar provider join` is made of: the source of updates, the policy, and staying connected."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import typer

from databazaar.cli.screen import OneLine, say
from databazaar.errors import BazaarError
from databazaar.federation.accounts import Accounts, users_folder
from databazaar.federation.copies import only_copy
from databazaar.federation.enrolment import load_kit
from databazaar.federation.payloads import log as transfers
from databazaar.federation.pins import Pins, read_schema
from databazaar.federation.policy import Policy
from databazaar.federation.provider import ProviderNode
from databazaar.federation.receipts import ReceiptKeeper
from databazaar.federation.records import ANSWERS, AccessRecord
from databazaar.federation.signatures import Signer
from databazaar.federation.table import Table
from databazaar.federation.worker import ProviderWorker, Source, VectorOracle
from databazaar.files import lock
from databazaar.learning.kinds import MODEL_KINDS

if TYPE_CHECKING:
    from databazaar.federation.privacy import PrivateUpdates

_MOST = 1e6


def source(
    data: Path | None, oracle: str | None, kit: Path, schema: Path | None = None, schemas: int | None = None
) -> Source:
    """What answers. A file is read here, once; the schemas that it is answered by are the kit's, and as many as
    `schemas` as they come."""
    if (data is None) == (oracle is None):
        raise BazaarError("give either --data FILE or --oracle module:function: one of them answers")
    if data is not None:
        return Table.read(data.resolve(), pins(kit, schema, schemas or 1))
    for option, given in (("--schema", schema), ("--schemas", schemas)):
        if given is not None:
            raise BazaarError(f"{option} says how a file is encoded, and --oracle has none: leave {option} out")
    assert oracle is not None
    return _load(oracle)


def _load(name: str) -> VectorOracle:
    """The provider's own function, `package.module:function`, by the name that it wrote on its own command line."""
    sys.path.insert(0, str(Path.cwd()))
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        raise BazaarError(f"--oracle {name} is not found: write module:function of something installed here") from None
    if not callable(found):
        raise BazaarError(f"{name} cannot be called: name a function from parameters to update")
    function: VectorOracle = found
    return function


def policy(
    models: str,
    max_parameters: int,
    max_samples: int,
    max_memory: float,
    max_seconds: float,
    max_questions: int,
    consumers: str | None = None,
    max_accesses: int | None = None,
) -> Policy:
    kinds = tuple(kind.strip() for kind in models.split(","))
    for kind in kinds:
        if kind not in MODEL_KINDS:
            raise BazaarError(f"--models {kind} is unknown: use some of {', '.join(MODEL_KINDS)}")
    for option, value in (("memory", max_memory), ("seconds", max_seconds)):
        if not 0 < value <= _MOST:
            raise BazaarError(f"--max-{option} {value:g} is no limit: give a number up to {_MOST:g}")
    allowed = None if consumers is None else tuple(filter(None, (name.strip() for name in consumers.split(","))))
    if allowed == ():
        raise BazaarError("--consumers names nobody: leave it out to answer all, or name some with commas between them")
    work = max_parameters, max_samples, int(max_memory * 1e9), max_seconds
    return Policy(kinds, *work, max_questions, allowed, max_accesses)


def privacy(
    kit: Path,
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
        if per_consumer is not None:
            raise BazaarError(
                f"--max-epsilon-per-consumer {per_consumer:g} is a part of what all may spend: give --epsilon-cap too"
            )
        if account is not None:
            raise BazaarError(f"--account {account} is charged with differential privacy alone: give --epsilon-cap too")
        return None
    from databazaar.federation.accountant import Accountant, refuse_unfit
    from databazaar.federation.privacy import PrivateUpdates

    refuse_unfit(delta, cap, per_consumer)
    if not isinstance(source, Table):
        raise BazaarError("a callable oracle sees to its own privacy: leave --epsilon-cap out, or give --data")
    accounts = Accounts(users_folder())
    chosen = accounts.choose(source.path, source.file.digest, account)
    made = PrivateUpdates(noise, clip, Accountant(chosen.path, delta, cap, per_consumer))
    for line in filter(None, [chosen.says, f"account {chosen.name}: ε = {made.spent():.3g} of {cap:g} is spent"]):
        say(line, err=True)
    return made


def pins(kit: Path, given: Path | None, most: int = 1) -> Pins:
    """The schemas that the provider accepts; `given` becomes one of them. Says what it answers by."""
    made = Pins(load_kit(kit).folder, most)
    if given is not None and not made.admits(schema := read_schema(given)):
        made.accept(schema, "given")
    for line in made.current():
        say(f"schema {line}", err=True)
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
        receipts = ReceiptKeeper.of_kit(loaded.folder, loaded.provider, loaded.market)
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
