"""Commands that other packages bring along, under the entry points `databazaar.commands`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

import typer

from databazaar.errors import BazaarError

GROUP = "databazaar.commands"
"""An entry point here is a function that takes the Typer app and adds a command to it."""

ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


def add_commands(app: typer.Typer) -> None:
    """Adds what is installed; `reproduce`, which is ours but no part of the library, says where it is to be had."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in found:
        try:
            entry.load()(app)
        except Exception as reason:  # whatever somebody else's package raises
            app.command(entry.name, context_settings=ANYTHING)(_broken(entry, reason))
    if "reproduce" not in {entry.name for entry in found}:
        app.command("reproduce", context_settings=ANYTHING)(_absent)


def _absent() -> None:
    """The paper's evaluation. It is not installed here."""
    raise BazaarError(
        "`reproduce` is no part of what is installed here: in a clone of databazaar, `pip install -e experiments`"
    )


def _broken(entry: EntryPoint, reason: Exception) -> Callable[[], None]:
    package, text = entry.dist.name if entry.dist is not None else entry.value, " ".join(str(reason).split())[:200]

    def command() -> None:
        raise BazaarError(
            f"`{entry.name}` of the package {package} cannot be loaded ({type(reason).__name__}: {text}): "
            "mend or remove that package"
        )

    command.__doc__ = f"Of the package {package}. It cannot be loaded."
    return command
