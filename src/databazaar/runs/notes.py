"""What a run's folder keeps beside the ledger: what somebody said, or what follows from data. No audit rests on it."""

from __future__ import annotations

import json
from pathlib import Path

from databazaar.data.profile_record import MarketProfile
from databazaar.files import write_whole
from databazaar.runs.worth import Worth

PRIVACY, PROFILE, WORTH = "privacy.json", "profile.json", "worth.json"


class Notes:
    """The notes in a run's folder. One that is not there, or that cannot be read, says nothing."""

    path: Path

    def note_profile(self, profile: MarketProfile) -> None:
        """Keeps what the tables are like, for the report."""
        write_whole(self.path / PROFILE, profile.model_dump_json(indent=2).encode())

    def profile(self) -> MarketProfile | None:
        """What the tables were like, None where it was not noted, or not by us."""
        try:
            return MarketProfile.model_validate_json((self.path / PROFILE).read_bytes())
        except (OSError, ValueError):
            return None

    def note_worth(self, worth: Worth) -> None:
        """Keeps what the purchase was worth. It follows from data, so it is no part of the ledger."""
        write_whole(self.path / WORTH, json.dumps(worth.to_dict(), indent=2).encode())

    def worth(self) -> Worth | None:
        """What the purchase was worth, None where that was not judged."""
        try:
            return Worth.from_dict(json.loads((self.path / WORTH).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            return None

    def note_privacy(self, provider: str, epsilon: float, delta: float) -> None:
        """Keeps what a provider says it has spent in all. It is its own word, so it is no part of the ledger."""
        known = self.privacy()
        if known.get(provider) != (epsilon, delta):
            write_whole(self.path / PRIVACY, json.dumps({**known, provider: (epsilon, delta)}, indent=2).encode())

    def privacy(self) -> dict[str, tuple[float, float]]:
        """ε and δ by provider."""
        try:
            noted = json.loads((self.path / PRIVACY).read_text())
            return {str(who): (float(epsilon), float(delta)) for who, (epsilon, delta) in noted.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
            return {}
