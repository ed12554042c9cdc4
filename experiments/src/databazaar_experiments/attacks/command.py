"""`bazaar attack`: what attackers beside one's own providers would earn, and do to the model, plain and defended."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from databazaar.cli.interrupts import if_interrupted
from databazaar.cli.options import example, named
from databazaar.display import listed
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    from databazaar.config.jobs import Job
    from databazaar.defence import Defence
    from databazaar_experiments.attacks.kinds import Variant
    from databazaar_experiments.attacks.market import Attacked
    from databazaar_experiments.attacks.rehearsal import Rehearsal
    from databazaar_experiments.attacks.tables import Row

DEFAULT = "clones,leak,replay,noise,boost,sign,backdoor,collude,price,selective"
EXAMPLES = (
    "bazaar attack market.toml",
    "bazaar attack market.toml --kind clones,leak --seeds 10",
    "bazaar attack market.toml --kind price --provider north --defence strict",
)
MOST_SEEDS = 1_000
PLAIN = "none"


def attack(
    market: Annotated[Path, typer.Argument(help="The market.toml to attack.", show_default=False)],
    kind: Annotated[
        str | None,
        typer.Option(
            help=f"Some of {', '.join(DEFAULT.split(','))}; split, zero, alternate, flip; with commas. Default: the "
            "first ten, as far as they can be played here.",
            show_default=False,
        ),
    ] = None,
    provider: Annotated[
        str | None, typer.Option(help="Who attacks. Default: who earns most if nobody does.", show_default=False)
    ] = None,
    defence: Annotated[
        str | None,
        typer.Option(
            help="What is played beside none: standard or strict. Default: the market's own, or standard.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of market.seed.", show_default=False)] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from that one on.")] = 1,
    device: Annotated[str | None, typer.Option(help="Instead of engine.device.", show_default=False)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, and nothing else.")] = False,
) -> None:
    """Lets one of your own providers play against the market: what that earns it, and what becomes of the model.

    Every attack is played in memory with the market's own files and rules, without a defence and with one. Nothing is
    written, and nobody is asked who is not in those files.
    """
    from databazaar.cli import play
    from databazaar_experiments.attacks import tables
    from databazaar_experiments.attacks.rehearsal import Rehearsal

    kinds = _kinds(DEFAULT if kind is None else kind)
    if not 1 <= seeds <= MOST_SEEDS:
        raise BazaarError(f"--seeds {seeds}: give at least one seed, and at most {MOST_SEEDS:,}")
    job = _job(market, seed, device)
    defences = _defences(job, defence)
    rehearsal = Rehearsal(
        job.consumer,
        job.providers,
        range(job.seed, job.seed + seeds),
        {"sampler": job.sampler, **job.rules()},
        job.device,
    )
    ids = [own.id for own in job.providers]
    if provider is not None and provider not in ids:
        close = difflib.get_close_matches(provider, ids, n=1)
        hint = f"try {close[0]}" if close else f"use one of {listed(ids)}"
        raise BazaarError(f"--provider {provider}: nobody here is called that: {hint}")
    variants, notes = _playable(rehearsal, kinds, provider or ids[0], strict=kind is not None)
    play.say_remarks(job, quiet or as_json)
    with if_interrupted("nothing was written"):
        total = (1 + len(variants)) * len(defences) * seeds
        with tables.progress(total, chatty=not (quiet or as_json)) as done:
            rows = _rows(rehearsal, variants, defences, provider, done)
    if as_json:
        typer.echo(json.dumps(_data(job, rehearsal, list(defences), rows), allow_nan=False))
    else:
        tables.show(rehearsal, list(defences), rows, notes)


def add_to(app: typer.Typer) -> None:
    """What the entry point `databazaar.commands` calls."""
    app.command(epilog=example(*EXAMPLES))(attack)


def _kinds(given: str) -> list[str]:
    from databazaar_experiments.attacks.kinds import KINDS

    return list(dict.fromkeys(named(given, "--kind", KINDS, "kinds")))


def _defences(job: Job, named: str | None) -> dict[str, Defence]:
    """What is played beside each other: no defence, and the one that is named, or the market's own."""
    from databazaar.defence import Defence

    own = Defence.named("standard") if job.defence.off else job.defence
    chosen = own if named is None else Defence.named(named)
    if chosen.off:
        raise BazaarError(f"--defence {named} is played in any case: name what to play beside it")
    return {PLAIN: Defence.named(PLAIN), chosen.name: chosen}


