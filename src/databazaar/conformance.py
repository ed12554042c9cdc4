"""What the checks of rules and engines have in common: one requirement, one clear complaint."""

from __future__ import annotations

import json
from typing import Any

from databazaar.errors import BazaarError
from databazaar.registry import Registry


def require(holds: bool, complaint: str) -> None:
    """Raises AssertionError with the complaint where something does not hold."""
    if not holds:
        raise AssertionError(complaint)


def require_rebuilt(registry: Registry, rule: Any) -> None:
    """A rule must come back whole from the settings that a ledger holds of it."""
    try:
        registry.adopt(rule)
        settings = registry.settings_of(rule)
        rebuilt = registry.build(json.loads(json.dumps(settings, allow_nan=False)))
    except (BazaarError, TypeError, ValueError, AttributeError) as reason:
        raise AssertionError(f"the {registry.noun} cannot be kept in a ledger: {reason}") from None
    require(rebuilt == rule, f"the {registry.noun} must be rebuilt from its settings: make it a frozen dataclass")
