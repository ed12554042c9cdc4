"""`bazaar jobs`: buying at a hub, from a shell."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from databazaar.cli import hub_access as connecting
from databazaar.cli import requests
from databazaar.cli.examples import example, unset
from databazaar.cli.hub_access import AsJson
from databazaar.cli.interrupts import if_interrupted
from databazaar.cli.screen import say
from databazaar.errors import BazaarError
from databazaar.money import Currency

if TYPE_CHECKING:
    from databazaar.client import Hub
    from databazaar.client.shapes import JobSummary, Quote

app = typer.Typer(
    help="Jobs at a hub, a market that somebody operates. The hub and your token are read from $BAZAAR_HUB and "
    "$BAZAAR_TOKEN, or from what `bazaar jobs connect` has kept.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
JobId = Annotated[str, typer.Argument(help="The job's id.", show_default=False)]


class What(StrEnum):
    MODEL = "model"
    STATEMENT = "statement.json"
    CSV = "statement.csv"
    REPORT = "report.html"


def _tell(job: JobSummary, hub: Hub, as_json: bool) -> None:
    connecting.answer(job, as_json, _job_lines(hub, [job]))


def _job_lines(hub: Hub, found: Iterable[JobSummary]) -> Iterator[str]:
    currency = _currency(hub)
    yield from (line(job, currency) for job in found)


def _currency(hub: Hub) -> Currency:
    market = hub.market()
    return Currency(market.currency, market.decimals)


def line(job: JobSummary, currency: Currency) -> str:
    """One job on one line."""
    parts = [job.id, job.state, f"budget {currency.format(job.budget)}", job.name]
    if job.paid is not None:
        parts.insert(3, f"paid {currency.format(job.paid)}, refunded {currency.format(job.refunded or 0)}")
    stopping = f"the {job.stopped_by} has stopped it: it ends after the round under way"
    reason = stopping if job.stopped_by and job.paid is None else job.reason
    return "  ".join([*parts, *([f"({reason})"] if reason else [])])


@app.command(epilog=example("bazaar jobs connect https://market.example.org"))
def connect(address: Annotated[str, typer.Argument(help="The hub's address.", show_default=False)]) -> None:
    """Keeps the hub's address and your token, which it asks for, in a file that only you can read."""
    from databazaar.client import Hub

    token = connecting.asked_token()
    with Hub(address, token) as hub:
        me = hub.me()
    path = connecting.keep_config(address, token)
    say(f"{path} is kept: you are {me.organisation.name} at {me.market.name}")


