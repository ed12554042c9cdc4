"""Which schemas a provider answers by: those that it accepted, and no other, whatever its data are.

A schema says what is predicted from what, and the market writes it. If any were answered, "this does not fit my data"
would be an answer about the data, and a few hundred schemas would read a column. So the first that a market asks with
is pinned in the provider's kit, or one that the provider gave beforehand; another is refused, and kept as an offer for
the provider to look at: of each consumer the latest, and only so many, because they come from the market.

Where several consumers ask, each has a hold-out of its own and so a schema of its own. A provider that joins with
`--schemas N` pins up to N of them as they come. Whether its data fit is one bit a schema, found out once: so it tells N
bits at the most, and those that were dropped since count. And it tells them about one task: a further schema is pinned
only if it predicts the same target, in the same way, as one that the provider answers by already.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter

from databazaar.data.schema_message import SchemaMessage
from databazaar.display import listed, shown
from databazaar.errors import BazaarError
from databazaar.federation.enrolment_files import PRIVATE, write_json
from databazaar.federation.records import SCHEMA
from databazaar.files import alone, read_plain, write_whole

ACCEPTED, OFFERS = "schemas.json", "schema-offers.json"
MOST_OFFERS = 16
LARGEST_SCHEMA = 2**20
_LARGEST_FILE = 2 * MOST_OFFERS * LARGEST_SCHEMA
_SHORTEST = 8


class Asker(NamedTuple):
    """Who asks by a schema, by the market's word."""

    consumer: str = ""
    contract: str = ""


NOBODY = Asker()


class Known(BaseModel):
    """A schema that was accepted, and maybe `dropped` since: how that came about, what it predicts, who asked by it,
    and whether the `data` of this digest fit it."""

    since: str
    how: str
    target: str
    task: str
    consumer: str = ""
    contract: str = ""
    data: str = ""
    fits: bool | None = None
    dropped: str = ""

    def in_short(self, name: str) -> str:
        by = f" by {shown(self.consumer, 60)}" if self.consumer else ""
        return f"{name[:12]} predicts {shown(self.target, 60)!r}, {self.how}{by} {self.since}"


class Refused(BaseModel):
    """A schema that was refused, and who asked by it."""

    model_config = ConfigDict(frozen=True)

    consumer: str
    contract: str
    schema_: SchemaMessage


_KNOWN, _REFUSED = TypeAdapter(dict[str, Known]), TypeAdapter(list[Refused])


def fingerprint(schema: SchemaMessage) -> str:
    """Which schema it is: the SHA-256 of all that it says."""
    return hashlib.sha256(schema.model_dump_json().encode()).hexdigest()


