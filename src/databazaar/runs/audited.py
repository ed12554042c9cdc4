"""What the audit of a run's folder compares beside the ledger: the files that people read and use."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from databazaar.ledger import Audit
from databazaar.runs.names import LAST, LEDGER, MODEL_SCHEMA, RUN, SUMMARY
from databazaar.runs.recipe import contradicts
from databazaar.vectors import hash_packed

if TYPE_CHECKING:
    from databazaar.runs.folder import RunFolder


def with_files(folder: RunFolder, replayed: Audit, head: str | None) -> Audit:
    """The audit of the ledger, with what the files beside it say; `head` is one that somebody noted down."""
    return replace(replayed, first_broken=_why_files_differ(folder, replayed, head)) if replayed.ok else replayed


def _why_files_differ(folder: RunFolder, audit: Audit, head: str | None) -> str | None:
    if head is not None and head != audit.head:
        return f"the ledger ends in {audit.head}, not in the head you gave: it is another ledger, or rewritten"
    if audit.terms is not None and contradicts(folder.recipe, audit.terms):
        return f"{RUN} tells of another market, consumer or data than the ledger's first entry: it was changed"
    if not folder.finished:
        return None
    if not audit.closed:
        return f"{SUMMARY} tells of a finished run, but the ledger's last entry is not its close: it was cut short"
    summary = folder.summary()
    if summary.get("ledger_head") != audit.head:
        return f"{SUMMARY} names another ledger head than the ledger's own: one of them was changed"
    old = folder.keeps_last(audit.terms.market if audit.terms is not None else "")
    kept = {folder.weights: audit.model if old else audit.delivered}
    if (folder.path / LAST).exists():
        kept[folder.path / LAST / folder.weights.name] = audit.model
    for path, model in kept.items():
        if not _holds(path, model):
            return f"{path.relative_to(folder.path)} does not hold the model that the ledger names: it was changed"
    if not _preprocessing_is_kept(folder):
        return f"{MODEL_SCHEMA} is not the preprocessing that {RUN} names: one of them was changed"
    if summary.get("ledger_seal") != seal_of(folder.path / LEDGER):
        return f"{LEDGER} is not the file that was sealed when the run closed: bytes outside its entries changed"
    return None


def _holds(weights: Path, model: str | None) -> bool:
    try:
        return hash_packed(weights.read_bytes()) == model
    except (OSError, ValueError):
        return False


def _preprocessing_is_kept(folder: RunFolder) -> bool:
    path = folder.path / MODEL_SCHEMA
    try:
        return not path.parent.exists() or json.loads(path.read_bytes()) == folder.recipe.get("schema")
    except FileNotFoundError:
        return folder.recipe.get("schema") is None
    except (OSError, ValueError):
        return False


def seal_of(ledger: Path) -> str | None:
    """The SHA-256 of the ledger's file, where it is one."""
    return hashlib.sha256(ledger.read_bytes()).hexdigest() if ledger.exists() else None
