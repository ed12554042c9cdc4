"""What the checks of rules and engines have in common: one requirement, one clear complaint."""

from __future__ import annotations

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
        registry.refuse_unwritable(rule)
    except BazaarError as reason:
        raise AssertionError(f"the {registry.noun} cannot be kept in a ledger: {reason}") from None