def meaning(schema: SchemaMessage) -> str:
    """What a provider that answers by this schema takes part in."""
    kinds = {
        "numbers": [column.name for column in schema.numeric],
        "categories": [column.name for column in schema.categorical] + [column.name for column in schema.hashed],
        "dates": [column.name for column in schema.dates],
        "words of": [column.name for column in schema.texts],
        "images": [column.name for column in schema.images],
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
class AcceptedSchemas:
    """The schemas accepted in a kit's `folder`, or in memory. Up to `most` are accepted as they come."""

    folder: Path | None = None
    most: int = 1
    _known: dict[str, Known] = field(default_factory=dict, compare=False)
    _offers: list[Refused] = field(default_factory=list, compare=False)

    def accepted(self) -> dict[str, Known]:
        """By fingerprint, without those that were dropped since."""
        return {name: known for name, known in self._all().items() if not known.dropped}

    def _all(self) -> dict[str, Known]:
        """Also those that were dropped since."""
        if self.folder is not None:
            self._known = _read(self.folder / ACCEPTED, _KNOWN, "accept the market's schema again") or {}
        return self._known

    def admits(self, schema: SchemaMessage) -> bool | None:
        """Whether it is accepted, by now; None where it is not, and may be pinned as it comes."""
        found = self._all()
        if (known := found.get(fingerprint(schema))) is not None:
            return not known.dropped
        if not found:
            return None
        same = any((known.target, known.task) == (schema.target, schema.task) for known in self.accepted().values())
        return None if same and len(found) < self.most else False

    def accept(self, schema: SchemaMessage, how: str, by: Asker = NOBODY) -> None:
        known = Known(since=_now(), how=how, target=schema.target, task=schema.task, **by._asdict())
        with self._changing():
            self._known = {**self._all(), fingerprint(schema): known}
            self._keep_offers([one for one in self.offers() if one.schema_ != schema])
        if self.folder is not None:
            write_whole(self.folder / SCHEMA, schema.model_dump_json().encode())

    def drop(self, given: str) -> None:
        """Takes an acceptance back. It is remembered, so that the same schema is not pinned anew when it comes."""
        with self._changing():
            self._note(self._one_of(given, list(self.accepted())), dropped=_now())

    def offers(self) -> list[Refused]:
        """What was refused, of each consumer the latest; the last of them comes last."""
        if self.folder is not None:
            self._offers = _read(self.folder / OFFERS, _REFUSED, "let the market ask again") or []
        return self._offers

    def keep_offer(self, schema: SchemaMessage, by: Asker = NOBODY) -> bool:
        """Keeps a schema that was refused; whether it is a new one, and of a sensible size."""
        refused = Refused(**by._asdict(), schema_=schema)
        if refused in self.offers() or len(refused.model_dump_json()) > LARGEST_SCHEMA:
            return False
        with self._changing():
            others = [one for one in self.offers() if one.consumer != by.consumer]
            self._keep_offers([*others, refused][-MOST_OFFERS:])
        return True

    def _keep_offers(self, offers: list[Refused]) -> None:
        if self.folder is not None and offers != self._offers:
            write_whole(self.folder / OFFERS, _REFUSED.dump_json(offers), PRIVATE)
        self._offers = offers

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
        known = self._all().get(fingerprint(schema))
        return known.fits if known is not None and known.data == data else None

    def note_fits(self, schema: SchemaMessage, data: str, fits: bool) -> None:
        """Remembers it for good: the market hears it once."""
        if self.fits(schema, data) != fits:
            with self._changing():
                self._note(fingerprint(schema), data=data, fits=fits)

    def current(self) -> list[str]:
        """The accepted schemas in words, the one that was accepted last in full."""
        assert self.folder is not None
        if not (found := self.accepted()):
            after = "another is accepted when it is offered"
            return [f"none: {after}" if self._known else "none yet: the first that the market asks with is pinned"]
        last = read_schema(self.folder / SCHEMA) if (self.folder / SCHEMA).exists() else None
        return [
            meaning(last) if last is not None and fingerprint(last) == name else known.in_short(name)
            for name, known in found.items()
        ]

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One process at a time changes what is known; it is written at the end."""
        if self.folder is None:
            yield
            return
        with alone(self.folder / f"{ACCEPTED}.lock"):
            before = self._all()
            yield
            if self._known != before:
                write_json(self.folder / ACCEPTED, _KNOWN.dump_python(self._known))

    def _note(self, name: str, **changes: object) -> None:
        self._known = {**self._known, name: self._known[name].model_copy(update=changes)}

    @staticmethod
    def _one_of(given: str, names: list[str]) -> str:
        same = [name for name in names if len(given) >= _SHORTEST and name.startswith(given)]
        if not same:
            short = ", ".join(name[:12] for name in names) or "none"
            raise BazaarError(f"{shown(given, 60)} is none of {short}: give the first {_SHORTEST} signs or more")
        return same[0]


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def _read(path: Path, kind: TypeAdapter[Any], advice: str) -> Any:
    try:
        return kind.validate_json(read_plain(path, most=_LARGEST_FILE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, BazaarError):
        raise BazaarError(f"{path} cannot be read: remove it, and {advice}") from None
