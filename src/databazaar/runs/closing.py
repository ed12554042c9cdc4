"""Closing a run that was interrupted, by its folder alone: without data, without the model, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError, LedgerError
from databazaar.ledger import Audit, Ledger, RuleBook, audit_entries
from databazaar.ledger.replay import NO_ENTRIES
from databazaar.ledger.sql import SqlStore
from databazaar.runs.folder import LAST, LAYOUT, MODEL, RunFolder
from databazaar.runs.model_card import Outline
from databazaar.runs.model_folder import CARD, WEIGHTS, read_card, read_weights
from databazaar.runs.report import Report
from databazaar.vectors import unpack


def close_run(folder: str | Path | RunFolder) -> Report:
    """Ends a run for its consumer: what is settled stays paid, the round under way is voided, the rest goes back.

    The folder then holds what every finished run leaves. A run that another process is playing is refused.
    """
    run = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
    if run.finished:
        raise BazaarError(f"{run.path} holds a finished run: there is nothing to close")
    try:
        store = run.store()
        replayed = audit_entries(store.entries(), store.snapshot(), record=False)
        if replayed.first_broken == NO_ENTRIES or (replayed.ok and not replayed.rounds):
            raise BazaarError(
                f"{run.path} has no settled round yet, so nobody is paid and there is no model: "
                f"`bazaar resume {run.path}` goes on with it, or remove the folder"
            )
        if not replayed.closed:  # else it was killed after its end, before the folder was finished
            _close(replayed, store)
        return run.finish_with(*_models(run.path, store))
    finally:
        run.dispose()


def _close(replayed: Audit, store: SqlStore) -> None:
    if not replayed.ok or replayed.terms is None or replayed.model is None:
        raise LedgerError(f"the run cannot be closed, because its ledger does not hold: {replayed.message}")
    last = replayed.scores
    assert last is not None and last.reached is not None  # a round that diverged is written together with the close
    Ledger(RuleBook.of(replayed.terms), store).close_for_consumer(replayed.model, last.reached, last.reached_loss)


def _models(folder: Path, store: SqlStore) -> tuple[NDArray[Any], Outline, NDArray[Any]]:
    """The best model's numbers, what is known beside them, and the last model's: as the last round left them, or as
    they were written before a crash."""
    written, snapshot = (folder / MODEL).parent, store.snapshot()
    outline, best = Outline(), np.zeros(0)  # of a plain vector, and of a run that an earlier version began
    if (written / CARD).exists():
        best, outline = _written(written)
    elif (folder / LAYOUT).exists():
        outline = Outline.model_validate_json((folder / LAYOUT).read_bytes())
    if snapshot is None or not snapshot.params:  # dropped once the model was written
        last = folder / LAST
        return best, outline, _written(last)[0] if (last / CARD).exists() else best
    final = unpack(snapshot.params)["w"]
    kept = unpack(snapshot.state).get("best")
    return (final if kept is None or not len(kept) else kept), outline, final


def _written(folder: Path) -> tuple[NDArray[Any], Outline]:
    card = read_card(folder)
    weights = read_weights(folder / WEIGHTS, card.model_hash)
    tensors = tuple((name, array.shape) for name, array in weights.items())
    outline = Outline(tensors=tensors, architecture=card.architecture, task=card.task)
    return np.concatenate([array.reshape(-1) for array in weights.values()]), outline
