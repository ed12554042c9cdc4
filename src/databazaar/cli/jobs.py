"""`bazaar jobs`: buying and selling at a hub, from a shell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from databazaar.cli import hub_access as connecting
from databazaar.cli.interrupts import if_interrupted
from databazaar.cli.options import AsJson, example
from databazaar.cli.screen import say
from databazaar.display import listed, shown
from databazaar.errors import BazaarError
from databazaar.money import Currency

if TYPE_CHECKING:
    from databazaar.client import Hub
    from databazaar.client.shapes import Contract, JobSummary, Quote

app = typer.Typer(
    help="Jobs at a hub, a market that somebody operates. The hub and your token are read from $BAZAAR_HUB and "
    "$BAZAAR_TOKEN, or from what `bazaar jobs connect` has kept.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
JobId = Annotated[str, typer.Argument(help="The job's id.")]
MODES = {
    "hosted": "hosted: the hub's arbiter gets your updates",
    "own": "own: your updates go to the consumer as they are",
}


class What(StrEnum):
    MODEL = "model"
    STATEMENT = "statement.json"
    CSV = "statement.csv"
    REPORT = "report.html"


def _answer(hub: Hub, found: Any, as_json: bool, lines: Callable[[Any, Currency], Iterable[str]]) -> None:
    if as_json:
        from pydantic_core import to_json

        typer.echo(to_json(found).decode())
        return
    for line in lines(found, _currency(hub)):
        say(line)


def _currency(hub: Hub) -> Currency:
    market = hub.me().market
    return Currency(market.currency, market.decimals)


def _job(job: JobSummary, currency: Currency) -> Iterator[str]:
    parts = [job.id, job.state, f"budget {currency.format(job.budget)}", job.name]
    if job.paid is not None:
        parts.insert(3, f"paid {currency.format(job.paid)}, refunded {currency.format(job.refunded or 0)}")
    stopping = f"the {job.stopped_by} has stopped it: it ends after the round under way"
    reason = stopping if job.stopped_by and job.paid is None else job.reason
    yield "  ".join([*parts, *([f"({reason})"] if reason else [])])


@app.command(epilog=example("bazaar jobs connect https://market.example.org"))
def connect(address: Annotated[str, typer.Argument(help="The hub's address.")]) -> None:
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
    job_id: Annotated[str | None, typer.Argument(help="The job's id. Default: all jobs.")] = None,
    quote: Annotated[
        bool, typer.Option("--quote", help="What it will cost at the most, and how long it will wait.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Until it is over: a line for each round and each change of its state.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Your jobs, the newest first; or one job, with what has happened to it and who agreed."""
    if quote and follow:
        raise BazaarError("--quote and --follow exclude each other: give one of them")
    if job_id is None and (quote or follow):
        raise BazaarError("--quote and --follow are of one job: give its id too")
    with connecting.connected() as hub:
        if job_id is None:
            _answer(hub, list(hub.jobs()), as_json, _jobs)
        elif quote:
            _answer(hub, hub.quote(job_id), as_json, _quote)
        elif follow:
            _follow(hub, job_id, as_json)
        else:
            contracts = list(hub.contracts(job_id))
            found = {"job": hub.job(job_id), "events": hub.events(job_id), "contracts": contracts}
            _answer(hub, found, as_json, _history)


def _jobs(found: list[JobSummary], currency: Currency) -> Iterator[str]:
    for job in found:
        yield from _job(job, currency)
    if not found:
        yield "no jobs yet: `bazaar jobs submit market.toml` makes one"


def _history(found: dict[str, Any], currency: Currency) -> Iterator[str]:
    yield from _job(found["job"], currency)
    for contract in found["contracts"]:
        reason = f": {contract.reason}" if contract.reason else ""
        paid = "" if contract.paid is None else f"  {contract.accesses} accesses, {currency.format(contract.paid)}"
        yield f"  {contract.offer}  {currency.format(contract.price)}  {contract.state}{reason}{paid}"
    for event in found["events"]:
        yield f"  {event.at:%Y-%m-%dT%H:%M:%S}  {event.state}  {event.detail}".rstrip()


def _quote(found: Quote, currency: Currency) -> Iterator[str]:
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


def _follow(hub: Hub, job_id: str, as_json: bool) -> None:
    with if_interrupted("the job goes on without you"):
        currency = _currency(hub)
        for seen in hub.watch(job_id):
            told = seen.data
            if as_json:
                typer.echo(json.dumps({"event": seen.kind, **told}))
            elif seen.kind == "round":
                spent, held = currency.format(told["asked"]), told["asked"] - told["spent"]
                waits = f" ({currency.format(held)} held back)" if held else ""
                money = f"spent {spent} of {currency.format(told['budget'])}{waits}"
                say(f"round {told['round']}  utility {told['utility']:.4f}  {money}  {', '.join(told['paid'])}")
            else:
                say(f"{told['state']}: {told['reason']}" if told["reason"] else told["state"])


