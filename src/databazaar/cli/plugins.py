"""Commands that other packages bring along, under the entry points `databazaar.commands`."""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from databazaar.errors import BazaarError

GROUP = "databazaar.commands"
"""An entry point here is a function that takes the Typer app and adds a command to it."""

BESIDE = {
    "attack": "Lets a provider play against the market. It is not installed here.",
    "reproduce": "The paper's evaluation. It is not installed here.",
}
"""Commands of the package beside the library, in `experiments/`, and their help where it is not installed."""


def add_commands(app: typer.Typer) -> None:
    """Add the installed commands; those of the package beside the library that are missing say how to install it."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    for entry in found:
        try:
            entry.load()(app)
        except Exception as reason:  # whatever somebody else's package raises
            package = entry.dist.name if entry.dist is not None else entry.value
            why = f"{type(reason).__name__}: {' '.join(str(reason).split())[:200]}"
            fault = f"of the package {package} cannot be loaded ({why}): mend or remove that package"
            _add_refusal(app, entry.name, f"Of the package {package}. It cannot be loaded.", fault)
    for name in BESIDE.keys() - {entry.name for entry in found}:
        fault = "is no part of what is installed here: in a clone of databazaar, `pip install -e experiments`"
        _add_refusal(app, name, BESIDE[name], fault)


def _add_refusal(app: typer.Typer, name: str, help: str, fault: str) -> None:
    def command() -> None:
        raise BazaarError(f"`{name}` {fault}")

    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, help=help, context_settings=anything)(command)
