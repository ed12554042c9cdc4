"""Playing a market in the terminal: the progress, the outcome, and the files it leaves."""

from __future__ import annotations

import contextlib
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from databazaar.cli.interrupts import if_interrupted
from databazaar.cli.run_tables import payout_table, worth_table
from databazaar.cli.screen import LONGEST, console, say
from databazaar.cli.statements import everybody_in_a_statement
from databazaar.config.check import estimate
from databazaar.config.jobs import Job, from_recipe, is_recipe_of
from databazaar.config.play import Playing, begun, in_words, is_over, resumed
from databazaar.display import shown
from databazaar.errors import BazaarError
from databazaar.federation.payloads import overheard
from databazaar.ledger.rulebook import NOBODY_ANSWERED
from databazaar.market.run import Progress
from databazaar.money import Currency
from databazaar.reports.statement import statement_dict
from databazaar.reports.written import write_report
from databazaar.runs.close import close_run
from databazaar.runs.folder import RunFolder, is_unfinished
from databazaar.runs.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BAR_WIDTH, NAME_WIDTH = 12, 20
ENDED_BADLY = 3
"""The exit code where nobody answered."""


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
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.fields[news]}", markup=False),
            TimeRemainingColumn(),
        )
        screen = console(stderr=True)
        name = shown(name, NAME_WIDTH)
        room = screen.width - len(name) - BAR_WIDTH - len(" 0:00:00 ") - 2
        with ProgressBar(*columns, console=screen) as bar:
            task = bar.add_task(name, news="")

            def show(round: Progress) -> None:
                paid = round.paid[0] + (" …" if len(round.paid) > 1 else "") if round.paid else "nobody"
                money = f"{currency.amount(round.spent)}/{currency.amount(round.budget)}"
                flagged = f" flagged {', '.join(round.flagged)}" if round.flagged else ""
                news = shown(f"{money} utility {round.utility:.4f} paying {paid}{flagged}", max(room, 1))
                bar.update(task, total=round.budget, completed=round.asked, news=news)

            with overheard(lambda moved: bar.update(task, news=shown(moved, max(room, 1)))):
                yield show


def play(job: Job, out: Path | None, name: str, output: Output, ledger: str | None = None) -> None:
    """Plays a job in a new folder. A folder with an unfinished run of the same job is continued."""
    if out is not None and is_unfinished(out):
        folder = RunFolder(out, ledger or job.recipe.get("ledger_url") or None)
        if not is_recipe_of(job, folder.recipe):
            raise BazaarError(
                f"{out} holds an unfinished run of another market, or of other files: `bazaar run {out}` goes on with "
                "it, or give another folder with --out"
            )
        _resume(job, folder, output)
        return
    if ledger is not None:
        raise BazaarError("a new run writes to the database of [ledger] in market.toml: omit --ledger")
    with begun(job, out or next_free(Path("runs"), name)) as playing:
        say_remarks(job, output.quiet)
        if output.full:
            taken = estimate(job)
            console(stderr=True).print(taken.sentence)
            if not job.defence.off:
                for line in (f"defence: {job.meaning}", *job.blind_spots(taken.accesses)):
                    say(line, err=True)
        finish(playing, output)


def say_remarks(job: Job, quiet: bool) -> None:
    """What was assumed of the files, and which rows were left out."""
    for remark in () if quiet else job.remarks:
        say(f"note: {remark}", err=True)


def resume(path: Path, ledger: str | None, output: Output) -> None:
    """Plays the job of a folder from where it stands; what is finished already is only shown again."""
    folder = RunFolder(path, ledger)
    folder.need_rules()
    _resume(from_recipe(folder.recipe), folder, output)


def _resume(job: Job, folder: RunFolder, output: Output) -> None:
    if is_over(job, folder):
        show(folder, output, job.notes)
        return
    terms = folder.need_rules()
    with resumed(job, folder, {} if terms is None else terms.environment) as playing:
        if playing.changed:
            now = in_words(playing.changed)
            typer.echo(f"bazaar: note: the run goes on with {now}: last digits may differ", err=True)
        finish(playing, output)


def finish(playing: Playing, output: Output, again: str = "", end: str = "") -> None:
    """Plays to the end, says what it was worth, and shows it. `again` is the command that goes on with it if it is
    interrupted, and `end` the one that settles it."""
    job, path = playing.job, playing.folder.path
    again, end = again or f"bazaar run {path}", end or f"bazaar close {path}"
    with if_interrupted(f"`{again}` goes on with the run, `{end}` settles it here"):
        if not playing.folder.finished:
            with output.progress(job.title, job.consumer.currency) as tell:
                playing.settle(tell)
    with if_interrupted(f"the run is settled; `{again}` says what it was worth"):
        if job.can_be_judged:
            with console(stderr=True, quiet=not output.full).status("judging what it was worth"):
                playing.judge()
        show(playing.folder, output, job.notes)


def close(folder: RunFolder, output: Output) -> None:
    """Settles a run where it stands, for the consumer who has had enough of it."""
    close_run(folder)
    with contextlib.suppress(typer.Exit):  # however the run went, it is closed as asked
        show(folder, output)


def show(folder: RunFolder, output: Output, notes: dict[str, str] | None = None) -> None:
    """Writes the report, and prints the outcome."""
    report = folder.report()
    page = write_report(folder)
    if output.as_json:
        typer.echo(json.dumps(_outcome(folder, report)))
    elif output.quiet:
        say(page)
    else:
        screen = console()
        screen.print(payout_table(report, notes))
        if report.lines.many:
            say(f"bazaar show {folder.path} statement --csv has {everybody_in_a_statement(report)}")
        if report.worth is not None:
            screen.print(worth_table(report.worth))
            for sentence in (report.worth.verdict, *report.worth.notes):
                screen.print(shown(sentence, LONGEST), soft_wrap=True)
        _print_end(folder, report, page)
    _leave(report)


def next_free(parent: Path, name: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "market"
    taken = {path.name for path in parent.glob(f"{slug}-*")}
    return next(parent / f"{slug}-{i}" for i in range(1, len(taken) + 2) if f"{slug}-{i}" not in taken)


def _outcome(folder: RunFolder, report: Report) -> dict[str, Any]:
    worth = {"worth": None if report.worth is None else report.worth.to_dict()}
    told = {"folder": str(folder.path), **folder.summary(), "message": report.message}
    return {**told, **statement_dict(report), **worth}


def _print_end(folder: RunFolder, report: Report, page: Path) -> None:
    lines = [report.message]
    if report.defended is not None:
        lines += [line for line in (report.defended.summary, report.defended.blind) if line]
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
        say(line)


def _leave(report: Report) -> None:
    if report.status == NOBODY_ANSWERED:
        say(f"bazaar: {report.message}", err=True)
        raise typer.Exit(ENDED_BADLY)
