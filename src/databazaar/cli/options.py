"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path | None, typer.Option("--out", help="Folder for the run. Default: a new one under runs/.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and only the last line.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, and nothing else.")]
Run = Annotated[Path, typer.Argument(help="The run's folder.", show_default=False)]
Database = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URL",
        help="The database that the ledger is in, if it is in one. Default: $DATABAZAAR_LEDGER_URL.",
        show_default=False,
    ),
]
