"""Which schemas a provider answers by: those that it accepted, and no other, whatever its data are.

A schema says what is predicted from what, and the market writes it. If any were answered, "this does not fit my data"
would be an answer about the data, and a few hundred schemas would read a column. So the first that a market asks with
is pinned in the provider's kit, or one that the provider gave beforehand; another is refused, and kept as an offer.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from databazaar.data.schema_message import SchemaMessage
from databazaar.display import listed, shown
from databazaar.errors import BazaarError
from databazaar.federation.kits import write_json
from databazaar.federation.records import SCHEMA
from databazaar.files import alone, write_whole

ACCEPTED, OFFER = "schemas.json", "schema-offer.json"
_SHORTEST = 8
_LARGEST = 2**20
_Found = dict[str, dict[str, Any]]


def fingerprint(schema: SchemaMessage) -> str:
    """Which schema it is: the SHA-256 of all that it says."""
    return hashlib.sha256(schema.model_dump_json().encode()).hexdigest()


def meaning(schema: SchemaMessage) -> str:
    """What a provider that answers by this schema takes part in."""
    kinds = {
        "numbers": [column.name for column in schema.numeric],
        "categories": [column.name for column in schema.categorical] + [column.name for column in schema.hashed],
        "dates": [column.name for column in schema.dates],
    }
    columns = "; ".join(f"{kind}: {listed(names, 12)}" for kind, names in kinds.items() if names)
    classes = f" ({listed(schema.classes, 8)})" if schema.classes else ""
    return f"{fingerprint(schema)[:12]} predicts {shown(schema.target, 60)!r}{classes} from {columns}"


def read_schema(path: Path) -> SchemaMessage:
    """A schema in a file, as a run's model folder or a kit has it."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError
        return SchemaMessage.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        raise BazaarError(
            f"{path} holds no schema: ask the operator for the schema.json that stands in a run's folder model"
        ) from None


@dataclass
class Pins:
    """The accepted schemas, in a kit's folder; without one, for as long as this object lives."""

    folder: Path | None = None
    _found: _Found = field(default_factory=dict, compare=False)
    _offered: str = field(default="", compare=False)

    def accepted(self) -> _Found:
        """By fingerprint: since when, how it came about, and whether which data fit it."""
        if self.folder is None:
            return self._found
        try:
            found = json.loads((self.folder / ACCEPTED).read_text())
            return {str(name): dict(known) for name, known in found.items()}
        except FileNotFoundError:
            kept = self._kept()
            return {} if kept is None else {fingerprint(kept): {"since": "", "how": "asked"}}
        except (OSError, ValueError, TypeError, AttributeError):
            raise BazaarError(
                f"{self.folder / ACCEPTED} cannot be read: remove it, and accept the market's schema again"
            ) from None

    def admits(self, schema: SchemaMessage) -> bool | None:
        """Whether it is accepted, by now; None where nothing ever was, and the first may be pinned."""
        self._found = self.accepted()
        if fingerprint(schema) in self._found:
            return True
        never = not self._found and (self.folder is None or not (self.folder / ACCEPTED).exists())
        return None if never else False

    def accept(self, schema: SchemaMessage, how: str) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self._change(fingerprint(schema), {"since": now, "how": how})
        if self.folder is not None:
            write_whole(self.folder / SCHEMA, schema.model_dump_json().encode())
            if (offer := self.offer()) is not None and offer == schema:
                (self.folder / OFFER).unlink(missing_ok=True)

    def drop(self, given: str) -> None:
        """Takes an acceptance back."""
        self._change(self._one_of(given, list(self.accepted())), None)

    def keep_offer(self, schema: SchemaMessage) -> bool:
        """Keeps a schema that was refused, the latest of them; whether it is a new one."""
        if (name := fingerprint(schema)) == self._offered:
            return False
        self._offered = name
        if self.folder is not None:
            write_whole(self.folder / OFFER, schema.model_dump_json().encode(), 0o600)
        return True

    def offer(self) -> SchemaMessage | None:
        assert self.folder is not None
        return read_schema(self.folder / OFFER) if (self.folder / OFFER).exists() else None

    def accept_offer(self, given: str) -> SchemaMessage:
        """Accepts the offer of this fingerprint: what was looked at, and not what came meanwhile."""
        offered = self.offer()
        if offered is None:
            raise BazaarError("nothing is offered: the market has asked with no schema but the accepted ones")
        self._one_of(given, [fingerprint(offered)])
        self.accept(offered, "accepted")
        return offered

    def fits(self, schema: SchemaMessage, data: str) -> bool | None:
        """What was once found out about these data, by their digest; None where it was not."""
        known = self._found.get(fingerprint(schema), {})
        return known.get("fits") if known.get("data") == data else None

    def note_fits(self, schema: SchemaMessage, data: str, fits: bool) -> None:
        """Remembers it for good: the market hears it once."""
        if self.fits(schema, data) != fits:
            name = fingerprint(schema)
            self._change(name, {**self._found.get(name, {}), "data": data, "fits": fits})

    def current(self) -> list[str]:
        """The accepted schemas in words, the one that was accepted last in full."""
        assert self.folder is not None
        if not (found := self.accepted()):
            dropped = (self.folder / ACCEPTED).exists()
            return [
                "none: another is accepted when it is offered"
                if dropped
                else "none yet: the first that the market asks with is pinned"
            ]
        kept = self._kept()
        return [
            f"{name[:12]}, {known.get('how', '')} {known.get('since', '')}".rstrip()
            if kept is None or fingerprint(kept) != name
            else meaning(kept)
            for name, known in found.items()
        ]

    def _kept(self) -> SchemaMessage | None:
        assert self.folder is not None
        return read_schema(self.folder / SCHEMA) if (self.folder / SCHEMA).exists() else None

    def _change(self, name: str, known: dict[str, Any] | None) -> None:
        if self.folder is None:
            self._found = {**self._found, name: known or {}}
            return
        with alone(self.folder / f"{ACCEPTED}.lock"):
            found = {**self.accepted(), name: known}
            self._found = {key: value for key, value in found.items() if value is not None}
            write_json(self.folder / ACCEPTED, self._found)

    @staticmethod
    def _one_of(given: str, names: list[str]) -> str:
        same = [name for name in names if len(given) >= _SHORTEST and name.startswith(given)]
        if not same:
            short = ", ".join(name[:12] for name in names) or "none"
            raise BazaarError(f"{shown(given, 60)} is none of {short}: give the first {_SHORTEST} signs or more")
        return same[0]
