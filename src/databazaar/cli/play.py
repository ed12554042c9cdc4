"""Playing a market in the terminal: the progress, the outcome, and the files it leaves."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from databazaar.cli.interrupts import if_interrupted
from databazaar.cli.screen import LONGEST, console, say, table
from databazaar.config.check import estimate
from databazaar.config.jobs import Job, from_recipe, is_recipe_of
from databazaar.config.play import Playing, begun, in_words, is_over, resumed
from databazaar.display import shown
from databazaar.errors import BazaarError
from databazaar.ledger.rulebook import NOBODY_ANSWERED
from databazaar.market.run import Progress
from databazaar.money import Currency
from databazaar.reports.run_page import write_report
from databazaar.reports.statement import statement_dict
from databazaar.reports.words import PerCoin
from databazaar.runs.close import close_run
from databazaar.runs.explanation import Kind
from databazaar.runs.folder import RunFolder, is_unfinished
from databazaar.runs.purchase import PurchaseEvaluation
from databazaar.runs.report import Report

BAR_WIDTH, NAME_WIDTH = 12, 20
UNIT_WIDTH = 16
MOST_LINES = 20
"""So many of the best paid have a line where providers are many."""
WHY: dict[Kind, str] = {
    "only": "the only one",
    "flagged": "flagged",
    "used-up": "used up",
    "too-dear": "too dear",
    "alike": "all asked alike",
    "failed": "replies failed",
    "dearer": "became dearer",
    "cheaper": "became cheaper",
    "few": "too few to tell",
    "better": "more for its money",
    "cheap": "cheaper, as good",
    "worse": "less for its money",
    "dear": "dearer, no better",
    "unclear": "cannot be told",
}
"""Why a provider was asked as often as it was, for a terminal of 80 columns; the report has the whole sentence."""
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
        screen, name = console(stderr=True), shown(name, NAME_WIDTH)
        room = max(1, screen.width - len(name) - BAR_WIDTH - len(" 0:00:00 ") - 2)
        with ProgressBar(*columns, console=screen) as bar:
            task = bar.add_task(name, news="")

            def show(round: Progress) -> None:
                paid = round.paid[0] + (" …" if len(round.paid) > 1 else "") if round.paid else "nobody"
                money = f"{currency.amount(round.spent)}/{currency.amount(round.budget)}"
                flagged = f" flagged {', '.join(round.flagged)}" if round.flagged else ""
                news = shown(f"{money} utility {round.utility:.4f} paying {paid}{flagged}", room)
                bar.update(task, total=round.budget, completed=round.asked, news=news)

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
        resume(folder, output, job)
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


def resume(folder: RunFolder, output: Output, job: Job | None = None) -> None:
    """Plays the job of a folder from where it stands; what is finished already is only shown again."""
    terms = folder.need_rules()
    job = from_recipe(folder.recipe) if job is None else job
    if is_over(job, folder):
        show(folder, output, job.notes)
        return
    with resumed(job, folder, {} if terms is None else terms.environment) as playing:
        if playing.changed:
            now = in_words(playing.changed)
            typer.echo(f"bazaar: note: the run goes on with {now}: last digits may differ", err=True)
        finish(playing, output)


def finish(playing: Playing, output: Output, again: str = "", end: str = "") -> None:
    """Plays to the end and shows the outcome. `again` is the command that resumes the run, `end` what settles it."""
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
    folder.need_rules()
    close_run(folder)
    with contextlib.suppress(typer.Exit):  # however the run went, it is closed as asked
        show(folder, output)


def show(folder: RunFolder, output: Output, notes: dict[str, str] | None = None) -> None:
    report = folder.report()
    page = write_report(folder)
    if output.as_json:
        worth = None if report.worth is None else report.worth.to_dict()
        told = {"folder": str(folder.path), **folder.summary(), "message": report.message}
        typer.echo(json.dumps({**told, **statement_dict(report), "worth": worth}))
    elif output.quiet:
        say(page)
    else:
        screen = console()
        screen.print(payout_table(report, notes))
        if report.lines.many:
            say(f"bazaar show {folder.path} statement --csv has everybody")
        if report.worth is not None:
            screen.print(worth_table(report.worth))
            for sentence in (report.worth.verdict, *report.worth.notes):
                screen.print(shown(sentence, LONGEST), soft_wrap=True)
        _print_end(folder, report, page)
    if report.status == NOBODY_ANSWERED:
        say(f"bazaar: {report.message}", err=True)
        raise typer.Exit(ENDED_BADLY)


def next_free(parent: Path, name: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "market"
    taken = {path.name for path in parent.glob(f"{slug}-*")}
    return next(parent / f"{slug}-{i}" for i in range(1, len(taken) + 2) if f"{slug}-{i}" not in taken)


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


def payout_table(report: Report, notes: dict[str, str] | None) -> Table:
    """Accesses and pay of the providers, and `notes` on what they sell, or gain per coin and why they were asked."""
    lines, per_coin, amount = report.lines, PerCoin.of(report), report.currency.amount
    kept = {} if report.defended is None else {one.provider: one for one in report.defended.stands}
    back = () if not kept else ("returned",) if report.closed else ("held back", "returned")
    told = ("what it sells",) if notes else (f"gain per\n{shown(per_coin.unit, UNIT_WIDTH)}", "why so often")
    heads = ("provider", "accesses", "pay", *back, *told)
    (places, others), rows = lines.listed(MOST_LINES), []
    for place in places:
        payout, one = report.payouts[place], report.brought[place]
        why = [notes.get(payout.provider, "")] if notes else [per_coin.plain(one.gain_per_coin), WHY[one.why.kind]]
        amounts = [getattr(kept[payout.provider], name.replace(" ", "_")) for name in back]
        rows.append((payout.provider, payout.accesses, *map(amount, (payout.pay, *amounts)), *why))
    if others is not None:
        rows.append((others.title, others.accesses, amount(others.pay)))
    last = len(heads) - 1
    wrapped = range(last + 1 - len(told), last + 1)
    return table(heads, rows, f"Who was paid what, in {report.currency.name}", words=(0, last), wrapped=wrapped)


def worth_table(worth: PurchaseEvaluation) -> Table:
    """The bought model beside what there could have been, on the audit rows."""
    names = [name for name in worth.bought.metrics if name != "brier"]  # a terminal has 80 columns
    heads = ("", *(name.replace("_", " ") for name in names), f"ahead in {worth.loss_name}")
    rows = []
    for judged in (worth.bought, *worth.others):
        cells = [f"{judged.metrics[name]:.4f}" if math.isfinite(judged.metrics[name]) else "–" for name in names]
        known = judged.ahead is not None and judged.error is not None
        rows.append((judged.title, *cells, f"{judged.ahead:+.4f} ± {judged.error:.4f}" if known else ""))
    title = f"Was it worth it? On {worth.rows:,} audit rows"
    return table(heads, rows, title, wrapped=range(1, len(heads)))
