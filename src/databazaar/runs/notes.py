"""What a run's folder keeps beside the ledger: what somebody said, or what follows from data. No audit rests on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from databazaar.data.profile_record import MarketProfile
from databazaar.files import read_plain, write_whole
from databazaar.runs.names import BEGUN
from databazaar.runs.purchase import PurchaseEvaluation

PRIVACY, PROFILE, WORTH, RESUMED = "privacy.json", "profile.json", "worth.json", "resumed.json"
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