@app.command(
    epilog=example(
        "bazaar jobs submit market.toml", "bazaar jobs submit market.toml --draft --json", "bazaar jobs submit 3f0c…"
    )
)
def submit(
    market: Annotated[
        str, typer.Argument(help="A market.toml whose providers name offers by slug; or the id of a draft.")
    ],
    draft: Annotated[bool, typer.Option("--draft", help="Do not ask the providers yet.")] = False,
    own: Annotated[bool, typer.Option("--own", help="You run the arbiter, and your hold-out stays with you.")] = False,
    as_json: AsJson = False,
) -> None:
    """Makes a job from a market.toml, with the files that it names, and asks its providers. It costs nothing yet."""
    from databazaar.client import HubError

    path = Path(market)
    is_file = path.suffix == ".toml" or path.exists()
    if not is_file and (draft or own):
        raise BazaarError(f"--draft and --own make a new job, and {market} is no market.toml: omit them, or give one")
    with connecting.connected() as hub:
        if not is_file:
            _answer(hub, hub.submit(market), as_json, _job)
            return
        job: JobSummary = hub.draft_from_market(path, "own" if own else "hosted")
        try:
            job = job if draft else hub.submit(job.id)
        except HubError as refused:
            kept = f"`bazaar jobs submit {job.id}` asks again, and `bazaar jobs stop {job.id}` gives it up"
            raise BazaarError(f"{refused}; the draft {job.id} is kept: {kept}") from None
        _answer(hub, job, as_json, _job)


@app.command(epilog=example("bazaar jobs fund 3f0c…"))
def fund(job_id: JobId, as_json: AsJson = False) -> None:
    """Locks the money for a job that is agreed, and queues it."""
    with connecting.connected() as hub:
        _answer(hub, hub.fund(job_id), as_json, _job)


@app.command(epilog=example("bazaar jobs stop 3f0c…"))
def stop(job_id: JobId, as_json: AsJson = False) -> None:
    """Ends a job after the round under way; the rest of the money comes back. One that is not funded is withdrawn."""
    with connecting.connected() as hub:
        funded = hub.job(job_id).state not in ("draft", "submitted", "agreed")
        _answer(hub, hub.stop(job_id) if funded else hub.withdraw(job_id), as_json, _job)


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
    holdout: Annotated[Path | None, typer.Option(help="Your hold-out.")] = None,
    train: Annotated[Path | None, typer.Option(help="Rows to start from.")] = None,
    audit: Annotated[Path | None, typer.Option(help="Rows to audit by.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder.", show_default="runs/JOB")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the report's path.")] = False,
    as_json: AsJson = False,
) -> None:
    """Plays a job of yours that was made with --own, and is funded: your files stay on this machine, and the hub is
    the notary. Called again, it goes on where it was."""
    from databazaar.cli import own_arbiter, play
    from databazaar.client.own_arbiter import NotaryClient

    given = {"holdout": holdout, "train": train, "audit": audit}
    files = {role: path for role, path in given.items() if path is not None}
    folder, again = out or Path("runs") / job_id, f"bazaar jobs run {job_id}" + (f" --out {out}" if out else "")
    with (
        NotaryClient(*connecting.named_hub(), job_id) as notary,
        own_arbiter.playing_own(notary, folder, files) as playing,
    ):
        play.say_remarks(playing.job, quiet)
        play.finish(playing, play.Output(quiet, as_json), again, f"bazaar jobs stop {job_id}")


@app.command(
    epilog=example(
        "bazaar jobs requests",
        "bazaar jobs requests 3f0c… agree",
        'bazaar jobs requests 3f0c… refuse --reason "…"',
        "bazaar jobs requests 3f0c… --schema schema.json",
    )
)
def requests(
    contract_id: Annotated[str | None, typer.Argument(help="One request, by its id. Default: all.")] = None,
    answer: Annotated[Literal["agree", "refuse"] | None, typer.Argument(help="Your answer to it.")] = None,
    reason: Annotated[str, typer.Option(help="Why; the consumer reads it.")] = "",
    schema: Annotated[
        Path | None, typer.Option(help="Write the schema by which your site will be asked to this file.")
    ] = None,
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
            decided = hub.decide(contract_id or "", answer == "agree", reason)
            say(f"{decided.id}  {decided.state}")
        elif schema is None:
            found = [contract for contract in hub.requests() if contract_id in (None, contract.id)]
            if contract_id is not None and not found:
                raise BazaarError(f"no request {contract_id} waits for you: `bazaar jobs requests` lists those that do")
            _answer(hub, found, as_json, _requests)


def _requests(found: list[Contract], currency: Currency) -> Iterator[str]:
    for contract in found:
        price = f"{currency.format(contract.price)} an access"
        yield f"{contract.id}  {contract.consumer} asks for {contract.offer} (version {contract.version}), {price}"
        names = contract.columns
        columns = "columns that its first ask names" if names is None else listed(names, 12)
        yield f"  predicts {shown(contract.target, 60)!r} ({contract.task}) by model {contract.model} from {columns}"
        if contract.trains_on_rows:
            yield f"  an access buys up to {contract.rows:,} rows of the table, which train the model inside the hub"
            yield f"  learner {contract.learner}; {contract.mode}: no row leaves the hub"
        else:
            work = "as many rows as it says then" if contract.rows is None else f"{contract.rows:,} rows"
            yield f"  an ask goes through {work}; {MODES[contract.mode]}"
        yield f"  defence {contract.defence}"
        if contract.fingerprint is not None:
            yield f"  schema {contract.fingerprint[:12]}: bazaar jobs requests {contract.id} --schema schema.json"
    if not found:
        yield "no request waits for you"