@app.command(
    epilog=example(
        "bazaar jobs show",
        "bazaar jobs show 3f0c…",
        "bazaar jobs show 3f0c… --quote",
        "bazaar jobs show 3f0c… --follow",
    )
)
def show(
    job_id: Annotated[str | None, typer.Argument(help="The job's id. Default: all jobs.", show_default=False)] = None,
    quote: Annotated[
        bool, typer.Option("--quote", help="What it will cost at the most, and how long it will wait.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Until it is over: a line for each round and each change of its state.")
    ] = False,
    since: Annotated[int, typer.Option(min=0, help="With --follow: only rounds after this one.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Your jobs, the newest first; or one job, with what has happened to it and who agreed."""
    if quote and follow:
        raise BazaarError("--quote and --follow exclude each other: give one of them")
    if job_id is None and (quote or follow):
        raise BazaarError("--quote and --follow are of one job: give its id too")
    with connecting.connected() as hub:
        if job_id is None:
            _list(hub, as_json)
        elif quote:
            found = hub.quote(job_id)
            connecting.answer(found, as_json, quoted(found, _currency(hub)))
        elif follow:
            _watch(hub, job_id, since, as_json)
        else:
            _show(hub, job_id, as_json)


def _list(hub: Hub, as_json: bool) -> None:
    found = list(hub.jobs())
    none = ["no jobs yet: `bazaar jobs submit market.toml` makes one"]
    connecting.answer(found, as_json, chain(_job_lines(hub, found), none if not found else ()))


def _show(hub: Hub, job_id: str, as_json: bool) -> None:
    job = hub.job(job_id)
    events, contracts = hub.events(job_id), list(hub.contracts(job_id))

    def lines() -> Iterator[str]:
        currency = _currency(hub)
        yield line(job, currency)
        for contract in contracts:
            reason = f": {contract.reason}" if contract.reason else ""
            paid = "" if contract.paid is None else f"  {contract.accesses} accesses, {currency.format(contract.paid)}"
            yield f"  {contract.offer}  {currency.format(contract.price)}  {contract.state}{reason}{paid}"
        for event in events:
            yield f"  {event.at:%Y-%m-%dT%H:%M:%S}  {event.state}  {event.detail}".rstrip()

    connecting.answer({"job": job, "events": events, "contracts": contracts}, as_json, lines())


@app.command(
    epilog=example(
        "bazaar jobs submit market.toml", "bazaar jobs submit market.toml --draft --json", "bazaar jobs submit 3f0c…"
    )
)
def submit(
    market: Annotated[
        str,
        typer.Argument(
            help="A market.toml whose providers name offers by slug; or the id of a draft.", show_default=False
        ),
    ],
    draft: Annotated[bool, typer.Option("--draft", help="Do not ask the providers yet.")] = False,
    own: Annotated[bool, typer.Option("--own", help="You run the arbiter, and your hold-out stays with you.")] = False,
    as_json: AsJson = False,
) -> None:
    """Makes a job from a market.toml, with the files that it names, and asks its providers. It costs nothing yet."""
    path = Path(market)
    is_file = path.suffix == ".toml" or path.exists()
    if not is_file and (draft or own):
        raise BazaarError(f"--draft and --own make a new job, and {market} is no market.toml: omit them, or give one")
    with connecting.connected() as hub:
        if not is_file:
            _tell(hub.submit(market), hub, as_json)
            return
        job: JobSummary = hub.draft_from_market(path, "own" if own else "hosted")
        if not draft:
            job = _submitted(hub, job.id)
        _tell(job, hub, as_json)


def _submitted(hub: Hub, job_id: str) -> JobSummary:
    from databazaar.client.connection import HubError

    try:
        return hub.submit(job_id)
    except HubError as refused:
        kept = f"`bazaar jobs submit {job_id}` asks again, and `bazaar jobs stop {job_id}` gives it up"
        raise BazaarError(f"{refused}; the draft {job_id} is kept: {kept}") from None


def quoted(found: Quote, currency: Currency) -> Iterator[str]:
    """A quote, line by line."""
    money, run = currency.format, found.quote
    fee = f"fee {money(found.most_fee)} at the most ({found.fee_basis_points / 100:.2f} % of pay)"
    yield f"into escrow: {money(found.escrow)} = budget {money(found.budget)} + {fee}"
    yield "what is not spent comes back"
    for name in ("accesses", "rounds"):
        simulated = run[name]
        ends = f"{simulated['low']:,} to {simulated['high']:,} in simulated runs"
        yield f"{name}: about {simulated['median']:,} ({ends})"
    yield f"a round has {run['per_round']} accesses or fewer"
    wait = "not known yet" if found.wait is None else f"about {found.wait:.0f} s"
    yield f"wait before it starts: {wait}"
    for provider in run["providers"]:
        yield f"  {provider['id']}  {money(provider['price'])} an access  {provider['status']}"
    if run["defence"]:
        yield f"defence: {run['defence']}"
    yield from (f"- {warning}" for warning in run["warnings"])


@app.command(epilog=example("bazaar jobs fund 3f0c…"))
def fund(job_id: JobId, as_json: AsJson = False) -> None:
    """Locks the money for a job that is agreed, and queues it."""
    with connecting.connected() as hub:
        _tell(hub.fund(job_id), hub, as_json)


def _watch(hub: Hub, job_id: str, since: int, as_json: bool) -> None:
    with if_interrupted("the job goes on without you"):
        currency = _currency(hub)
        for seen in hub.watch(job_id, since):
            if as_json:
                typer.echo(json.dumps({"event": seen.kind, **seen.data}))
            else:
                say(_round(seen.data, currency) if seen.kind == "round" else _state(seen.data))


def _round(told: dict[str, Any], currency: Currency) -> str:
    spent, budget = currency.format(told["asked"]), currency.format(told["budget"])
    held = told["asked"] - told["spent"]
    waits = f" ({currency.format(held)} held back)" if held else ""
    paid = ", ".join(told["paid"])
    return f"round {told['round']}  utility {told['utility']:.4f}  spent {spent} of {budget}{waits}  {paid}"


def _state(told: dict[str, Any]) -> str:
    return f"{told['state']}: {told['reason']}" if told["reason"] else str(told["state"])


@app.command(epilog=example("bazaar jobs stop 3f0c…"))
def stop(job_id: JobId, as_json: AsJson = False) -> None:
    """Ends a job after the round under way; the rest of the money comes back. One that is not funded is withdrawn."""
    with connecting.connected() as hub:
        funded = hub.job(job_id).state not in ("draft", "submitted", "agreed")
        _tell(hub.stop(job_id) if funded else hub.withdraw(job_id), hub, as_json)


@app.command(epilog=example("bazaar jobs download 3f0c…", "bazaar jobs download 3f0c… --what model --out results"))
def download(
    job_id: JobId,
    what: Annotated[list[What] | None, typer.Option(help="One of them; again for more. Default: all.")] = None,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path(),
) -> None:
    """The model, the statement and the report of a job that is over."""
    with connecting.connected() as hub:
        for one in what or list(What):
            name = "model.zip" if one is What.MODEL else one.value
            say(hub.download(job_id, one.value, out / f"{job_id}-{name}"))


@app.command(epilog=example("bazaar jobs run 3f0c… --holdout own.csv"))
def run(
    job_id: JobId,
    holdout: Annotated[Path | None, unset("Your hold-out.")] = None,
    train: Annotated[Path | None, unset("Rows to start from.")] = None,
    audit: Annotated[Path | None, unset("Rows to audit by.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder.", show_default="runs/JOB")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the report's path.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plays a job of yours that was made with --own, and is funded: your files stay on this machine, and the hub is
    the notary. Called again, it goes on where it was."""
    from databazaar.cli import own_arbiter, play

    given = {"holdout": holdout, "train": train, "audit": audit}
    files = {role: path for role, path in given.items() if path is not None}
    own_arbiter.play_own(*connecting.named_hub(), job_id, out, files, play.Output(quiet, as_json))


app.command(
    epilog=example(
        "bazaar jobs requests",
        "bazaar jobs requests 3f0c… agree",
        'bazaar jobs requests 3f0c… refuse --reason "…"',
        "bazaar jobs requests 3f0c… --schema schema.json",
    )
)(requests.requests)
