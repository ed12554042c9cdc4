"""What a run's folder keeps beside the ledger: what somebody said, or what follows from data. No audit rests on it."""

from __future__ import annotations

import json
from pathlib import Path

from databazaar.data.profile_record import MarketProfile
from databazaar.files import read_plain, write_whole
from databazaar.runs.names import BEGUN
from databazaar.runs.worth import Worth

PRIVACY, PROFILE, WORTH, RESUMED = "privacy.json", "profile.json", "worth.json", "resumed.json"


class Notes:
    """The notes in a run's folder. One that is not there, or that cannot be read, says nothing."""

    path: Path

    def note_profile(self, profile: MarketProfile) -> None:
        """Keeps what the tables are like, for the report."""
        write_whole(self.path / PROFILE, profile.model_dump_json(indent=2).encode(), within=self.path)

    def profile(self) -> MarketProfile | None:
        """What the tables were like, None where it was not noted, or not by us."""
        try:
            return MarketProfile.model_validate_json(read_plain(self.path / PROFILE, self.path))
        except (OSError, ValueError, RecursionError):
            return None

    def note_worth(self, worth: Worth) -> None:
        """Keeps what the purchase was worth. It follows from data, so it is no part of the ledger."""
        write_whole(self.path / WORTH, json.dumps(worth.to_dict(), indent=2).encode(), within=self.path)

    def worth(self) -> Worth | None:
        """What the purchase was worth, None where that was not judged."""
        try:
            return Worth.from_dict(json.loads(read_plain(self.path / WORTH, self.path)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            return None

    def note_privacy(self, provider: str, epsilon: float, delta: float) -> None:
        """Keeps what a provider says it has spent in all. It is its own word, so it is no part of the ledger."""
        known = self.privacy()
        if known.get(provider) != (epsilon, delta):
            write_whole(
                self.path / PRIVACY,
                json.dumps({**known, provider: (epsilon, delta)}, indent=2).encode(),
                within=self.path,
            )

    def privacy(self) -> dict[str, tuple[float, float]]:
        """ε and δ by provider."""
        try:
            noted = json.loads(read_plain(self.path / PRIVACY, self.path))
            return {str(who): (float(epsilon), float(delta)) for who, (epsilon, delta) in noted.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            return {}

    def note_begun(self, opening: str) -> None:
        """Keeps the hash of the ledger's first entry: a ledger that was emptied does not begin anew in silence."""
        if not self.begun():
            write_whole(self.path / BEGUN, json.dumps({"opening": opening}).encode(), within=self.path)

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
            write_whole(self.path / RESUMED, json.dumps([*known, environment], indent=2).encode(), within=self.path)

    def resumed(self) -> list[str]:
        """The environments in which the run went on, where they are others than at its beginning."""
        try:
            noted = json.loads(read_plain(self.path / RESUMED, self.path))
            return [str(one) for one in noted] if isinstance(noted, list) else []
        except (OSError, ValueError, RecursionError):
            return []
