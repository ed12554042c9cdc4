"""`bazaar provider earnings`: what a provider answered, what the market acknowledges of it, and what was paid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from databazaar.cli.options import AsJson, Kit
from databazaar.cli.screen import say
from databazaar.codes import counted
from databazaar.display import listed, shown
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    from databazaar.federation.records import Earnings

_rounds = partial(listed, most=10)


def earnings(
    kit: Kit,
    statement: Annotated[Path | None, typer.Option(help="Your statement from the operator, to compare.")] = None,
    by_consumer: Annotated[
        bool, typer.Option("--by-consumer", help="One line a consumer, as the market names them, over all runs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What you answered, run by run, what the market's receipts acknowledge of it and hold back, and what its statement
    says was paid for it."""
    from databazaar.federation import receipts, records
    from databazaar.federation.enrolment import load_kit

    loaded = load_kit(kit)
    given = None if statement is None else _read_statement(statement, loaded.provider)
    kept, worthless = receipts.verified(loaded.folder)
    runs = records.earnings(records.AccessRecord(loaded.folder / records.ANSWERS), given, kept)
    consumers = records.by_consumer(runs) if by_consumer else {}
    if as_json:
        lines = [{"consumer": name, **own} for name, own in consumers.items()] if by_consumer else map(asdict, runs)
        typer.echo(json.dumps([*lines]))
        return
    if not runs:
        typer.echo("nothing answered yet")
    for name, own in consumers.items():
        say(
            f"{shown(name, 60) or 'no consumer named'}: {own['answered']} rounds of {counted(own['runs'], 'run')} "
            f"answered, {own['refused']} refused, {own['failed']} failed; by receipts {own['acknowledged']} "
            f"acknowledged, {own['earned']} earned, {own['held']} held back, in the smallest unit of the currency"
        )
    if by_consumer:
        return
    for run in runs:
        for line in _of_run(run, loaded.market):
            say(line)
    if worthless:
        say(f"{worthless} lines of {receipts.RECEIPTS} are not signed by the market's server, and no evidence")


def _read_statement(path: Path, provider: str) -> dict[str, Any]:
    try:
        given = json.loads(path.read_text())
    except (OSError, ValueError):
        raise BazaarError(f"{path} cannot be read as JSON: ask the operator for it again") from None
    if not isinstance(given, dict) or given.get("provider") != provider:
        raise BazaarError(f"{path} is not {provider}'s statement: ask the operator for yours")
    return given


def _of_run(line: Earnings, market: str) -> Iterator[str]:
    consumer = f" for {shown(line.consumer, 60)}" if line.consumer else ""
    contract = f" by contract {shown(line.contract, 60)}" if line.contract else ""
    epsilon = "" if line.epsilon is None else f", ε = {line.epsilon:.3g}"
    counts = f"{line.answered} rounds answered, {line.refused} refused, {line.failed} failed"
    yield f"run {line.run}{consumer}{contract}: {counts}{epsilon}"
    if line.receipts:
        denied = f"; they know of no answer in round {_rounds(line.denied_rounds)}" if line.denied_rounds else ""
        yield f"  receipts acknowledge {line.acknowledged} of {line.answered} rounds answered{denied}"
        yield from (f"  {contradiction}" for contradiction in line.contradictions)
        if line.disputed_rounds:
            yield f"  the statement pays otherwise than receipts say in round {_rounds(line.disputed_rounds)}"
    else:
        yield "  no receipt of the market has come yet"
    if line.held or line.released or line.returned:
        yield (
            f"  of your pay, {line.released} was held back and released, {line.returned} returned to the consumer, and "
            f"{line.held} is still held back, in the smallest unit of the currency"
        )
    yield from (f"  {verdict}" for verdict in line.verdicts)
    if any(verdict.what != "cleared" for verdict in line.verdicts):
        yield (
            f"  to object, write to the operator of {market}, quoting the run, the round, and the entry with its hash: "
            "`bazaar audit` checks that the verdict follows from the figure, and the figure is the arbiter's word"
        )
    if line.pay_text is not None:
        unpaid, unknown = line.unpaid_rounds, line.unknown_rounds
        missing = [f"{len(unpaid)} rounds answered and not paid: {_rounds(unpaid)}"] if unpaid else []
        missing += [f"{len(unknown)} rounds paid and not in your record: {_rounds(unknown)}"] if unknown else []
        yield f"  paid {line.pay_text}; {'; '.join(missing) or 'every round you answered is paid'}"
    if line.unknown_rounds:
        yield "  somebody may answer with a copy of your kit: ask the operator, and have the name revoked"
    if line.why:
        yield f"  {shown(line.why)}"
