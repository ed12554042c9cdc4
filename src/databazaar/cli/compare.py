"""`bazaar compare`: every method on one market, what each would pay whom, and what each costs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from databazaar.cli.interrupts import if_interrupted
from databazaar.cli.options import AsJson, Device, Engine, Market, Out, Quiet, Seed, changes, named, number_below
from databazaar.cli.screen import say
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    from databazaar.config.jobs import Job
    from databazaar.valuation import Comparison

DEFAULT = "osmd,uniform,loo"
MARKETS = ("market", "osmd", "uniform", "uniform-without-replacement")
"""The methods that run the market."""
EXAMPLES = (
    "bazaar compare market.toml",
    "bazaar compare market.toml --methods market,osmd,loo --seeds 5",
    "bazaar compare market.toml --methods osmd,tmc,exact --max-seconds 30 --out runs/values",
)


def compare(
    market: Market,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Some of market (with its own sampler), osmd, uniform, uniform-without-replacement, in-run, tmc, loo, "
            "exact, and those of installed packages, with commas. "
            f"Default: {DEFAULT}, and market where its sampler is another."
        ),
    ] = None,
    seed: Seed = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many seeds, from that one on; 3 or more give intervals.")
    ] = 1,
    mode: Annotated[
        Literal["positive", "shifted"],
        typer.Option(help="From values to money: positive, by max(v, 0); or shifted, by v less the smallest."),
    ] = "positive",
    out: Out = None,
    engine: Engine = None,
    device: Device = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            callback=number_below(1e6),
            help="About the longest for one run of tmc and such; the others have an end of their own.",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """What Shapley values and their relatives would pay, beside the market itself: payouts, agreement and cost."""
    from databazaar.cli import compare_tables, play
    from databazaar.files import new_folder
    from databazaar.samplers import OSMD, Uniform
    from databazaar.valuation import METHODS, MaxSeconds
    from databazaar.valuation import compare as compare_methods

    names = named(DEFAULT if methods is None else methods, "--methods", METHODS.kinds(), "methods")
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
    with if_interrupted("nothing was written"), new_folder(final) as draft:
        with compare_tables.progress(names, seeds, quiet=quiet or as_json) as progress:
            comparison = compare_methods(
                job.consumer,
                job.providers,
                names,
                seed=job.seed,
                seeds=seeds,
                mode=mode,
                engine=job.engine,
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


def _job(path: Path, seed: int | None, engine: str | None, device: str | None) -> Job:
    from databazaar.config.jobs import job_of
    from databazaar.config.market_file import load_market

    market = None if engine == "federated" else load_market(path, changes(seed, engine, device))
    if market is None or market.engine.kind == "federated":
        raise BazaarError(
            f"{path}: a federated market cannot be compared, as most methods ask every provider many times over: "
            "give --engine vectorized and a file for each provider"
        )
    job = job_of(market, path.resolve().parent)
    job.arbiter()  # finds whatever else is wrong before anything is written
    return job


def _options(names: Sequence[str], job: Job) -> dict[str, dict[str, Any]]:
    """Methods that run the market do so by its own rules; OSMD's settings come from theory where it has none."""
    from databazaar.samplers import OSMD

    options: dict[str, dict[str, Any]] = {name: job.rules() for name in MARKETS if name in names}
    if "in-run" in names and job.learner.rows is not None:
        options["in-run"] = {"learner": job.learner}
    for name in options:
        if name == "market" or (name == "osmd" and isinstance(job.sampler, OSMD)):
            options[name]["sampler"] = job.sampler
    return options


def _write(folder: Path, comparison: Comparison, job: Job, data: dict[str, Any]) -> None:
    from databazaar.files import write_whole
    from databazaar.reports.figures import save_png
    from databazaar.reports.valuation_page import comparison_csv, payouts, render_comparison

    currency = job.consumer.currency
    write_whole(folder / "comparison.json", json.dumps(data, indent=2, allow_nan=False).encode())
    write_whole(folder / "comparison.csv", comparison_csv(comparison, currency).encode())
    figure = payouts(comparison, currency)
    save_png({"comparison": figure}, folder)
    page = render_comparison(comparison, title=job.title, currency=currency, figure=figure)
    write_whole(folder / "comparison.html", page.encode())
