"""`bazaar compare`: every method on one market, what each would pay whom, and what each costs."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from databazaar.cli.choices import named
from databazaar.cli.interrupts import if_interrupted
from databazaar.cli.screen import say
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    from databazaar.config.jobs import Job
    from databazaar.engines import Engine
    from databazaar.valuation import Comparison

DEFAULT = "osmd,uniform,g-shapley,fedsv,loo"
MARKETS = ("market", "osmd", "uniform", "uniform-without-replacement")
"""The methods that run the market."""
EXAMPLES = (
    "bazaar compare market.toml",
    "bazaar compare market.toml --methods osmd,g-shapley,loo --seeds 5",
    "bazaar compare market.toml --methods osmd,tmc,exact --max-seconds 30 --out runs/values",
)
Modes = Literal["positive", "shifted"]
MOST_SEEDS = 10_000


def compare(
    market: Annotated[Path, typer.Argument(help="The market.toml to compare on.", show_default=False)],
    methods: Annotated[
        str | None,
        typer.Option(
            help="Some of market (with its own sampler), osmd, uniform, uniform-without-replacement, g-shapley, fedsv, "
            "fedsv-exact, tmc, loo, exact, and those of installed packages, with commas. "
            f"Default: {DEFAULT}, and market where its sampler is another.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Instead of market.seed.", show_default=False)] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from that one on; 3 or more give intervals.")] = 1,
    mode: Annotated[
        str, typer.Option(help="From values to money: positive, by max(v, 0); or shifted, by v less the smallest.")
    ] = "positive",
    out: Annotated[Path | None, typer.Option(help="Folder for the comparison. Default: a new one under runs/.")] = None,
    engine: Annotated[str | None, typer.Option(help="Instead of engine.kind.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="Instead of engine.device.", show_default=False)] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            help="About the longest for one run of g-shapley, tmc, fedsv, fedsv-exact and such; "
            "the others have an end of their own.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and only the last line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON, and nothing else.")] = False,
) -> None:
    """What Shapley values and their relatives would pay, beside the market itself: payouts, agreement and cost."""
    from databazaar.cli import compare_tables, play
    from databazaar.samplers import OSMD, Uniform
    from databazaar.valuation import METHODS, MaxSeconds
    from databazaar.valuation import compare as compare_methods

    names = _names(DEFAULT if methods is None else methods)
    if not 1 <= seeds <= MOST_SEEDS:
        raise BazaarError(f"--seeds {seeds}: give at least one seed, and at most {MOST_SEEDS:,}")
    if seed is not None and seed < 0:
        raise BazaarError(f"--seed {seed}: give zero or more")
    if mode not in get_args(Modes):
        raise BazaarError(f"--mode {mode} is unknown: use one of {', '.join(get_args(Modes))}")
    if max_seconds is not None and not (max_seconds > 0 and math.isfinite(max_seconds)):
        raise BazaarError(f"--max-seconds {max_seconds:g}: give a number above zero")
    if out is not None and os.path.lexists(out):
        raise BazaarError(f"{out} exists already: give another folder with --out, or remove it")
    job = _job(market, seed, engine, device)
    if methods is None and not (isinstance(job.sampler, OSMD) or job.sampler == Uniform()):
        names.insert(0, "market")
    play.say_remarks(job, quiet)
    for name in names:  # what would only come to light after other methods have run
        METHODS.build({"kind": name}).validate(job.consumer, job.providers)
    limit = None if max_seconds is None else MaxSeconds(int(max_seconds) if max_seconds.is_integer() else max_seconds)
    final, currency = out or play.next_free(Path("runs"), f"{job.title} compare"), job.consumer.currency
    with if_interrupted("nothing was written"), _folder(final) as draft:
        with (
            compare_tables.progress(names, seeds, chatty=not (quiet or as_json)) as progress,
            _engine(job) as chosen,
        ):
            comparison = compare_methods(
                job.consumer,
                job.providers,
                names,
                seed=job.seed,
                seeds=seeds,
                mode=mode,  # type: ignore[arg-type]
                engine=chosen,
                device=job.device,
                options=_options(names, job),
                limit=limit,
                progress=progress,
            )
        about = {"market": job.title, "currency": currency.name, "decimals": currency.decimals}
        data = {**about, **comparison.to_dict()}
        _write(draft, comparison, job, data)
    page = final / "comparison.html"
    if as_json:
        typer.echo(json.dumps({"folder": str(final), **data}, allow_nan=False))
    elif quiet:
        say(page)
    else:
        compare_tables.show(comparison, currency, page)


def _names(methods: str) -> list[str]:
    from databazaar.valuation import METHODS

    names = named(methods, "--methods", METHODS.kinds(), "methods")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BazaarError(f"--methods names {twice} twice: name each method once")
    return names


def _job(path: Path, seed: int | None, engine: str | None, device: str | None) -> Job:
    from databazaar.config.jobs import job_of
    from databazaar.config.market_file import load_market

    changes: dict[str, dict[str, Any]] = {"market": {"seed": seed}, "engine": {"kind": engine, "device": device}}
    market = None if engine == "federated" else load_market(path, changes)
    if market is None or market.engine.kind == "federated":
        raise BazaarError(
            f"{path}: a federated market cannot be compared, as most methods ask every provider many times over: "
            "give --engine vectorized and a file for each provider"
        )
    job = job_of(market, path.resolve().parent)
    job.arbiter()  # finds whatever else is wrong before anything is written
    return job


@contextlib.contextmanager
def _engine(job: Job) -> Iterator[str | Engine]:
    """One engine for all methods, where it takes long to start."""
    engine = job.chosen_engine()
    try:
        yield engine
    finally:
        if not isinstance(engine, str):
            engine.close()


def _options(names: Sequence[str], job: Job) -> dict[str, dict[str, Any]]:
    """Methods that run the market do so by its own rules; OSMD's settings come from theory where it has none."""
    from databazaar.samplers import OSMD

    options: dict[str, dict[str, Any]] = {name: job.rules() for name in MARKETS if name in names}
    for name in options:
        if name == "market" or (name == "osmd" and isinstance(job.sampler, OSMD)):
            options[name]["sampler"] = job.sampler
    return options


def _write(folder: Path, comparison: Comparison, job: Job, data: dict[str, Any]) -> None:
    from databazaar.files import write_whole
    from databazaar.reports.valuation_figures import save_overview
    from databazaar.reports.valuation_page import comparison_csv, render_comparison

    currency = job.consumer.currency
    write_whole(folder / "comparison.json", json.dumps(data, indent=2, allow_nan=False).encode())
    write_whole(folder / "comparison.csv", comparison_csv(comparison, currency).encode())
    save_overview(comparison, currency, folder / "comparison.png")
    page = render_comparison(comparison, title=job.title, currency=currency)
    write_whole(folder / "comparison.html", page.encode())


@contextlib.contextmanager
def _folder(final: Path) -> Iterator[Path]:
    """A new folder, all of it or nothing: where something fails, parents that are new go as well."""
    from databazaar.files import new_folder

    missing = [parent for parent in final.parents if not parent.exists()]  # the deepest first
    try:
        with new_folder(final) as draft:
            yield draft
    except BaseException as reason:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
        if isinstance(reason, OSError):
            text = f"{final} cannot be written ({reason.strerror}): give another folder with --out"
            raise BazaarError(text) from None
        raise
