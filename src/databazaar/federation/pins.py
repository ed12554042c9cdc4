"""Which schemas a provider answers by: those that it accepted, and no other, whatever its data are.

A schema says what is predicted from what, and the market writes it. If any were answered, "this does not fit my data"
would be an answer about the data, and a few hundred schemas would read a column. So the first that a market asks with
is pinned in the provider's kit, or one that the provider gave beforehand; another is refused, and kept as an offer.

Where several consumers ask, each has a hold-out of its own and so a schema of its own. A provider that joins with
`--schemas N` pins up to N of them as they come. Whether its data fit is one bit a schema, found out once: so it tells N
bits at the most, and those that were dropped since count. And it tells them about one task: a further schema is pinned
only if it predicts the same target, in the same way, as one that the provider answers by already.
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
from databazaar.federation.private_files import write_json
from databazaar.federation.records import SCHEMA
from databazaar.federation.schema_offers import LARGEST_SCHEMA, MOST_OFFERS, OFFERS, Asker, Refused, SchemaOffers
from databazaar.files import alone, write_whole

ACCEPTED = "schemas.json"
_SHORTEST = 8
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
        if path.stat().st_size > LARGEST_SCHEMA:
            raise ValueError
        return SchemaMessage.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        raise BazaarError(
            f"{path} holds no schema: ask the operator for the schema.json that stands in a run's folder model"
        ) from None


@dataclass
class Pins:
    """The accepted schemas, in a kit's folder; without one, for as long as this object lives. Up to `most` are accepted
    as they come."""

    folder: Path | None = None
    most: int = 1
    _found: _Found = field(default_factory=dict, compare=False)
    _offered: dict[str, str] = field(default_factory=dict, compare=False)

    def accepted(self) -> _Found:
        """By fingerprint: since when, how it came about, what it predicts, and whether which data fit it."""
        return {name: known for name, known in self._all().items() if "dropped" not in known}

    def _all(self) -> _Found:
        """Also those that were dropped since."""
        if self.folder is None:
            return self._found
        try:
            found = json.loads((self.folder / ACCEPTED).read_text())
            return {str(name): dict(known) for name, known in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError):
            raise BazaarError(
                f"{self.folder / ACCEPTED} cannot be read: remove it, and accept the market's schema again"
            ) from None

    def admits(self, schema: SchemaMessage) -> bool | None:
        """Whether it is accepted, by now; None where it is not, and may be pinned as it comes."""
        self._found = self._all()
        if fingerprint(schema) in self._found:
            return "dropped" not in self._found[fingerprint(schema)]
        if not self._found and (self.folder is None or not (self.folder / ACCEPTED).exists()):
            return None
        return None if len(self._found) < self.most and self._is_known_task(schema) else False

    def _is_known_task(self, schema: SchemaMessage) -> bool:
        tasks = [known for known in self._found.values() if "dropped" not in known]
        return any({**known, **_task(schema)} == known for known in tasks)

    def accept(self, schema: SchemaMessage, how: str, by: Asker | None = None) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        asked = {} if by is None else by._asdict()
        self._change(fingerprint(schema), {"since": now, "how": how, **_task(schema), **asked})
        if self.folder is not None:
            write_whole(self.folder / SCHEMA, schema.model_dump_json().encode())
            self._offers().forget(schema)

    def drop(self, given: str) -> None:
        """Takes an acceptance back. It is remembered, so that the same schema is not pinned anew when it comes."""
        name = self._one_of(given, list(self.accepted()))
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        self._change(name, {**self._all().get(name, {}), "dropped": now})

    def keep_offer(self, schema: SchemaMessage, by: Asker | None = None) -> bool:
        """Keeps a schema that was refused, the latest of each consumer; whether it is a new one."""
        by = by or Asker()
        if (name := fingerprint(schema)) == self._offered.get(by.consumer):
            return False
        if len(self._offered) >= MOST_OFFERS:
            self._offered.clear()
        self._offered[by.consumer] = name
        if self.folder is not None:
            self._offers().keep(schema, by)
        return True

    def _offers(self) -> SchemaOffers:
        assert self.folder is not None
        return SchemaOffers(self.folder / OFFERS)

    def offers(self) -> list[Refused]:
        """What was refused, of each consumer the latest; the last of them comes last."""
        return self._offers().all()

    def offer(self) -> SchemaMessage | None:
        """The one that was refused last."""
        found = self.offers()
        return found[-1].schema_ if found else None

    def accept_offer(self, given: str) -> SchemaMessage:
        """Accepts the offer of this fingerprint: what was looked at, and not what came meanwhile."""
        offered = {fingerprint(one.schema_): one for one in self.offers()}
        if not offered:
            raise BazaarError("nothing is offered: the market has asked with no schema but the accepted ones")
        one = offered[self._one_of(given, list(offered))]
        self.accept(one.schema_, "accepted", Asker(one.consumer, one.contract))
        return one.schema_

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
            _in_short(name, known) if kept is None or fingerprint(kept) != name else meaning(kept)
            for name, known in found.items()
        ]

    def _kept(self) -> SchemaMessage | None:
        assert self.folder is not None
        return read_schema(self.folder / SCHEMA) if (self.folder / SCHEMA).exists() else None

    def _change(self, name: str, known: dict[str, Any]) -> None:
        if self.folder is None:
            self._found = {**self._found, name: known}
            return
        with alone(self.folder / f"{ACCEPTED}.lock"):
            self._found = {**self._all(), name: known}
            write_json(self.folder / ACCEPTED, self._found)

    @staticmethod
    def _one_of(given: str, names: list[str]) -> str:
        same = [name for name in names if len(given) >= _SHORTEST and name.startswith(given)]
        if not same:
            short = ", ".join(name[:12] for name in names) or "none"
            raise BazaarError(f"{shown(given, 60)} is none of {short}: give the first {_SHORTEST} signs or more")
        return same[0]


def _task(schema: SchemaMessage) -> dict[str, str]:
    return {"target": schema.target, "task": schema.task}


def _in_short(name: str, known: dict[str, Any]) -> str:
    predicts = f" predicts {shown(known['target'], 60)!r}" if "target" in known else ""
    by = f" by {shown(known['consumer'], 60)}" if known.get("consumer") else ""
    return f"{name[:12]}{predicts}, {known.get('how', '')}{by} {known.get('since', '')}".rstrip()
