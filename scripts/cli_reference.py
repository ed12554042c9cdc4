"""Writes docs/reference/cli.md from the help of every command: python scripts/cli_reference.py"""

from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from databazaar.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
TOP = """\
# The command line

This page is the output of `--help`, written by `python scripts/cli_reference.py`.

What you can mend is one sentence on standard error and exit code 2. Progress goes to standard error, the outcome to
standard output; `--json` prints the outcome alone, for scripts. A run's folder is made by `run` or `demo`; `run`
continues it, and `show`, `audit` and `close` take it.
"""


def commands() -> list[str]:
    """The commands in the order of the help, such as "run" and "provider join"."""
    names = []
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        names.append(name)
        names += [f"{name} {inner}" for inner in getattr(command, "commands", {})]
    return names


def told(*args: str) -> str:
    """The help as a terminal of 100 columns shows it."""
    outcome = CliRunner().invoke(app, [*args, "--help"], prog_name="bazaar", env={"COLUMNS": "100"}, terminal_width=100)
    assert outcome.exit_code == 0, outcome.output
    return "\n".join(line.rstrip() for line in outcome.output.strip().splitlines())


def reference() -> str:
    parts = [TOP, f"## bazaar\n\n```text\n{told()}\n```\n"]
    parts += [f"## bazaar {command}\n\n```text\n{told(*command.split())}\n```\n" for command in commands()]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(reference(), encoding="utf-8")
    typer.echo(PAGE)
