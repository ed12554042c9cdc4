"""What a run's folder keeps beside the ledger: notes of what somebody said or what follows from data, on which no audit
rests; and the evidence of what its parties have signed.

replies.jsonl       every signed reply, one a line, there before the round is settled that it belongs to
certificates.json   the certificates of those who signed, and that of the authority which issued them
receipts.json       up to which entry of the ledger each provider has got its receipts

Signatures are verified in `federation/disputes.py`. Here nothing more is needed than a hash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from databazaar.data.profile_record import MarketProfile
from databazaar.errors import BazaarError
from databazaar.files import append_lines, lines_of, read_plain, write_whole
from databazaar.ledger import Entry
from databazaar.ledger.replies import LONGEST_LINE, SignedReply
from databazaar.runs.purchase import PurchaseEvaluation
from databazaar.vectors import pack, unpack

LEDGER, SUMMARY, RUN, MODEL = "ledger.sqlite", "summary.json", "run.json", "model/model.safetensors"
LAST = "last"
"""The folder of the model that the last round ended with, where that is not the best one."""
LAYOUT, BEGUN = "layout.json", "begun.json"
CSV, JSON, PAGE = "statement.csv", "statement.json", "report.html"
"""What people read of a run: written by reports/run_page.py."""
PRIVACY, PROFILE, WORTH, RESUMED = "privacy.json", "profile.json", "worth.json", "resumed.json"
ROWS, PRIVATE = "rows.safetensors", 0o600
REPLIES, CERTIFICATES, RECEIPTS = "replies.jsonl", "certificates.json", "receipts.json"
_SPARE = 2**26  # bytes of replies to rounds that were interrupted and asked for again
Kept = TypeVar("Kept")


class Notes:
    """The notes in a run's folder. One that is not there, or that cannot be read, says nothing."""

    path: Path

    def _note(self, name: str, value: Any, indent: int | None = 2) -> None:
        write_whole(self.path / name, json.dumps(value, indent=indent).encode(), within=self.path)

    def _noted(self, name: str, read: Callable[[Any], Kept], nothing: Kept) -> Kept:
        try:
            return read(json.loads(read_plain(self.path / name, self.path)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            return nothing

    def note_profile(self, profile: MarketProfile) -> None:
        """Keeps what the tables are like, for the report."""
        write_whole(self.path / PROFILE, profile.model_dump_json(indent=2).encode(), within=self.path)

    def profile(self) -> MarketProfile | None:
        """What the tables were like, None where it was not noted, or not by us."""
        return self._noted(PROFILE, MarketProfile.model_validate, None)

    def note_worth(self, worth: PurchaseEvaluation) -> None:
        """Keeps the purchase evaluation. It follows from data, so it is no part of the ledger."""
        self._note(WORTH, worth.to_dict())

    def worth(self) -> PurchaseEvaluation | None:
        return self._noted(WORTH, PurchaseEvaluation.from_dict, None)

    def note_privacy(self, provider: str, epsilon: float, delta: float) -> None:
        """Keeps what a provider says it has spent in all. It is its own word, so it is no part of the ledger."""
        known = self.privacy()
        if known.get(provider) != (epsilon, delta):
            self._note(PRIVACY, {**known, provider: (epsilon, delta)})

    def privacy(self) -> dict[str, tuple[float, float]]:
        """ε and δ by provider."""
        return self._noted(PRIVACY, lambda kept: {str(who): (float(e), float(d)) for who, (e, d) in kept.items()}, {})

    def note_rows(self, sums: Mapping[int, NDArray[np.float64]]) -> None:
        """Keeps the sums of the values of rows by provider. They follow from data, so they are no part of the ledger;
        and a provider is told its own alone, so nobody but the run's owner may read the file."""
        packed = pack({str(i): rows for i, rows in sums.items()})
        write_whole(self.path / ROWS, packed, mode=PRIVATE, within=self.path)

    def row_sums(self) -> dict[int, NDArray[np.float64]] | None:
        """Sums of the values of rows by provider; None where rows were not valued, or the run goes on."""
        try:
            kept = unpack(read_plain(self.path / ROWS, self.path))
            if any(rows.ndim != 2 or rows.shape[1] != 3 or rows.dtype != np.float64 for rows in kept.values()):
                return None
            return {int(name): rows for name, rows in kept.items()}
        except (OSError, ValueError, BazaarError):
            return None

    def note_begun(self, opening: str) -> None:
        """Keeps the hash of the ledger's first entry: a ledger that was emptied does not begin anew in silence."""
        if not self.begun():
            self._note(BEGUN, {"opening": opening}, indent=None)

    def begun(self) -> str:
        """The hash of the ledger's first entry, empty where none is noted."""
        try:
            return str(json.loads(read_plain(self.path / BEGUN, self.path))["opening"])
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return "unreadable"

    def note_resumed(self, environment: str) -> None:
        """Keeps that the run went on in another environment than the one that its ledger names."""
        known = self.resumed()
        if environment not in known:
            self._note(RESUMED, [*known, environment])

    def resumed(self) -> list[str]:
        """The environments in which the run went on, where they are others than at its beginning."""
        return self._noted(RESUMED, lambda kept: [str(one) for one in kept] if isinstance(kept, list) else [], [])


class RunEvidence:
    def __init__(self, folder: Path, run: str) -> None:
        self.folder = folder
        self.run = run
        self._noted: set[tuple[str, str]] = set()

    def keep_replies(self, replies: Sequence[SignedReply]) -> None:
        append_lines(self.folder / REPLIES, [reply.line for reply in replies])

    def replies(self, named: int = 0) -> Iterator[SignedReply]:
        """The signed replies that are kept. A file that is far larger than `named` replies can be is not read."""
        try:
            if (self.folder / REPLIES).stat().st_size > _SPARE + 4 * LONGEST_LINE * named:
                return
            for line in lines_of(self.folder / REPLIES, LONGEST_LINE):
                if (reply := SignedReply.read(line)) is not None:
                    yield reply
        except (OSError, BazaarError):
            return

    def note_certificates(self, authority: str, certificates: Mapping[str, str]) -> None:
        """A certificate that was renewed stands beside the one before it."""
        if self._noted.issuperset(certificates.items()):
            return
        known = self.certificates()
        every = {name: list(dict.fromkeys([*known.get(name, ()), pem])) for name, pem in certificates.items()}
        if authority != self.authority() or {**known, **every} != known:
            noted = {"authority": authority, "providers": {**known, **every}}
            write_whole(self.folder / CERTIFICATES, json.dumps(noted, indent=2).encode(), within=self.folder)
        self._noted.update(certificates.items())

    def certificates(self) -> dict[str, list[str]]:
        """Every provider's certificates in PEM."""
        noted = self._read(CERTIFICATES).get("providers")
        if not isinstance(noted, dict):
            return {}
        return {str(name): [str(pem) for pem in pems] for name, pems in noted.items() if isinstance(pems, list)}

    def authority(self) -> str:
        """The certificate of who issued them, empty where it is not known."""
        return str(self._read(CERTIFICATES).get("authority", ""))

    def receipts_sent(self) -> dict[str, int]:
        return {str(name): seq for name, seq in self._read(RECEIPTS).items() if type(seq) is int}

    def note_receipts_sent(self, sent: Mapping[str, int]) -> None:
        write_whole(self.folder / RECEIPTS, json.dumps(dict(sent), indent=2).encode(), within=self.folder)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(read_plain(self.folder / name, self.folder))
        except (OSError, ValueError, RecursionError, BazaarError):
            return {}
        return found if isinstance(found, dict) else {}

    def why_replies_differ(self, entries: Iterable[Entry]) -> str | None:
        """Why the replies that are kept are not those that the ledger names, None where they are."""
        named: dict[str, tuple[int, str]] = {}
        for entry in entries:
            if entry.settles and "reply" in entry.body:
                place = entry.round or 0, entry.provider or ""
                if named.setdefault(entry.body["reply"], place) != place:
                    return f"{entry}: names a reply that is named already, to another question"
        missing = dict(named)
        for reply in self.replies(len(named)):
            said = reply.statement
            if missing.pop(said.digest, None) is None:
                continue
            if (said.run, said.round, said.provider) != (self.run, *named[said.digest]):
                return f"{REPLIES}: the reply {said.digest[:16]} is not one of {named[said.digest][1]} in this run"
        for round, provider in missing.values():
            return f"{REPLIES} lacks the reply of {provider} in round {round} that the ledger names: it was changed"
        return None
