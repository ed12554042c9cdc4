"""Commands that other packages bring along, under the entry points `databazaar.commands`."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from databazaar.errors import BazaarError

GROUP = "databazaar.commands"
"""An entry point here is a function that takes the Typer app and adds a command to it."""


def add_commands(app: typer.Typer) -> None:
    """Adds what is installed; `reproduce`, which is ours but no part of the library, says where it is to be had."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in found:
        entry.load()(app)
    if "reproduce" not in {entry.name for entry in found}:
        app.command("reproduce", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(_absent)


def _absent() -> None:
    """The paper's evaluation. It is not installed here."""
    raise BazaarError(
        "`reproduce` is no part of what is installed here: in a clone of databazaar, `pip install -e experiments`"
    )