def _job(path: Path, seed: int | None, device: str | None) -> Job:
    from databazaar.config.jobs import job_of
    from databazaar.config.market_file import load_market

    market = load_market(path, {"market": {"seed": seed}, "engine": {"device": device}})
    if market.engine.kind == "federated":
        raise BazaarError(
            f"{path}: a federated market cannot be attacked here, as its providers' data are on their own machines: "
            'set engine.kind = "vectorized", and give a file for each provider'
        )
    job = job_of(market, path.resolve().parent)
    job.arbiter()  # finds whatever else is wrong
    return job


def _playable(
    rehearsal: Rehearsal, kinds: Sequence[str], provider: str, strict: bool
) -> tuple[list[tuple[str, Variant]], list[str]]:
    """The variants of these kinds, and what is to be said of kinds that cannot be played here; where the user has named
    them, those are refused."""
    from databazaar_experiments.attacks.kinds import KINDS

    playable, notes = list[tuple[str, "Variant"]](), list[str]()
    others = [own.id for own in rehearsal.providers if own.id != provider]
    for kind in kinds:
        try:
            for variant in KINDS[kind]:
                rehearsal.refuse_impossible(variant, [provider, *others[: variant.places - 1]])
        except BazaarError as reason:
            if strict:
                raise BazaarError(f"--kind {kind} cannot be played here: {reason}") from None
            notes.append(f"{kind} was left out: {reason}")
        else:
            playable += [(kind, variant) for variant in KINDS[kind]]
    return playable, notes


def _rows(
    rehearsal: Rehearsal,
    variants: Sequence[tuple[str, Variant]],
    defences: Mapping[str, Defence],
    provider: str | None,
    done: Any,
) -> list[Row]:
    """Nobody's attack first, then every variant: all by the same provider, and by the next best paid as its partner."""
    from databazaar_experiments.attacks.tables import Row

    def runs(title: str, places: Sequence[str] = (), variant: Variant | None = None) -> dict[str, list[Attacked]]:
        return {
            name: [done(rehearsal.play(seed, defence, places, variant), title) for seed in rehearsal.seeds]
            for name, defence in defences.items()
        }

    honest = runs("nobody")
    paid = rehearsal.by_pay(honest[PLAIN])
    first = [paid[0] if provider is None else provider]
    owner = {own.id: own.owner for own in rehearsal.providers}
    others = [id for id in paid if id not in first]
    ranked = [*first, *sorted(others, key=lambda id: owner[id] == owner[first[0]])]  # a partner is another owner
    rows = []
    for size in sorted({variant.places for _, variant in variants}):
        places = ranked[:size]
        title = "honest" if size == 1 else "two, honest"
        figures = {defence: rehearsal.outcome(found, places) for defence, found in honest.items()}
        rows.append(Row("honest", title, tuple(places), figures))
        for kind, variant in variants:
            if variant.places == size:
                played = runs(variant.title, places, variant)
                figures = {defence: rehearsal.outcome(found, places) for defence, found in played.items()}
                rows.append(Row(kind, variant.title, tuple(places), figures))
    return rows


def _data(job: Job, rehearsal: Rehearsal, defences: Sequence[str], rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "market": job.title,
        "seeds": list(rehearsal.seeds),
        "defences": list(defences),
        "metric": rehearsal.metric,
        "judged_by": rehearsal.judged_by,
        "attacks": [
            {
                "kind": row.kind,
                "attack": row.title,
                "providers": list(row.places),
                "outcomes": {defence: asdict(figures) for defence, figures in row.outcomes.items()},
            }
            for row in rows
        ],
    }
