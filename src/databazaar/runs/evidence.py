"""What a run's folder keeps of what its parties have signed, and whether that is what the ledger names.

replies.jsonl       every signed reply, one a line, there before the round is settled that it belongs to
certificates.json   the certificates of those who signed, and that of the authority which issued them
receipts.json       up to which entry of the ledger each provider has got its receipts

Signatures are verified in `federation/disputes.py`. Here nothing more is needed than a hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError
from databazaar.files import append_lines, lines_of, read_plain, write_whole
from databazaar.ledger import Entry
from databazaar.ledger.replies import LONGEST_LINE, SignedReply

REPLIES, CERTIFICATES, RECEIPTS = "replies.jsonl", "certificates.json", "receipts.json"
_SPARE = 2**26  # bytes of replies to rounds that were interrupted and asked for again


class RunEvidence:
    """The evidence in a run's folder."""

    def __init__(self, folder: Path, run: str) -> None:
        self.folder = folder
        self.run = run
        self._noted: set[tuple[str, str]] = set()

    def keep_replies(self, replies: Sequence[SignedReply]) -> None:
        append_lines(self.folder / REPLIES, [reply.line for reply in replies])

    def replies(self, named: int = 0) -> Iterator[SignedReply]:
        """Those that are kept; a line that holds none is skipped, and so is a file that is not there, or that is larger
        than the number of replies that a ledger names can account for."""
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
