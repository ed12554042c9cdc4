"""`bazaar provider earnings`: what a provider answered, what the market acknowledges of it, and what was paid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from databazaar.cli.examples import unset
from databazaar.cli.federation import need_packages
from databazaar.cli.screen import say
from databazaar.display import shown
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    from databazaar.federation.records import Earnings


def earnings(
    kit: Annotated[Path, typer.Argument(help="Your kit: the folder with your key.", show_default=False)],
    statement: Annotated[Path | None, unset("Your statement from the operator, to compare.")] = None,
    run: Annotated[str | None, unset("The run to compare with. Default: the statement's own.")] = None,
    by_consumer: Annotated[
        bool, typer.Option("--by-consumer", help="One line a consumer, as the market names them, over all runs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """What you answered, run by run, what the market's receipts acknowledge of it and hold back, and what its statement
    says was paid for it."""
    need_packages()
    from databazaar.federation import receipts, records
    from databazaar.federation.enrolment import load_kit

    given = None
    if statement is not None:
        try:
            given = json.loads(statement.read_text())
        except (OSError, ValueError):
            raise BazaarError(f"{statement} cannot be read as JSON: ask the operator for it again") from None
        if not isinstance(given, dict) or given.get("provider") != load_kit(kit).provider:
            raise BazaarError(f"{statement} is not {load_kit(kit).provider}'s statement: ask the operator for yours")
    kept, worthless = receipts.verified(load_kit(kit).folder)
    lines = records.earnings(records.AccessRecord(load_kit(kit).folder / records.ANSWERS), given, run, kept)
    if as_json:
        typer.echo(json.dumps([asdict(line) for line in (records.by_consumer(lines) if by_consumer else lines)]))
        return
    if not lines:
        typer.echo("nothing answered yet")
    if by_consumer:
        _say_consumers(lines)
        return
    for line in lines:
        say(
            f"run {line.run}{_for_whom(line)}: {line.answered} rounds answered, {line.refused} refused, "
            f"{line.failed} failed" + (f", ε = {line.epsilon:.3g}" if line.epsilon is not None else "")
        )
        for words in (*_acknowledged(line), *_held_back(line, load_kit(kit).market)):
            say(f"  {words}")
        if line.pay_text is not None:
            say(f"  paid {line.pay_text}; {_differences(line)}")
        if line.unknown_rounds:
            typer.echo("  somebody may answer with a copy of your kit: ask the operator, and have the name revoked")
        if line.why:
            say(f"  {shown(line.why)}")
    if worthless:
        say(f"{worthless} lines of {receipts.RECEIPTS} are not signed by the market's server, and no evidence")


def _for_whom(line: Earnings) -> str:
    consumer = f" for {shown(line.consumer, 60)}" if line.consumer else ""
    return consumer + (f" by contract {shown(line.contract, 60)}" if line.contract else "")


def _say_consumers(lines: Sequence[Earnings]) -> None:
    from databazaar.federation.records import by_consumer

    for one in by_consumer(lines):
        runs = f"{one.runs} run{'' if one.runs == 1 else 's'}"
        say(
            f"{shown(one.consumer, 60) or 'no consumer named'}: {one.answered} rounds of {runs} answered, "
            f"{one.refused} refused, {one.failed} failed; by receipts {one.acknowledged} acknowledged, {one.earned} "
            f"earned, {one.held} held back, in the smallest unit of the currency"
        )


def _acknowledged(line: Earnings) -> list[str]:
    """What the receipts say, in words."""
    if not line.receipts:
        return ["no receipt of the market has come yet"]
    words = f"receipts acknowledge {line.acknowledged} of {line.answered} rounds answered"
    if line.denied_rounds:
        words += f"; they know of no answer in round {_rounds(line.denied_rounds)}"
    disputed = [f"the statement pays otherwise than receipts say in round {_rounds(line.disputed_rounds)}"]
    return [words, *line.contradictions, *(disputed if line.disputed_rounds else [])]


def _held_back(line: Earnings, market: str) -> list[str]:
    """What became of held-back pay, by which verdict, and how to object."""
    words = []
    if line.held or line.released or line.returned:
        words.append(
            f"of your pay, {line.released} was held back and released, {line.returned} returned to the consumer, and "
            f"{line.held} is still held back, in the smallest unit of the currency"
        )
    words += map(str, line.verdicts)
    if any(one.what != "cleared" for one in line.verdicts):
        words.append(
            f"to object, write to the operator of {market}, quoting the run, the round, and the entry with its hash: "
            "`bazaar audit` checks that the verdict follows from the figure, and the figure is the arbiter's word"
        )
    return words


def _rounds(rounds: tuple[int, ...]) -> str:
    return ", ".join(map(str, rounds[:10])) + (" …" if len(rounds) > 10 else "")


def _differences(line: Earnings) -> str:
    parts = [
        f"{len(rounds)} rounds {what}: {_rounds(rounds)}"
        for rounds, what in (
            (line.unpaid_rounds, "answered and not paid"),
            (line.unknown_rounds, "paid and not in your record"),
        )
        if rounds
    ]
    return "; ".join(parts) or "every round you answered is paid"
