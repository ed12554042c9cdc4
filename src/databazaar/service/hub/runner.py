"""Plays one job, in a process of its own: threads of one process would share torch's random state.

A runner knows the job's folder and nothing else: no database, no money. It may be killed at any moment, and the next
one goes on to the same model and ledger. It ends with its hub. Its exit code is 0 when the run has come to its end, or
was closed because its consumer asked for it; else the folder says why.

A job's ledger is replayed twice in all. The runner replays it once, when the run ends: the summary, the judgement and
the report come from that. The settler (hub/settlement.py) replays it again and pays by what it finds itself, because it
does not trust a process that has run the job's work.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import tomllib
import traceback
from contextlib import closing, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

from databazaar.canonical import canonical
from databazaar.codes import Code
from databazaar.errors import BazaarError, LedgerError
from databazaar.files import alone, write_whole
from databazaar.learning.asked_rows import refuse_small_table, rows_asked
from databazaar.service.hub.folder import FAILURE, LOCK, LOG, MARKET, without_places, write_page
from databazaar.service.hub.progress import ProgressLog
from databazaar.service.jobs import STOP
from databazaar.service.settings import Settings
from databazaar.service.specification import refuse_out_of_bounds

if TYPE_CHECKING:
    from databazaar.config.jobs import Job
    from databazaar.config.play import Playing
    from databazaar.market.run import Progress
    from databazaar.runs.folder import RunFolder

OUR_FAULT = 70
"""The exit code where something failed that is no fault of the job."""
MOST_LOG = 2**20
BEHIND = 10
"""How nice a runner is once its rounds are played: what it still judges and draws waits for the rounds of others."""


class _StoppedError(Exception):
    """The consumer has asked to stop, and a round has just been committed."""


def run(settings: Settings, job_id: str) -> None:
    """What a runner's process does. Ends it with an exit code."""
    become_a_child(settings.job_folder(job_id))
    with alone(settings.job_folder(job_id) / LOCK):  # the one before may still be dying
        code = attempt(settings, job_id)
    sys.exit(code)


def become_a_child(job_folder: Path) -> None:
    """Ends with the hub, however that ends, but not with Ctrl-C, of which the hub decides; prints to the job's log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_hub, daemon=True).start()
    log = job_folder / LOG
    long = log.exists() and log.stat().st_size > MOST_LOG
    kept = os.O_TRUNC if long else os.O_APPEND
    file = os.open(log, os.O_WRONLY | os.O_CREAT | kept, 0o600)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)


def _go_behind() -> None:
    if multiprocessing.parent_process() is not None:  # a hub that runs a job itself stays as it is
        os.nice(BEHIND)


def _end_with_the_hub() -> None:
    hub = multiprocessing.parent_process()
    if hub is not None:
        wait([hub.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


def attempt(settings: Settings, job_id: str) -> int:
    """Plays the job; the exit code. Why it failed is in the folder then."""
    folder = settings.job_folder(job_id)
    try:
        play(folder, settings.run_folder(job_id), job_id, settings.most_visits)
    except BazaarError as refused:
        print(refused, file=sys.stderr, flush=True)  # noqa: T201
        why, code = _told(settings, job_id, refused), refused.exit_code
    except Exception as failed:
        traceback.print_exc()
        why, code = Code.of("runner-failed", error=type(failed).__name__), OUR_FAULT
    else:
        (folder / FAILURE).unlink(missing_ok=True)
        return 0
    with suppress(BazaarError):  # a full disk, say
        write_whole(folder / FAILURE, canonical(why.body()).encode(), mode=0o600)
    return code


def _told(settings: Settings, job_id: str, refused: BazaarError) -> Code:
    """Why a run failed, as its consumer may read it. Of a fault in a provider's table it learns whose table it is, and
    no more: the sentence may show a value of it."""
    said = str(refused)
    with suppress(OSError, ValueError, KeyError):
        market = tomllib.loads((settings.job_folder(job_id) / MARKET).read_text())
        for provider in (str(one["id"]) for one in market["providers"]):
            if f"provider {provider!r}: " in said:
                return Code.of("table-does-not-fit", provider=provider)
    return Code.of("own-words", text=without_places(settings, job_id, said)[:800])


def why_failed(settings: Settings, job_id: str, code: int) -> Code:
    """Why a runner has ended with that code."""
    if code < 0:
        return Code.of("runner-killed", signal=-code)
    try:
        return Code.read(json.loads((settings.job_folder(job_id) / FAILURE).read_bytes()))
    except (OSError, ValueError):
        return Code.of("runner-ended", exit=code)


def play(job_folder: Path, run_folder: Path, job_id: str, most_visits: int) -> None:
    """Plays the job's market.toml from its start, or continues its run, as `bazaar run` does."""
    from databazaar.config.jobs import from_recipe, market_job
    from databazaar.config.play import begun, is_over, resumed
    from databazaar.runs.folder import RunFolder

    if (job_folder / STOP).exists():
        return  # who settles it closes the run
    if not run_folder.exists():
        job = market_job(job_folder / MARKET, profiled=True)
        _refuse_few_labels(job)
        _refuse_long_rounds(job, most_visits)
        with begun(job, run_folder, job_id) as playing, closing(ProgressLog(job_folder)) as teller:
            _finish(playing, teller, job_folder / STOP)
            folder = playing.folder
    else:
        folder = RunFolder(run_folder)
        terms, job = folder.need_rules(), from_recipe(folder.recipe)
        _refuse_few_labels(job)
        if not is_over(job, folder):
            begun_in = {} if terms is None else terms.environment
            with (
                resumed(job, folder, begun_in) as playing,
                closing(_teller_of(job_folder, folder, begun=terms is not None)) as teller,
            ):
                _finish(playing, teller, job_folder / STOP)
    write_page(folder)


def _refuse_few_labels(job: Job) -> None:
    """Refuses tables with too few known targets, which is known only once they are read."""
    for provider in job.providers:
        if provider.data is not None:
            refuse_small_table(len(provider.dataset[1]), f"provider {provider.id!r}: its table")


def _refuse_long_rounds(job: Job, most_visits: int) -> None:
    """Refuses more work than a round may be, which is known for sure only once the tables and classes are."""
    learner, consumer = job.learner, job.consumer
    if learner.rows is None:
        return
    asked = rows_asked(learner.rows, learner.passes, 1 if consumer.form is None else consumer.form.outputs)
    own = sum(len(rows[1]) for rows in (consumer.holdout, consumer.train) if rows is not None)
    refuse_out_of_bounds(asked, {one.id: len(one.dataset[1]) for one in job.providers}, own, most_visits)


def _teller_of(job_folder: Path, folder: RunFolder, begun: bool) -> ProgressLog:
    so_far = folder.replay() if begun else None
    if so_far is not None and not so_far.ok:
        raise LedgerError(f"the ledger of this run does not hold: {so_far.message}")
    return ProgressLog(job_folder, so_far)


def _finish(playing: Playing, teller: ProgressLog, stop: Path) -> None:
    from databazaar.runs.close import close_run

    def tell(progress: Progress) -> None:
        teller.tell(progress)
        if stop.exists():
            raise _StoppedError

    try:
        if not playing.folder.finished:
            playing.settle(tell)
    except _StoppedError:
        close_run(playing.folder)  # not judged: who stops wants to have the rest back
        return
    _go_behind()
    if playing.job.can_be_judged:
        playing.judge()
