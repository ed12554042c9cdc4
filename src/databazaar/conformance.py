"""What the checks of rules and engines have in common: one requirement, one clear complaint."""

from __future__ import annotations


def require(holds: bool, complaint: str) -> None:
    """Raises AssertionError with the complaint where something does not hold."""
    if not holds:
        raise AssertionError(complaint)
