"""How a command's help shows its examples."""

from __future__ import annotations

from typing import Any

import typer


def example(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def unset(help: str, *names: str, **more: Any) -> Any:
    """An option whose default is not shown."""
    return typer.Option(*names, help=help, show_default=False, **more)
