"""Closing a run that was interrupted, by its folder alone: without data, without the model, without torch."""

from __future__ import annotations

import json
import math
from pathlib import Path

from databazaar.errors import BazaarError, LedgerError
from databazaar.ledger import Audit, Ledger, RuleBook, audit_entries
from databazaar.ledger.replay import NO_ENTRIES
from databazaar.ledger.sql import SqlStore
from databazaar.runs.folder import LAYOUT, MODEL, RunFolder
from databazaar.runs.report import Report
from databazaar.vectors import pack, unpack


def close_run(folder: str | Path | RunFolder) -> Report:
    """Ends a run for its consumer: what is settled stays paid, the round under way is voided, the rest goes back.

    The folder then holds what every finished run leaves. A run that another process is playing is refused.
    """
    run = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
    if run.finished:
        raise BazaarError(f"{run.path} holds a finished run: there is nothing to close")
    try:
        store = run.store()
        replayed = audit_entries(store.entries(), store.snapshot())
        if replayed.first_broken == NO_ENTRIES or (replayed.ok and not replayed.rounds):
            raise BazaarError(
                f"{run.path} has no settled round yet, so nobody is paid and there is no model: "
                f"`bazaar resume {run.path}` goes on with it, or remove the folder"
            )
        if not replayed.closed:  # else it was killed after its end, before the folder was finished
            _close(replayed, store)
        return run.finish_with(_model(run.path, store))
    finally:
        run.dispose()


def _close(replayed: Audit, store: SqlStore) -> None:
    if not replayed.ok or replayed.terms is None or replayed.model is None:
        raise LedgerError(f"the run cannot be closed, because its ledger does not hold: {replayed.message}")
    last = replayed.history[-1]
    assert last.reached is not None  # a round that diverged is written together with the close
    Ledger(RuleBook.of(replayed.terms), store).close_for_consumer(replayed.model, last.reached, last.reached_loss)


def _model(folder: Path, store: SqlStore) -> bytes:
    """The model's file: as it was written before a crash, or from the parameters that the last round left."""
    snapshot = store.snapshot()
    if snapshot is None or not snapshot.params:
        return (folder / MODEL).read_bytes()
    if not (folder / LAYOUT).exists():  # a plain vector, or a run that an earlier version began
        return snapshot.params
    flat, named, begin = unpack(snapshot.params)["w"], {}, 0
    for name, shape in json.loads((folder / LAYOUT).read_text()):
        end = begin + math.prod(shape)
        named[name] = flat[begin:end].reshape(shape)
        begin = end
    return pack(named)
