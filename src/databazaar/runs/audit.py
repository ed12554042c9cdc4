"""What the audit of a run's folder compares beside the ledger: the files that people read and use."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from databazaar.errors import BazaarError, UncheckableError
from databazaar.files import open_plain, read_plain
from databazaar.ledger import Audit, Terms
from databazaar.runs.model_folder import CARD, LARGEST_WEIGHTS, SCHEMA, read_description, refuse_other_size
from databazaar.runs.notes import BEGUN, LAST, LEDGER, RUN, SUMMARY
from databazaar.runs.recipe import contradicts
from databazaar.vectors import Tensors, layout_digest, measure_packed

if TYPE_CHECKING:
    from databazaar.runs.folder import RunFolder

NOTED = {"schema": RUN, "profile": "profile.json"}
"""Where that stands whose digests are in the ledger's first entry, for runs from the command line."""


def told_by(audit: Audit) -> dict[str, Any]:
    """What the summary of a closed run says that follows from its ledger."""
    closing, terms, book = audit.closing, audit.terms, audit.book
    assert closing is not None and terms is not None and book is not None
    return {
        "status": closing["status"],
        "stop": closing["stop"],
        "model_hash": audit.delivered or "",
        "ledger_head": audit.head,
        "rounds": audit.rounds,
        "budget": terms.budget,
        "spent": book.spent,
        "refunded": closing["refunded"],
        "final_utility": closing["utility"],
        "final_loss": closing["loss"],
    }


def with_files(folder: RunFolder, replayed: Audit, head: str | None) -> Audit:
    """The audit of the ledger, with what the files beside it say; `head` is one that somebody noted down."""
    if not replayed.ok:
        return replayed
    if folder.finished:
        folder.summary()  # one that cannot be read can be written again, which is said
    try:
        broken = next(_contradictions(folder, replayed, head), None)
    except UncheckableError:
        raise
    except BazaarError as refused:  # a link or a pipe in a file's place, or a file that is not ours
        broken = str(refused)
    return replace(replayed, first_broken=broken)


def _contradictions(folder: RunFolder, audit: Audit, head: str | None) -> Iterator[str]:
    terms = audit.terms
    assert terms is not None  # of a ledger that holds
    if head is not None and head != audit.head:
        yield f"the ledger ends in {audit.head}, not in the head you gave: it is another ledger, or rewritten"
    if contradicts(folder.recipe, terms):
        yield f"{RUN} tells of another market, consumer or data than the ledger's first entry: it was changed"
    for name, digest in terms.notes.items():
        if noted_digest(folder, name) != digest:
            yield f"{NOTED.get(name, name)} has another {name} than the ledger's first entry names: it was changed"
    if audit.replies and (why := folder.evidence.why_replies_differ(folder.entries())) is not None:
        yield why
    if not folder.finished and folder.begun() not in ("", audit.opening):
        yield f"{BEGUN} names another first entry than the ledger's: it is another ledger"
    if folder.finished and not audit.closed:
        yield f"{SUMMARY} tells of a finished run, but the ledger's last entry is not its close: it was cut short"
    if folder.finished:
        yield from _why_summary_differs(folder, audit)
    if audit.closed:
        yield from _why_models_differ(folder, audit, terms)
    if folder.finished and folder.summary().get("ledger_seal") != seal_of(folder.path / LEDGER, folder.path):
        yield f"{LEDGER} is not the file that was sealed when the run closed: bytes outside its entries changed"


def _why_summary_differs(folder: RunFolder, audit: Audit) -> Iterator[str]:
    summary, expected = folder.summary(), told_by(audit)
    if summary.get("ledger_head") != audit.head:
        yield f"{SUMMARY} names another ledger head than the ledger's own: one of them was changed"
    for name, value in expected.items():
        if name not in summary or json.dumps(summary[name]) != json.dumps(value):  # true is not 1, and 1 is not 1.0
            yield f"{SUMMARY} says {name} = {ascii(summary.get(name))[:80]}, and the ledger {value!r}: it was changed"


def _why_models_differ(folder: RunFolder, audit: Audit, terms: Terms) -> Iterator[str]:
    """A file of weights is whole or absent, so where it is there it is right, also before the summary is written."""
    path, kept = folder.path, {folder.weights: audit.delivered}
    if os.path.lexists(path / LAST):
        kept[path / LAST / folder.weights.name] = audit.model
    for weights, model in kept.items():
        if not folder.finished and not os.path.lexists(weights):
            continue
        where = weights.relative_to(path)
        try:
            with open_plain(weights, path) as file:
                found, tensors = measure_packed(file, LARGEST_WEIGHTS)
            if found != model:
                raise ValueError
        except (OSError, ValueError):
            yield f"{where} does not hold the model that the ledger names: it was changed"
            return
        if terms.layout and layout_digest(tensors) != terms.layout:
            yield f"{where} has other names, shapes or another order of tensors than the ledger names: it was changed"
        if folder.finished or os.path.lexists(weights.parent / CARD):
            yield from _why_card_differs(folder, weights.parent, model, tensors, terms.frozen)


def _why_card_differs(
    folder: RunFolder, place: Path, model: str | None, tensors: Tensors, frozen: str
) -> Iterator[str]:
    """What stands beside the weights decides what they answer: how they are built, and how a table is read."""
    path = place / SCHEMA
    try:
        kept = json.loads(read_plain(path, folder.path))
    except FileNotFoundError:
        kept = None
    except (OSError, ValueError, RecursionError):
        kept = "unreadable"
    if kept != folder.recipe.get("schema"):
        yield f"{path.relative_to(folder.path)} is not the preprocessing that {RUN} names: one of them was changed"
        return
    card, _ = read_description(place, folder.path)
    refuse_other_size(card, sum(math.prod(shape) for _, shape in tensors), place)
    where = (place / CARD).relative_to(folder.path)
    if card.frozen != frozen:
        yield f"{where} names other frozen weights than the ledger's first entry: it was changed"
    if card.model_hash != model or card.tables != folder.tables():
        yield f"{where} tells of another model than the ledger, or of other tables than {RUN}: one of them was changed"


def noted_digest(folder: RunFolder, name: str) -> str | None:
    """The digest of something in the folder that a reader relies on and that is no part of the ledger."""
    if name == "schema":
        schema = folder.recipe.get("schema")
        return None if schema is None else hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()
    try:
        return hashlib.sha256(read_plain(folder.path / NOTED["profile"], folder.path)).hexdigest()
    except FileNotFoundError:
        return None


def seal_of(ledger: Path, within: Path) -> str | None:
    """The SHA-256 of the ledger's file, where it is one."""
    try:
        with open_plain(ledger, within) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
