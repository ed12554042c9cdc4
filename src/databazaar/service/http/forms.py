"""What somebody has typed: read field by field, with what is wrong kept beside each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from starlette.datastructures import FormData, UploadFile

from databazaar.errors import BazaarError
from databazaar.money import Currency
from databazaar.service.database.tables import File
from databazaar.service.errors import ConflictError, InvalidError, ServiceError

LONGEST = 10_000
_GROUPED = re.compile(r"-?[0-9]{1,3}(,[0-9]{3})+([.][0-9]*)?")


class Form:
    """Empty before anything was sent. `faults` are by field, and `fault` is about no field alone. `refused` is what the
    command has said, `back` another page to go on to than the usual one. `kept` are files that were received with a
    form that had a mistake."""

    def __init__(self, posted: FormData | None = None, values: Mapping[str, str] | None = None) -> None:
        self.sent = posted is not None
        self.posted = posted if posted is not None else FormData(list((values or {}).items()))
        self.faults: dict[str, str] = {}
        self.fault = self.refused = self.back = ""
        self.kept: dict[str, File] = {}

    @property
    def faulty(self) -> bool:
        return bool(self.fault or self.faults)

    def text(self, name: str, default: str = "") -> str:
        value = self.posted.get(name, default)
        return value[:LONGEST] if isinstance(value, str) else default

    def all(self, name: str) -> list[str]:
        return [value for value in self.posted.getlist(name) if isinstance(value, str)]

    def uploads(self, name: str) -> list[tuple[str, BinaryIO]]:
        """The files that were chosen in this field, by name."""
        sent = [value for value in self.posted.getlist(name) if isinstance(value, UploadFile)]
        return [(one.filename, one.file) for one in sent if one.filename]

    def blame(self, name: str, sentence: str) -> None:
        self.faults.setdefault(name, sentence_of(sentence))

    def needed(self, name: str, what: str) -> str:
        value = self.text(name).strip()
        if not value:
            self.blame(name, f"this is empty: {what}")
        return value

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        value = self.text(name, allowed[0])
        if value not in allowed:
            self.blame(name, f"choose one of {', '.join(allowed)}")
        return value

    def amount(self, name: str, currency: Currency) -> int | None:
        """Minor units of what a person writes; None where nothing was written or it is no amount."""
        value = self.text(name).strip().replace(" ", "")
        if not value:
            return None
        try:
            return currency.parse(ungrouped(value), "the amount")
        except BazaarError as error:
            self.blame(name, str(error))
            return None

    def needed_amount(self, name: str, currency: Currency) -> int:
        value = self.amount(name, currency)
        if value is None:
            self.blame(name, f"write an amount such as {currency.amount(1050 * 10**currency.decimals // 100)}")
        elif value == 0:
            self.blame(name, "write an amount above zero")
        return value or 0

    def count(self, name: str, least: int = 1) -> int | None:
        value = ungrouped(self.text(name).strip())
        if not value:
            return None
        if not (value.isascii() and value.isdigit()) or len(value) > 12 or int(value) < least:
            self.blame(name, f"write a whole number, {least} or more")
            return None
        return int(value)

    def number(self, name: str) -> float | None:
        value = self.text(name).strip()
        if not value:
            return None
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.blame(name, "write a number such as 0.9")
            return None
        return number

    @contextmanager
    def trying(self, fields: Mapping[str, str] | None = None) -> Iterator[None]:
        """What a command refuses is told in the form: at the field that the refusal names as its place. `fields` has
        the form's fields by place, where they are called otherwise; a place without a field is told above the form."""
        try:
            yield
        except BazaarError as error:
            if isinstance(error, ServiceError) and not isinstance(error, InvalidError | ConflictError):
                raise
            self.refused = str(error)
            place = re.split(r"[.\[]", error.place)[0] if fields is None else fields.get(error.place, "")
            if place:
                self.blame(place, str(error))
            else:
                self.fault = sentence_of(str(error))


def ungrouped(written: str) -> str:
    """Without the commas between thousands, as the pages write them. Any other comma stays, and is refused: who writes
    1,5 means no fifteen.

    >>> ungrouped("12,500.50"), ungrouped("1,5"), ungrouped("1,50,000")
    ('12500.50', '1,5', '1,50,000')
    """
    return written.replace(",", "") if _GROUPED.fullmatch(written) else written


def sentence_of(text: str) -> str:
    """As a page writes it: from a capital letter to a full stop. A name that it begins with stays as it is.

    >>> sentence_of("this is empty: write a name"), sentence_of("rows.csv: the file is empty")
    ('This is empty: write a name.', 'rows.csv: the file is empty.')
    """
    first = text.partition(" ")[0].rstrip(",:;")
    if first.replace("-", "").isalpha():
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
