"""Playing a market in the terminal: the progress, the outcome, and the files it leaves."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from databazaar.cli.interrupts import if_interrupted
from databazaar.config.jobs import Job
from databazaar.data.profile_record import MarketProfile
from databazaar.errors import LedgerError
from databazaar.files import write_whole
from databazaar.market.arbiter import Arbiter
from databazaar.market.run import Progress
from databazaar.money import Currency
from databazaar.reports import AuditView, by_pay, draw_all, render, save_png, statement_csv, statement_dict
from databazaar.reports.wording import printable
from databazaar.runs.closing import close_run
from databazaar.runs.folder import SUMMARY, RunFolder
from databazaar.runs.report import Report
from databazaar.samplers import Uniform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BASELINE = "uniform"
"""The demo's baseline is a run of its own, in this folder inside the demo's."""
BAR_WIDTH, NAME_WIDTH = 12, 20
ENDED_BADLY = 3
"""The exit code where nobody answered, or the model diverged."""


@dataclass(frozen=True)
class Output:
    """How much is printed: progress on standard error, the outcome on standard output."""

    quiet: bool
    as_json: bool

    @property
    def full(self) -> bool:
        return not (self.quiet or self.as_json)

    @contextmanager
    def progress(self, name: str, currency: Currency) -> Iterator[Callable[[Progress], None] | None]:
        if not self.full:
            yield None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.fields[news]}", markup=False),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        name = shortened(name, NAME_WIDTH)
        room = console.width - len(name) - BAR_WIDTH - len(" 0:00:00 ") - 2
        with ProgressBar(*columns, console=console) as bar:
            task = bar.add_task(name, news="")

            def show(round: Progress) -> None:
                paid = round.paid[0] + (" …" if len(round.paid) > 1 else "") if round.paid else "nobody"
                money = f"{currency.amount(round.spent)}/{currency.amount(round.budget)}"
                news = shortened(f"{money} utility {round.utility:.4f} paying {printable(paid)}", room)
                bar.update(task, total=round.budget, completed=round.asked, news=news)

            yield show


def shortened(text: str, width: int) -> str:
    """
    >>> shortened("harbour-bank", 20), shortened("harbour-bank", 8)
    ('harbour-bank', 'harbour…')
    """
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def play(job: Job, out: Path | None, name: str, output: Output, profile: MarketProfile | None = None) -> None:
    """Plays a new job: once it is known to be sound, its folder is made and the market opens.

    `profile` tells the report's readers what the tables are like.
    """
    job.limit_threads()
    with closing(job.arbiter()) as arbiter:  # finds whatever else is wrong before anything is written
        folder = RunFolder.create(out or next_free(Path("runs"), name), {**job.recipe, "title": job.title})
        if profile is not None:
            folder.note_profile(profile)
        for remark in () if output.quiet else job.remarks:
            typer.echo(f"note: {remark}", err=True)
        _finish(job, arbiter, folder, output)


def resume(job: Job, folder: RunFolder, output: Output) -> None:
    """Plays a job from where its folder stands; what is finished already is only shown again."""
    job.limit_threads()
    if folder.finished and job.recipe["job"] != "demo":
        _show(job.notes, folder, folder.report(), output)
        return
    with closing(job.arbiter()) as arbiter:
        _finish(job, arbiter, folder, output)


def _finish(job: Job, arbiter: Arbiter, folder: RunFolder, output: Output) -> None:
    with if_interrupted(
        f"`bazaar resume {folder.path}` goes on with the run, `bazaar close {folder.path}` settles it here"
    ):
        if job.recipe["job"] == "demo":
            _finish_demo(job, arbiter, folder, output)
        else:
            _show(job.notes, folder, _settle(job, arbiter, folder, output, job.title), output)


def _settle(job: Job, arbiter: Arbiter, folder: RunFolder, output: Output, name: str) -> Report:
    if folder.finished:
        return folder.report()
    with output.progress(name, job.consumer.currency) as show:
        return arbiter.run(folder, tell=show)


def close(folder: RunFolder, output: Output) -> None:
    """Settles a run where it stands, for the consumer who has had enough of it. Of a demo, the run that is not over."""
    baseline = folder.path / BASELINE
    close_run(RunFolder(baseline) if folder.finished and baseline.exists() else folder)
    with contextlib.suppress(typer.Exit):  # however the run went, it is closed as asked
        _show(None, folder, folder.report(), output)


def _show(notes: dict[str, str] | None, folder: RunFolder, report: Report, output: Output) -> None:
    page = write_report(folder)
    if output.as_json:
        typer.echo(json.dumps(_outcome(folder, report)))
    elif output.quiet:
        typer.echo(page)
    else:
        console = Console()
        console.print(_payout_table(report, None, notes))
        _print_end(console, folder, report, page)
    _leave(report)


def _finish_demo(job: Job, arbiter: Arbiter, folder: RunFolder, output: Output) -> None:
    """The demo plays the job, then the same job with uniform sampling, and sets them side by side."""
    report = _settle(job, arbiter, folder, output, "OSMD   ")
    baseline_folder = RunFolder.open_or_create(folder.path / BASELINE)
    uniform = job.arbiter(Uniform(), engine=arbiter.engine)
    baseline = _settle(job, uniform, baseline_folder, output, "uniform")
    page = write_report(folder)
    accuracies = [_accuracy(job, f) for f in (folder, baseline_folder)]
    if output.as_json:
        both = {"osmd": report, "uniform": baseline}
        scores = {
            name: {"test_accuracy": accuracy, "final_utility": r.final_utility, "final_loss": r.final_loss}
            for (name, r), accuracy in zip(both.items(), accuracies, strict=True)
        }
        typer.echo(json.dumps({**_outcome(folder, report), **scores}))
    elif output.quiet:
        typer.echo(page)
    else:
        console = Console()
        console.print(_payout_table(report, baseline, job.notes))
        console.print(_against_uniform(report, baseline, accuracies))
        _print_end(console, folder, report, page)
    _leave(report)


def next_free(parent: Path, name: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "market"
    taken = {path.name for path in parent.glob(f"{slug}-*")}
    return next(parent / f"{slug}-{i}" for i in range(1, len(taken) + 2) if f"{slug}-{i}" not in taken)


def _accuracy(job: Job, folder: RunFolder) -> float:
    """On the test set, which no part of the market has seen."""
    task = job.consumer.task
    params = folder.saved_parameters(task)
    assert params is not None and job.test is not None and task.model is not None
    task.layout.load(task.model, params)
    with torch.no_grad():
        outputs = task.model.eval()(torch.from_numpy(job.test.x))
    return float((outputs.argmax(1).numpy() == job.test.y).mean())


def _outcome(folder: RunFolder, report: Report) -> dict[str, Any]:
    return {"folder": str(folder.path), **folder.summary(), **statement_dict(report)}


def _payout_table(report: Report, baseline: Report | None, notes: dict[str, str] | None) -> Table:
    table = Table(title=f"Who was paid what, in {report.currency.name}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("provider", no_wrap=True)
    for name in ("accesses", "pay", *(["uniform pay"] if baseline else [])):
        table.add_column(name, justify="right", no_wrap=True)
    if notes:
        table.add_column("what it sells")
    others = {p.provider: p for p in baseline.payouts} if baseline else {}
    amount = report.currency.amount
    for payout in by_pay(report):
        cells = [payout.provider, str(payout.accesses), amount(payout.pay)]
        cells += [amount(others[payout.provider].pay)] if baseline else []
        table.add_row(*cells, *([notes.get(payout.provider, "")] if notes else []))
    return table


def _against_uniform(report: Report, baseline: Report, accuracies: list[float]) -> Table:
    table = Table(title="The same budget, two ways to spend it", title_justify="left", box=SIMPLE_HEAD)
    for name in ("", "hold-out utility", "hold-out loss", "test accuracy"):
        table.add_column(name, justify="right" if name else "left")
    for name, r, accuracy in zip(("OSMD", "uniform"), (report, baseline), accuracies, strict=True):
        table.add_row(name, f"{r.final_utility:.4f}", f"{r.final_loss or 0:.4f}", f"{accuracy:.1%}")
    return table


def _print_end(console: Console, folder: RunFolder, report: Report, page: Path) -> None:
    lines = [report.message]
    if report.regret_bound is not None:
        accesses = max(1, len(report.rounds) * report.per_round)
        lines.append(
            f"regret bound (Theorem 1): {report.regret_bound / accesses:.3g} an access; above 2 it says nothing"
        )
    lines += [
        f"model   {folder.weights.parent}  {report.model_hash[:16]}   use it: bazaar predict {folder.path} new.csv",
        f"ledger  {folder.ledger_place}  {report.ledger_head[:16]}   check it: bazaar audit {folder.path}",
        f"report  {page}",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def write_report(folder: RunFolder, out: Path | None = None) -> Path:
    """The HTML report, the figures as PNG, and the statement as CSV and JSON; of an unfinished run, so far.

    Where the audit fails the page says so, and the statement that is there is left alone.
    """
    report, found = folder.report_and_audit()
    baseline_path = folder.path / BASELINE
    baseline = RunFolder(baseline_path).report() if (baseline_path / SUMMARY).exists() else None
    page = out or folder.path / "report.html"
    audit = AuditView(found.ok, found.entries, found.message)
    drawn = draw_all(report)
    save_png(drawn, folder.path / "figures")
    if found.ok:
        write_whole(folder.path / "statement.csv", statement_csv(report).encode())
        write_whole(folder.path / "statement.json", json.dumps(statement_dict(report), indent=2).encode())
    shown = render(report, title=folder.title, audit=audit, baseline=baseline, profile=folder.profile(), drawn=drawn)
    write_whole(page, shown.encode())
    if not found.ok:
        raise LedgerError(f"{page} says that the audit fails, and no statement is made: {found.message}")
    return page


def _leave(report: Report) -> None:
    if report.status in ("nobody answered", "diverged"):
        print(f"bazaar: {report.message}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(ENDED_BADLY)
