"""`bazaar reproduce`: computes what is missing of the evaluation, then draws it beside the published numbers."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from databazaar.cli.interrupts import if_interrupted
from databazaar.cli.options import example
from databazaar.errors import BazaarError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from databazaar_experiments.parts import Part
    from databazaar_experiments.plan import ReproductionPlan
    from databazaar_experiments.progress import ComputeProgress, Listener
    from databazaar_experiments.verdicts import Verdict

EXAMPLES = (
    "bazaar reproduce all --seeds 10 --device auto",
    "bazaar reproduce revenue --dataset mnist,fmnist --data-dir datasets",
    "bazaar reproduce mixture --mixture-seeds 10 --set mixture.eta=0.002",
    "bazaar reproduce all --quick",
)
PACE_OF_SECONDS = 300.0
PARTS, RAW, FIGURES, PAGE = "parts", "raw", "figures", "index.html"


def reproduce(
    what: Annotated[str, typer.Argument(help="all, revenue, accuracy, runtime or mixture.", show_default=False)],
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of the images: 10, or 2 when quick.")] = None,
    mixture_seeds: Annotated[int | None, typer.Option(min=1, help="Of the mixture: 100, or 2 when quick.")] = None,
    dataset: Annotated[str, typer.Option(help="Datasets, with commas.")] = "mnist,fmnist,kmnist,cifar10",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda.")] = "auto",
    protocol: Annotated[str, typer.Option(help="figures (behind the published ones) or text.")] = "figures",
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the datasets. Default: $BAZAAR_DATA.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for everything that comes out.")] = Path("reproduction"),
    jobs: Annotated[int | None, typer.Option(min=1, help="Worker processes: 1 on a CPU, up to 12 on a GPU.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE: changes a setting.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small synthetic data, no download, minutes.")] = False,
    render_only: Annotated[bool, typer.Option("--render-only", help="Draw what is finished; compute nothing.")] = False,
) -> None:
    """The paper's evaluation from real runs: figures, raw results, and a page beside the published numbers.

    Stopped at any point, the same command goes on where it was; what is finished is not computed again.
    """
    plan = _plan(what, seeds, mixture_seeds, dataset, protocol, change or [], quick)
    with if_interrupted("the same command goes on where it stopped"):
        if not render_only:
            _compute(plan, out / PARTS, data_dir, device, jobs)
        _write(plan, out)


def add_to(app: typer.Typer) -> None:
    """What the entry point `databazaar.commands` calls."""
    app.command(epilog=example(*EXAMPLES))(reproduce)


def _plan(
    what: str,
    seeds: int | None,
    mixture_seeds: int | None,
    dataset: str,
    protocol: str,
    changes: list[str],
    quick: bool,
) -> ReproductionPlan:
    """What is asked for, checked to the last setting before anything begins."""
    from databazaar_experiments.plan import WHATS, ReproductionPlan

    if what != "all" and what not in WHATS:
        raise BazaarError(f"{what!r} cannot be reproduced: use all, {', '.join(WHATS)}")
    if protocol not in ("figures", "text"):
        raise BazaarError(f"protocol {protocol!r} is unknown: use figures or text")
    for change in changes:
        if "=" not in change:
            raise BazaarError(f"--set {change}: write it as NAME=VALUE")
    plan = ReproductionPlan(
        whats=WHATS if what == "all" else (what,),
        datasets=tuple(dict.fromkeys(name.strip() for name in dataset.split(",") if name.strip())),
        seeds=seeds or 10,
        mixture_seeds=mixture_seeds or 100,
        protocol=protocol,
        changes=dict(change.split("=", 1) for change in changes),
    )
    if quick:
        plan = replace(
            plan, protocol="quick", datasets=("synthetic",), seeds=seeds or 2, mixture_seeds=mixture_seeds or 2
        )
    if not list(plan.cases()):
        raise BazaarError("nothing is left to reproduce: name a dataset with --dataset")
    return plan


def _compute(plan: ReproductionPlan, folder: Path, data: Path | None, device: str, jobs: int | None) -> None:
    from databazaar.engines.protocol import pick_device
    from databazaar_experiments.compute import compute, missing
    from databazaar_experiments.datasets import SOURCES, data_folder, load_images

    pick_device(device)
    parts = missing(plan, folder, 1)
    for name in dict.fromkeys(part.case.dataset for part in parts):
        if name in SOURCES and not (data_folder(data) / SOURCES[name].file).exists():
            load_images(name, data)  # fetches it, or says what to do, before anything is written
    if parts:
        with _progress_bar() as listener:
            compute(plan, folder, data, device, jobs, listener)


@contextmanager
def _progress_bar() -> Iterator[Listener]:
    """A bar on standard error, which moves within the parts too. The time left is by the pace of the last minutes."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=14),
        TextColumn("{task.percentage:3.0f} %"),
        TextColumn("{task.fields[parts]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=PACE_OF_SECONDS) as bar:
        task = bar.add_task("computing", total=1.0, parts="")

        def show(progress: ComputeProgress) -> None:
            name, parts = _named(progress.running), f"{progress.done}/{progress.count}"
            bar.update(task, completed=progress.share, description=name, parts=parts)

        yield show


def _named(running: Sequence[Part]) -> str:
    """What is being computed: one part by its name, and how many more."""
    if not running:
        return "computing"
    case = running[0].case
    name = f"{'runtime ' if case.experiment == 'runtime' else ''}{case.dataset} {case.method}"
    return f"{name} +{len(running) - 1}" if len(running) > 1 else name


def _write(plan: ReproductionPlan, out: Path) -> None:
    from databazaar.files import write_whole
    from databazaar_experiments.figures import write_figures
    from databazaar_experiments.page import render
    from databazaar_experiments.results import gather, write_raw
    from databazaar_experiments.verdicts import judge

    results = gather(plan, out / PARTS)
    if not results.cases.done.any():
        raise BazaarError(f"{out / PARTS} holds no finished part of this: run it without --render-only")
    write_raw(results, out / RAW)
    write_figures(results, out / FIGURES)
    write_whole(out / PAGE, render(results).encode())
    _print_verdicts(judge(results))
    typer.echo(f"page: {out / PAGE}\nfigures: {out / FIGURES}\nraw results: {out / RAW}")


def _print_verdicts(verdicts: list[Verdict]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from databazaar_experiments.verdicts import about

    table = Table(title="What came out", title_justify="left", box=SIMPLE_HEAD)
    for name in ("target", "measured", "published", "difference", "allowed", "seeds", "verdict"):
        table.add_column(name)
    for v in verdicts:
        colour = {True: "green", False: "red", None: "yellow"}[v.holds]
        first = f"{about(v)}: {v.target}"
        table.add_row(first, v.measured, v.published, v.difference, v.tolerance, v.seeds, f"[{colour}]{v.word}[/]")
    if verdicts:
        Console().print(table)
    for v in verdicts:
        if v.reason:
            typer.echo(f"{about(v)}: {v.target}: does not hold. {v.reason}")
