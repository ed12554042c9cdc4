"""`bazaar provider`: the provider's side. Its key and its data stay on its machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from databazaar.cli import earnings as earning
from databazaar.cli.options import Kit, example, number_below
from databazaar.cli.screen import say
from databazaar.errors import BazaarError

app = typer.Typer(
    help="The provider's side of a federated market: answer from your own machine, and see what you earned.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

REASONABLE = number_below(1e6)
Data = Annotated[Path | None, typer.Option(help="Your CSV, TSV or Parquet file.")]


@app.command(
    epilog=example(
        "bazaar provider request harbour-bank.json --kit kit",
        "bazaar provider request kit",
        "bazaar provider request kit --new-key",
    )
)
def request(
    invitation: Annotated[
        Path, typer.Argument(help="What the operator sent you; or your kit, to renew its certificate.")
    ],
    kit: Annotated[Path, typer.Option(help="A new folder for your key.")] = Path("kit"),
    new_key: Annotated[bool, typer.Option("--new-key", help="Renew with a new key, used when you join again.")] = False,
) -> None:
    """Makes your key, and the request to send back to the operator. The key never leaves the kit. For a kit that has a
    certificate, requests a new one before it ends; you go on with the old one until then."""
    from databazaar.federation import enrolment, renewal

    renews = invitation.is_dir()
    if new_key and not renews:
        raise BazaarError("--new-key renews a kit's certificate: give the kit instead of an invitation")
    path = renewal.renew(invitation, new_key) if renews else enrolment.request(invitation, kit)
    typer.echo(f"{path}: send it to the operator, who runs `bazaar federation sign {path.name}`")
    if renews:
        certificate = f"{path.name.split('.')[0]}.json"
        typer.echo(f"put what comes back in place with `bazaar provider complete {certificate} --kit {invitation}`")


@app.command(
    epilog=example("bazaar provider complete harbour-bank.json --kit kit", "bazaar provider complete crl.pem --kit kit")
)
def complete(
    sent: Annotated[
        Path, typer.Argument(help="What the operator sent: your certificate, or a revocation list (.pem).")
    ],
    kit: Annotated[Path, typer.Option(help="The kit with your key.")] = Path("kit"),
) -> None:
    """Puts your certificate into the kit, which then can connect. The market's revocation list says which servers are
    not believed any more, because their key was stolen."""
    from databazaar.federation import enrolment, renewal

    if sent.suffix == ".pem":
        renewal.take_list(kit, sent)
        typer.echo(f"{kit} has the list, and looks at it whenever it connects")
        return
    made = enrolment.complete(kit, sent)
    typer.echo(f"{kit} is complete: `bazaar provider check {kit}` looks whether {made.market} can be reached")


@app.command(
    epilog=example(
        "bazaar provider join kit --data bank1.parquet",
        "bazaar provider join kit --oracle my_oracle:update",
        "bazaar provider join kit --data bank1.parquet --schema schema.json",
        "bazaar provider join kit --data bank1.parquet --epsilon-cap 4 --noise 1.1 --clip 1",
        "bazaar provider join kit --data bank1.parquet --consumers north-bank,city-bank --max-accesses 500",
        "bazaar provider join kit --data bank1.parquet --schemas 20",
    )
)
def join(
    kit: Kit,
    data: Data = None,
    oracle: Annotated[
        str | None, typer.Option(help="Instead of data: module:function, from parameters to update (NumPy).")
    ] = None,
    models: Annotated[str, typer.Option(help="Model kinds that you allow.")] = "linear,logistic,mlp,cnn",
    max_parameters: Annotated[int, typer.Option(min=1, help="The largest model that you allow.")] = 50_000_000,
    max_samples: Annotated[int, typer.Option(min=1, help="The most rows × epochs for one answer.")] = 50_000_000,
    max_memory: Annotated[
        float, typer.Option(callback=REASONABLE, help="GB that one answer may take, beside your data.")
    ] = 4.0,
    max_seconds: Annotated[float, typer.Option(callback=REASONABLE, help="The longest that an answer may take.")] = 300,
    max_questions: Annotated[int, typer.Option(min=1, help="The most questions in an hour.")] = 100_000,
    consumers: Annotated[
        str | None, typer.Option(help="Consumers that you answer, as the market names them. Default: all.")
    ] = None,
    max_accesses: Annotated[
        int | None, typer.Option(min=1, help="The most answers for one job. Default: any number.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="The schema that you answer by. Default: the first that the market asks with.")
    ] = None,
    schemas: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="Answer by up to this many schemas as they come, if they predict the same target: every consumer has "
            "one of its own. Default: the first.",
        ),
    ] = None,
    epsilon_cap: Annotated[
        float | None, typer.Option(callback=REASONABLE, help="Answer with differential privacy, up to this ε in all.")
    ] = None,
    max_epsilon_per_consumer: Annotated[
        float | None, typer.Option(callback=REASONABLE, help="Up to this ε for any one consumer, with --epsilon-cap.")
    ] = None,
    noise: Annotated[
        float, typer.Option(min=0.01, callback=REASONABLE, help="Noise multiplier, with --epsilon-cap.")
    ] = 1.0,
    clip: Annotated[
        float, typer.Option(min=1e-6, callback=REASONABLE, help="Bound on a row's gradient, with --epsilon-cap.")
    ] = 1.0,
    delta: Annotated[float, typer.Option(callback=number_below(1), help="δ, with --epsilon-cap.")] = 1e-5,
    account: Annotated[
        str | None, typer.Option(help="The privacy account to charge. Default: the one that knows your data.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads for the computation.")] = 1,
    at_once: Annotated[
        int, typer.Option(min=1, max=1000, help="Questions that your --oracle answers at a time, each in a thread.")
    ] = 1,
) -> None:
    """Joins the market and answers until you stop it with Ctrl-C."""
    from databazaar.cli import enrolment as joining

    policy = joining.policy(
        models,
        consumers,
        max_parameters=max_parameters,
        max_samples=max_samples,
        max_memory=int(max_memory * 1e9),
        max_seconds=max_seconds,
        max_questions=max_questions,
        max_accesses=max_accesses,
    )
    source = joining.source(data, oracle, kit, schema, schemas)
    privacy = joining.privacy(source, epsilon_cap, noise, clip, delta, account, max_epsilon_per_consumer)
    joining.stay(kit, source, policy, privacy, threads, at_once)


@app.command(
    epilog=example(
        "bazaar provider schema kit",
        "bazaar provider schema kit --accept 3f0c12ab94de",
        "bazaar provider schema kit --accept schema.json",
    )
)
def schema(
    kit: Kit,
    accept: Annotated[
        str | None, typer.Option(help="Accept the offered schema of this fingerprint, or the one in this file.")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="No longer accept the schema of this fingerprint.")] = None,
) -> None:
    """Shows the schemas that you answer by, and those that the market offers: what is predicted from what."""
    from databazaar.federation.accepted_schemas import AcceptedSchemas, fingerprint, meaning, read_schema
    from databazaar.federation.enrolment import load_kit

    pins = AcceptedSchemas(load_kit(kit).folder)
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


@app.command(epilog=example("bazaar provider check kit", "bazaar provider check kit --data bank1.parquet"))
def check(kit: Kit, data: Data = None) -> None:
    """Looks at key, certificate, policy, name, connection, clock and data before anything is at stake, and shows what
    your privacy accounts have spent over all kits and markets."""
    from databazaar.federation.accountant import Accounts, epsilon_of, users_folder
    from databazaar.federation.check import check as look
    from databazaar.federation.check import check_data

    found = look(kit)
    if data is not None:
        found.append(check_data(kit, data))
    for finding in found:
        say(f"{'ok  ' if finding.ok else 'BAD '} {finding.what:<12} {finding.says}")
    for name, account in Accounts(users_folder()).known().items():
        spent = epsilon_of(account.history, account.delta)
        say(f"account {name}: ε = {spent:.3g} at δ = {account.delta:g}")
        for file in account.files:
            say(f"  {file}")
    if not all(finding.ok for finding in found):
        raise typer.Exit(BazaarError.exit_code)


app.command(
    epilog=example(
        "bazaar provider earnings kit",
        "bazaar provider earnings kit --by-consumer",
        "bazaar provider earnings kit --statement harbour-bank.json",
    )
)(earning.earnings)
