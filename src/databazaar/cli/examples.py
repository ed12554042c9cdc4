"""How a command's help shows its examples."""

from __future__ import annotations


def example(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
