"""Commands that other packages bring along, under the entry points `databazaar.commands`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

import typer

from databazaar.errors import BazaarError

GROUP = "databazaar.commands"
"""An entry point here is a function that takes the Typer app and adds a command to it."""

BESIDE = {
    "attack": "Lets a provider play against the market. It is not installed here.",
    "reproduce": "The paper's evaluation. It is not installed here.",
}
"""Commands of the package beside the library, in `experiments/`, and their help where it is not installed."""

ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


def add_commands(app: typer.Typer) -> None:
    """Add the installed commands; those of the package beside the library that are missing say how to install it."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in found:
        try:
            entry.load()(app)
        except Exception as reason:  # whatever somebody else's package raises
            app.command(entry.name, context_settings=ANYTHING)(_broken(entry, reason))
    for name in BESIDE.keys() - {entry.name for entry in found}:
        app.command(name, help=BESIDE[name], context_settings=ANYTHING)(_absent(name))


def _absent(name: str) -> Callable[[], None]:
    def command() -> None:
        raise BazaarError(
            f"`{name}` is no part of what is installed here: in a clone of databazaar, `pip install -e experiments`"
        )

    return command


def _broken(entry: EntryPoint, reason: Exception) -> Callable[[], None]:
    package, text = entry.dist.name if entry.dist is not None else entry.value, " ".join(str(reason).split())[:200]

    def command() -> None:
        raise BazaarError(
            f"`{entry.name}` of the package {package} cannot be loaded ({type(reason).__name__}: {text}): "
            "mend or remove that package"
        )

    command.__doc__ = f"Of the package {package}. It cannot be loaded."
    return command
