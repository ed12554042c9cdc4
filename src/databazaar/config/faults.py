"""Every fault of a market, or only the first: the same code reads its tables for a check and for a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from databazaar.errors import BazaarError

Given = TypeVar("Given")


class Faults:
    """Sentences in the order found, each once."""

    def __init__(self) -> None:
        self._sentences: dict[str, None] = {}

    @property
    def found(self) -> tuple[str, ...]:
        return tuple(self._sentences)

    def add(self, sentences: Iterable[str]) -> None:
        self._sentences.update(dict.fromkeys(sentences))

    def caught(self, attempt: Callable[[], Given], who: Iterable[str] = ("",)) -> Given | None:
        """What an attempt gives, None where it was at fault. `who` are those whose fault it is, as sentences begin."""
        try:
            return attempt()
        except BazaarError as fault:
            self.add(f"{whose}{fault}" for whose in who)
            return None


class FirstFault(Faults):
    """Ends at the first fault."""

    def add(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            raise BazaarError(sentence) from None
