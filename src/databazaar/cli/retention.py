"""What a provider keeps for itself: the schemas that it answers by, and its privacy accounts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from databazaar.cli.federation import need_packages
from databazaar.cli.screen import say


def schema(
    kit: Annotated[Path, typer.Argument(help="Your kit: the folder with your key.", show_default=False)],
    accept: Annotated[
        str | None,
        typer.Option(
            help="Accept the offered schema of this fingerprint, or the one in this file.", show_default=False
        ),
    ] = None,
    drop: Annotated[
        str | None, typer.Option(help="No longer accept the schema of this fingerprint.", show_default=False)
    ] = None,
) -> None:
    """Shows the schemas that you answer by, and those that the market offers: what is predicted from what."""
    need_packages()
    from databazaar.federation.enrolment import load_kit
    from databazaar.federation.pins import Pins, fingerprint, meaning, read_schema

    pins = Pins(load_kit(kit).folder)
    if accept is not None and (accept.endswith(".json") or Path(accept).is_file()):
        pins.accept(read_schema(Path(accept)), "accepted")
    elif accept is not None:
        pins.accept_offer(accept)
    if drop is not None:
        pins.drop(drop)
    for line in pins.current():
        say(f"accepted  {line}")
    for offered in pins.offers():
        by = f", for {offered.consumer}" if offered.consumer else ""
        say(f"offered   {meaning(offered.schema_)}{by}")
        short = fingerprint(offered.schema_)[:12]
        say(f"  refused so far; to accept it: bazaar provider schema {kit} --accept {short}")


def say_accounts() -> None:
    """The privacy accounts, and what each has spent over all kits and markets."""
    from databazaar.federation.accountant import epsilon_of, history_in
    from databazaar.federation.accounts import Accounts, users_folder

    kept = Accounts(users_folder())
    for name, account in kept.known().items():
        delta = float(account.get("delta", 1e-5))
        spent = epsilon_of(history_in(account, kept.folder / f"{name}.json"), delta)
        say(f"account {name}: ε = {spent:.3g} at δ = {delta:g}")
        for file in account.get("files", []):
            say(f"  {file}")
