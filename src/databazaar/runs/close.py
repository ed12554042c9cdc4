"""Closing a run that was interrupted, by its folder alone: without data, without the model, without torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError, LedgerError
from databazaar.files import read_plain
from databazaar.ledger import Audit, Ledger, RuleBook, audit_entries
from databazaar.ledger.notary import NO_ENTRIES
from databazaar.ledger.sql import SqlStore
from databazaar.runs.folder import RunFolder
from databazaar.runs.model_folder import CARD, Outline, flattened, read_model
from databazaar.runs.notes import LAST, LAYOUT, MODEL
from databazaar.runs.report import Report


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
                f"`bazaar run {run.path}` goes on with it, or remove the folder"
            )
        if not replayed.closed:  # else it was killed after its end, before the folder was finished
            _close(replayed, store)
        return run.finish(*_models(run.path, store))
    finally:
        run.dispose()


def _close(replayed: Audit, store: SqlStore) -> None:
    if not replayed.ok or replayed.terms is None or replayed.model is None:
        raise LedgerError(f"the run cannot be closed, because its ledger does not hold: {replayed.message}")
    last = replayed.scores
    assert last is not None
    assert replayed.state is not None
    rules = RuleBook.of(replayed.terms)
    returned = rules.returned_at_close(replayed.state)
    Ledger(rules, store).close_for_consumer(replayed.model, last.reached, last.reached_loss, returned)


def _models(folder: Path, store: SqlStore) -> tuple[NDArray[Any], Outline, NDArray[Any]]:
    """The best model's numbers, its outline, and the last model's numbers, from the snapshot or the model folders."""
    written, snapshot = (folder / MODEL).parent, store.snapshot()
    outline, best = Outline(), np.zeros(0)  # of a plain vector
    if os.path.lexists(written / CARD):
        best, outline = _written(written, folder)
    elif os.path.lexists(folder / LAYOUT):
        outline = _noted(folder / LAYOUT)
    final = None if snapshot is None else snapshot.parameters
    if snapshot is None or final is None:  # dropped once the model was written
        last = folder / LAST
        return best, outline, _written(last, folder)[0] if os.path.lexists(last / CARD) else best
    kept = snapshot.arrays().get("best")
    return (final if kept is None or not len(kept) else kept), outline, final


def _noted(path: Path) -> Outline:
    try:
        return Outline.model_validate_json(read_plain(path, path.parent))
    except (OSError, ValueError):
        raise BazaarError(f"{path} cannot be read: put the old file back, or resume the run instead") from None


def _written(folder: Path, within: Path) -> tuple[NDArray[Any], Outline]:
    stored = read_model(folder, within)
    tensors = tuple((name, array.shape) for name, array in stored.weights.items())
    outline = Outline(tensors=tensors, architecture=stored.card.architecture, task=stored.card.task)
    return flattened(stored.weights), outline
