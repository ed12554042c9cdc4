"""`bazaar jobs requests`: what a provider is asked for at a hub, and its yes or no."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from databazaar.cli import connecting
from databazaar.cli.screen import say
from databazaar.display import listed, shown
from databazaar.money import Currency

if TYPE_CHECKING:
    from databazaar.client.answers import Contract

ContractId = Annotated[str, typer.Argument(help="The contract's id.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, and nothing else.")]
MODES = {
    "hosted": "hosted: the hub's arbiter gets your updates",
    "own": "own: your updates go to the consumer as they are",
}


class Answer(StrEnum):
    AGREE = "agree"
    REFUSE = "refuse"


def show(as_json: AsJson = False) -> None:
    """For a provider: who asks for your data, for what, and at which price. You decide each with `decide`."""
    with connecting.connected() as hub:
        found = list(hub.requests())
        if as_json:
            typer.echo(json.dumps(found))
            return
        market = hub.market()
        for contract in found:
            for line in told(contract, Currency(market["currency"], market["decimals"])):
                say(line)
        if not found:
            say("no request waits for you")


def told(contract: Contract, currency: Currency) -> Iterator[str]:
    """A request, line by line."""
    price = f"{currency.format(contract['price'])} an access"
    asks = f"{contract['consumer']} asks for {contract['offer']}"
    yield f"{contract['id']}  {asks} (version {contract['version']}), {price}"
    names = contract["columns"]
    columns = "columns that its first ask names" if names is None else listed(names, 12)
    yield f"  predicts {shown(contract['target'], 60)!r} ({contract['task']}) by a {contract['model']} from {columns}"
    work = "as many rows as it says then" if contract["rows"] is None else f"{contract['rows']:,} rows"
    yield f"  an ask goes through {work}; {MODES[contract['mode']]}"
    yield f"  defence {contract['defence']}"
    if contract["fingerprint"] is not None:
        yield f"  schema {contract['fingerprint'][:12]}: bazaar jobs schema {contract['id']} --out schema.json"


def schema(
    contract_id: ContractId,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("schema.json"),
) -> None:
    """For a provider with a site: the schema by which it will be asked, to look at and to accept."""
    with connecting.connected() as hub:
        path = hub.schema(contract_id, out)
    say(f"{path}: your site takes it with `bazaar provider schema kit --accept {path}`")


def decide(
    contract_id: ContractId,
    answer: Annotated[Answer, typer.Argument(help="Your answer.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Why; the consumer reads it.")] = "",
) -> None:
    """For a provider: your yes or no to a request."""
    with connecting.connected() as hub:
        decided = hub.decide(contract_id, answer is Answer.AGREE, reason)
    say(f"{decided['id']}  {decided['state']}")
