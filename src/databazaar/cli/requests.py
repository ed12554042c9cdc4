"""`bazaar jobs requests`: what a provider is asked for at a hub, and its yes or no."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from databazaar.cli import hub_access as connecting
from databazaar.cli.examples import unset
from databazaar.cli.hub_access import AsJson
from databazaar.cli.screen import say
from databazaar.display import listed, shown
from databazaar.errors import BazaarError
from databazaar.money import Currency

if TYPE_CHECKING:
    from databazaar.client import Hub
    from databazaar.client.shapes import Contract

MODES = {
    "hosted": "hosted: the hub's arbiter gets your updates",
    "own": "own: your updates go to the consumer as they are",
}


class Answer(StrEnum):
    AGREE = "agree"
    REFUSE = "refuse"


def requests(
    contract_id: Annotated[
        str | None, typer.Argument(help="One request, by its id. Default: all.", show_default=False)
    ] = None,
    answer: Annotated[Answer | None, typer.Argument(help="Your answer to it.", show_default=False)] = None,
    reason: Annotated[str, typer.Option(help="Why; the consumer reads it.")] = "",
    schema: Annotated[Path | None, unset("Write the schema by which your site will be asked to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """For a provider: who asks for your data, for what, and at which price; and your yes or no."""
    if contract_id is None and schema is not None:
        raise BazaarError("--schema is of one request: give its id too")
    if answer is None and reason:
        raise BazaarError("--reason goes with an answer: give agree or refuse too")
    with connecting.connected() as hub:
        if schema is not None:
            path = hub.schema(contract_id or "", schema)
            say(f"{path}: your site takes it with `bazaar provider schema kit --accept {path}`")
        if answer is not None:
            decided = hub.decide(contract_id or "", answer is Answer.AGREE, reason)
            say(f"{decided.id}  {decided.state}")
        elif schema is None:
            _show(hub, contract_id, as_json)


def _show(hub: Hub, contract_id: str | None, as_json: bool) -> None:
    found = [contract for contract in hub.requests() if contract_id in (None, contract.id)]
    if contract_id is not None and not found:
        raise BazaarError(f"no request {contract_id} waits for you: `bazaar jobs requests` lists those that do")

    def lines() -> Iterator[str]:
        market = hub.market()
        for contract in found:
            yield from told(contract, Currency(market.currency, market.decimals))
        if not found:
            yield "no request waits for you"

    connecting.answer(found, as_json, lines())


def told(contract: Contract, currency: Currency) -> Iterator[str]:
    """A request, line by line."""
    price = f"{currency.format(contract.price)} an access"
    asks = f"{contract.consumer} asks for {contract.offer}"
    yield f"{contract.id}  {asks} (version {contract.version}), {price}"
    names = contract.columns
    columns = "columns that its first ask names" if names is None else listed(names, 12)
    yield f"  predicts {shown(contract.target, 60)!r} ({contract.task}) by a {contract.model} from {columns}"
    work = "as many rows as it says then" if contract.rows is None else f"{contract.rows:,} rows"
    yield f"  an ask goes through {work}; {MODES[contract.mode]}"
    yield f"  defence {contract.defence}"
    if contract.fingerprint is not None:
        yield f"  schema {contract.fingerprint[:12]}: bazaar jobs requests {contract.id} --schema schema.json"
