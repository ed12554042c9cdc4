"""A run's folder: what was run, its ledger, and at the end the model and a summary.

run.json            what was run and when it began, so that it can be resumed
ledger.sqlite       the ledger, and what the next round starts from
snapshot-HASH.safetensors: what of that is large (ledger/snapshot_files.py), until the summary is there
profile.json        what the tables were like when the run began, if it began from files
replies.jsonl       what providers have signed, and beside it how to check that (runs/notes.py), if they do
privacy.json        what providers with differential privacy said that they have spent, if there are any
begun.json          the hash of the ledger's first entry, until the summary is there
layout.json         what is known of the model beside its numbers, until its folder is written
model/              the best model that was reached, complete in itself (runs/model_folder.py)
last/               the model that the last round ended with, where that is another one
rows.safetensors    what each row of each provider has brought, where rows were valued
worth.json          the model beside what the consumer could have had otherwise, where there were rows to audit it by
summary.json        the outcome: the model's hash, the ledger's head, and a seal over the ledger's file
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from databazaar.aggregators import AGGREGATORS
from databazaar.errors import BazaarError, LedgerError
from databazaar.files import lock, new_folder, read_plain, write_whole
from databazaar.ledger import Audit, Entry, RuleBook, Terms, audit_entries
from databazaar.ledger.notary import NO_ENTRIES
from databazaar.ledger.sql import BEING_PLAYED, SqlStore
from databazaar.ledger.sqlite_file import readable, refuse_foreign
from databazaar.runs.audit import NOTED, noted_digest, seal_of, told_by, with_files
from databazaar.runs.model_folder import Outline, TableFacts, flattened, read_model, write_model
from databazaar.runs.notes import BEGUN, LAST, LAYOUT, LEDGER, MODEL, PRIVATE, RUN, SUMMARY, Notes, RunEvidence
from databazaar.runs.recipe import agreed_url, readable_recipe, server_url, without_passwords
from databazaar.runs.report import Report, report_from
from databazaar.vectors import hash_array

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from databazaar.data.profile_record import MarketProfile
    from databazaar.data.schema import Schema
    from databazaar.training import Model, Training

STATELESS = "the ledger has rounds, but not the state that they led to: it was removed"
EMPTIED = "the ledger of {folder} is empty, though the run had begun: it was emptied, so put the old one back"

__all__ = ["LAST", "LAYOUT", "LEDGER", "MODEL", "RUN", "SUMMARY", "RunFolder", "is_unfinished"]


def is_unfinished(path: Path) -> bool:
    return os.path.lexists(path / RUN) and not os.path.lexists(path / SUMMARY)


class RunFolder(Notes):
    """One run on disk. Every file in it is either whole or absent, whenever the process is killed."""

    def __init__(self, path: Path, ledger: str | None = None) -> None:
        """`ledger` is the URL of the database that the ledger is in, where it is in one: a folder may come from
        anybody, so what it says itself is not enough to connect to anything."""
        self.path = path
        try:
            self.recipe = readable_recipe(read_plain(path / RUN, path))
            self.id = str(self.recipe["id"])
        except (OSError, ValueError, KeyError, RecursionError):
            raise BazaarError(f"{path} is not a run's folder: give the folder that `bazaar run` made") from None
        self._given_url = ledger
        self._store: SqlStore | None = None
        self._lock: FileIO | None = None
        self._replayed: Audit | None = None
        self.stated: dict[str, Any] = {}

    @classmethod
    def create(
        cls, path: Path, recipe: dict[str, Any] | None = None, profile: MarketProfile | None = None
    ) -> RunFolder:
        """A new folder that holds the recipe, what the tables are like where that is known, and an empty ledger. It
        appears under its name only when complete. The recipe is its owner's alone to read, and keeps no password."""
        if os.path.lexists(path):
            if is_unfinished(path):
                raise BazaarError(
                    f"{path} exists already, with an unfinished run: `bazaar run {path}` goes on with it, "
                    "or give another folder with --out"
                )
            raise BazaarError(f"{path} exists already: give another folder with --out, or remove it")
        recipe = {"id": uuid.uuid4().hex, "began": _now(), **(recipe or {})}
        url = recipe.get("ledger_url") or None
        if url is not None:  # opens, or nothing is written
            SqlStore(server_url(url), recipe["id"]).dispose()
        with new_folder(path) as draft:
            write_whole(draft / RUN, json.dumps(without_passwords(recipe), indent=2).encode(), mode=PRIVATE)
            made = cls(draft, url)
            if profile is not None:
                made.note_profile(profile)
            made.store()
            made.dispose()
        return cls(path, url)

    @classmethod
    def open_or_create(cls, path: Path) -> RunFolder:
        return cls(path) if path.exists() else cls.create(path)

    @property
    def evidence(self) -> RunEvidence:
        return RunEvidence(self.path, self.id)

    @property
    def finished(self) -> bool:
        return os.path.lexists(self.path / SUMMARY)

    @property
    def database(self) -> str | None:
        """The URL of the database that the ledger is in, as the user has given it; None for the folder's own file."""
        return agreed_url(self.recipe.get("ledger_url"), self._given_url, self.path)

    def store(self) -> SqlStore:
        """The ledger's store, for writing: no other process gets it until `dispose`."""
        if self.finished:
            raise BazaarError(f"{self.path} holds a finished run: give another folder for a new one")
        url = self.database
        self._lock = lock(self.path / RUN, f"{self.path}: {BEING_PLAYED}", self.path)
        try:
            if url is None:
                refuse_foreign(self.path / LEDGER)
                self._refuse_if_gone()
                self._store = SqlStore.file(self.path / LEDGER, self.id)
            else:
                self._store = SqlStore(url, self.id, folder=self.path)
            self._store.hold()
            if self.begun() and next(iter(self._store.entries()), None) is None:
                raise LedgerError(EMPTIED.format(folder=self.path))
        except BaseException:
            self.dispose()
            raise
        return self._store

    def _refuse_if_gone(self) -> None:
        if not os.path.lexists(self.path / LEDGER) and (self.begun() or self.finished):
            raise LedgerError(f"{self.path / LEDGER} is missing, though the run had begun: put the old file back")

    def state(self, environment: dict[str, str]) -> None:
        """Notes what the ledger's first entry is to say: the environment, and digests of the files beside it."""
        found = {name: noted_digest(self, name) for name in NOTED}
        notes = {name: digest for name, digest in found.items() if digest is not None}
        self.stated = {"environment": environment, "notes": notes}

    def note_outline(self, outline: Outline) -> None:
        """Keeps what only the consumer knows of the model, for a close that does without it."""
        if outline != Outline() and not os.path.lexists(self.path / LAYOUT):
            write_whole(self.path / LAYOUT, outline.model_dump_json().encode(), within=self.path)

    def finish(self, best: NDArray[Any], outline: Outline, last: NDArray[Any]) -> Report:
        """Writes the best model and the last, and the summary, which seals the ledger's file. May be done again after a
        crash."""
        assert self._store is not None
        replayed = audit_entries(self._store.entries(), self._store.snapshot())
        report = report_from(replayed)
        tables, schema = self.tables(), self._schema()
        for found, named in ((best, report.model_hash), (last, report.last_model_hash)):
            if hash_array(found) != named:
                raise LedgerError(f"{self.path} does not hold the model that its ledger names: put the old file back")
        frozen = replayed.terms.frozen if replayed.terms is not None else ""
        write_model((self.path / MODEL).parent, best, outline, schema, tables, within=self.path, frozen=frozen)
        if report.last_model_hash != report.model_hash:
            write_model(self.path / LAST, last, outline, schema, tables, within=self.path, frozen=frozen)
        for name in (LAYOUT, BEGUN):
            (self.path / name).unlink(missing_ok=True)
        self._store.finish()
        summary = {**told_by(replayed), "ledger_seal": seal_of(self.path / LEDGER, self.path), "settled": _now()}
        write_whole(self.path / SUMMARY, json.dumps(summary, indent=2).encode(), within=self.path)
        self._replayed = replayed
        return self._completed(report)

    def saved_models(self, training: Training) -> tuple[Model, Model] | None:
        """The best model and the last, once the store no longer has them."""
        snapshot = None if self._store is None else self._store.snapshot()
        if snapshot is not None and snapshot.parameters is not None:
            return None
        last = LAST if os.path.lexists(self.path / LAST) else ""
        return training.restored(self.delivered()), training.restored(self.delivered(last))

    def delivered(self, folder: str = "") -> NDArray[Any]:
        """The array of the model that the consumer has got, or of the one in another folder of the run."""
        try:
            weights = read_model(self.path / folder if folder else self.weights.parent, self.path).weights
        except BazaarError as refused:
            raise LedgerError(f"{refused}; the ledger no longer has the model, so put the old file back") from None
        return flattened(weights)

    @property
    def weights(self) -> Path:
        """The file of the model's numbers, which the audit checks."""
        return self.path / MODEL

    def tables(self) -> TableFacts:
        """How the market's text files are written."""
        settings = self.recipe.get("market", {}).get("data", {})
        try:
            return TableFacts(**{name: settings[name] for name in TableFacts.model_fields if name in settings})
        except ValueError:
            raise BazaarError(f"{self.path / RUN} does not say how tables are written: put the old one back") from None

    def _schema(self) -> Schema | None:
        """How the market's tables become numbers; a run from Python has no tables."""
        from databazaar.data.schema import Schema

        schema = self.recipe.get("schema")
        return None if schema is None else Schema.from_dict(schema, str(self.path / RUN))

    def summary(self) -> dict[str, Any]:
        try:
            summary = json.loads(read_plain(self.path / SUMMARY, self.path))
            if not isinstance(summary, dict):
                raise ValueError
        except FileNotFoundError:
            raise BazaarError(f"{self.path} holds no finished run: `bazaar run {self.path}` goes on with it") from None
        except (OSError, ValueError, RecursionError):
            raise BazaarError(
                f"{self.path / SUMMARY} cannot be read: remove it, and `bazaar run {self.path}` writes it again"
            ) from None
        return summary

    def dispose(self) -> None:
        """Lets go of the store and of the folder, also after a run that failed."""
        if self._store is not None:
            self._store.dispose()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @contextmanager
    def _reading(self) -> Iterator[SqlStore]:
        """The ledger's store, for reading alone."""
        url = self.database
        with contextlib.ExitStack() as opened:
            if url is None:
                self._refuse_if_gone()
                if not os.path.lexists(self.path / LEDGER):
                    raise self._no_ledger_yet()
                place = opened.enter_context(readable(self.path / LEDGER, self.path / RUN))
            reader = SqlStore(place if url is None else url, self.id, create=False, folder=self.path)
            opened.callback(reader.dispose)
            yield reader

    def _no_ledger_yet(self) -> BazaarError:
        return BazaarError(f"{self.path} has no ledger yet: `bazaar run {self.path}` goes on with the run")

    def entries(self) -> Iterator[Entry]:
        with self._reading() as reader:
            yield from reader.entries()

    def need_rules(self) -> Terms | None:
        """The terms that the ledger begins with; an error names the package of a rule that is not installed."""
        if self.database is None and not os.path.lexists(self.path / LEDGER):
            return None
        try:
            with self._reading() as reader:
                first = next(iter(reader.entries()), None)
        except LedgerError:  # who opens it to write is told why, or undoes by its journal what a crash left half done
            if self.database is None:
                refuse_foreign(self.path / LEDGER)
            return None
        if first is None:
            return None
        terms = Terms.from_body(first.body)
        RuleBook.of(terms)
        AGGREGATORS.build(terms.rules["aggregator"])
        return terms

    def replay(self, *, record: bool = True) -> Audit:
        """The ledger, replayed once. A report needs the `record` of its rounds."""
        if self._replayed is None or (record and self._replayed.record is None):
            try:
                with self._reading() as reader:
                    snapshot = reader.snapshot()
                    replayed = audit_entries(reader.entries(), snapshot, record=record)
                    if replayed.ok and replayed.rounds and snapshot is None and reader.snapshot() is None:
                        replayed.first_broken = STATELESS
            except LedgerError as broken:
                replayed = Audit(first_broken=str(broken))
            if replayed.first_broken == NO_ENTRIES and self.begun():
                replayed.first_broken = EMPTIED.format(folder=self.path)
            elif replayed.first_broken == NO_ENTRIES and not self.finished:
                raise self._no_ledger_yet()
            if not self.finished:
                return replayed  # it may go on
            self._replayed = replayed
        return self._replayed

    @property
    def ledger_place(self) -> str:
        """Where the ledger is: a file of this folder, or somebody's database."""
        return "in the database of market.toml" if self.recipe.get("ledger_url") else str(self.path / LEDGER)

    @property
    def named(self) -> str:
        """What the run's market is called, empty where it has no name."""
        market: dict[str, Any] = self.recipe.get("market", {}).get("market", {})
        return str(self.recipe.get("title") or market.get("name") or "")

    @property
    def title(self) -> str:
        """What the run is called: by its market, or else as its folder is."""
        return self.named or self.path.resolve().name

    def report_and_audit(self) -> tuple[Report, Audit]:
        """Both from one replay. The audit also looks at the files; the ledger itself must hold."""
        replayed = self.replay()
        return self._completed(report_from(replayed)), with_files(self, replayed, None)

    def report(self) -> Report:
        """The report of the run, or of what has been played of it. A ledger that does not hold is refused."""
        return self._completed(report_from(self.replay()))

    def _completed(self, report: Report) -> Report:
        """The ledger's report with what the folder knows beside it: id, dates, spent privacy, worth."""
        noted = self.privacy()
        settled = str(self.summary().get("settled", "")) if self.finished else ""
        payouts = report.payouts
        if noted:
            payouts = [replace(line, epsilon=noted.get(line.provider, (None,))[0]) for line in payouts]
        notes = [f"{who} says it has spent ε = {e:.3g} of privacy at δ = {d:g}." for who, (e, d) in noted.items()]
        notes += [f"It went on with {environment}." for environment in self.resumed()]
        began = str(self.recipe.get("began", ""))
        known: dict[str, Any] = {"run": self.id, "began": began, "settled": settled, "worth": self.worth()}
        return replace(report, payouts=payouts, notes=(*report.notes, *notes), **known)

    def audit(self, head: str | None = None) -> Audit:
        """Replays the ledger; checks the file's seal, the model's file, and a head that somebody noted down."""
        return with_files(self, self.replay(record=False), head)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
