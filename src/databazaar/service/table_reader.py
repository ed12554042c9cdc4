"""Tables of other parties are read in a process of their own, with a limit of memory and of time.

A hostile file ends that process and not the hub. What was found comes back as JSON; nothing is unpickled here. Only a
few tables are read at a time, and of each organisation fewer still.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from databazaar.errors import BazaarError
from databazaar.service.errors import InvalidError
from databazaar.service.hub.children import Turns, start
from databazaar.service.settings import Settings

AT_ONCE, AT_ONCE_OF_ONE, PATIENCE = 3, 2, 60.0
SLOWEST = 10
"""How many seconds of the clock a second of a processor may take, before the process is given up."""
LONGEST = 32 * 2**20
"""The most bytes of JSON that are taken from a process."""
_turns = Turns(
    AT_ONCE,
    AT_ONCE_OF_ONE,
    "the hub reads as many tables at once as it can: try again in a minute",
    f"{AT_ONCE_OF_ONE} tables of yours are being read: try again when they are done",
)
log = logging.getLogger(__name__)

Work = Callable[..., Any]
"""Reads a table, given its path and more, and returns what JSON can hold."""


def read_apart(settings: Settings, work: Work, path: Path, *more: Any, name: str = "", whose: str = "") -> Any:
    """What `work(path, *more)` returns, as JSON gives it back. A file that cannot be read is refused in one sentence,
    under the `name` that it came with. `whose` is the organisation that waits."""
    name = name or path.name
    with _turns.turn(whose, PATIENCE):
        answer = _answer(settings, work, path, *more)
    if "found" in answer:
        return answer["found"]
    if "refused" in answer:
        raise InvalidError(str(answer["refused"]).replace(str(path), name), place=str(answer["place"]))
    if "failed" in answer:
        log.warning("a table of %s could not be read: %s", whose or "nobody", answer["failed"])
        raise InvalidError(f"{name}: the file cannot be read ({answer['failed']}): correct it or save it again")
    raise InvalidError(
        f"{name}: the file takes more than the {settings.table_memory / 2**30:,.1f} GiB of memory or the "
        f"{settings.table_seconds} seconds that the hub has for reading a table: split it or leave columns out"
    )


def _answer(settings: Settings, work: Work, path: Path, *more: Any) -> dict[str, Any]:
    """What the process says; nothing where it was ended."""
    here, there = multiprocessing.Pipe(duplex=False)
    limits = settings.table_memory, settings.table_seconds
    with here:
        with there:
            process = start(_work, (there, limits, work, path, *more), f"table-{path.name[:16]}")
        try:
            if here.poll(settings.table_seconds * SLOWEST):
                return dict(json.loads(here.recv_bytes(LONGEST)))
        except (EOFError, OSError):  # it was ended, or says too much
            pass
        finally:
            process.kill()
            process.join()
    return {}


def _work(there: Connection, limits: tuple[int, int], work: Work, path: Path, *more: Any) -> None:
    import pyarrow as pa

    from databazaar.data.memory_limits import limit_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Ctrl-C the hub decides
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    limit_process(*limits)
    there.send_bytes(told(work, path, *more))


def told(work: Work, path: Path, *more: Any) -> bytes:
    """What `work` finds in a table, or how it fails, as JSON."""
    try:
        return json.dumps({"found": work(path, *more)}).encode()
    except BazaarError as refused:
        return json.dumps({"refused": str(refused), "place": refused.place}).encode()
    except MemoryError:
        return b"{}"
    except Exception as error:  # whatever a library says of a file that it does not understand
        return json.dumps({"failed": type(error).__name__}).encode()


MOST_COLUMNS = 10_000


def outline(settings: Settings, path: Path, name: str = "", whose: str = "") -> tuple[int, list[dict[str, Any]]]:
    """What is shown of a table: how many rows, and each column's name and kind; never a value. A faulty one is refused
    under its `name`; `whose` is the organisation that waits."""
    rows, columns = read_apart(settings, found_in, path, name=name, whose=whose)
    return rows, columns


def found_in(path: Path) -> tuple[int, list[dict[str, Any]]]:
    """Reads the table, which takes several times its size in memory; for a process of its own."""
    from databazaar.data.tables import read_table

    frame = read_table(path).frame
    if len(frame.columns) > MOST_COLUMNS:
        raise BazaarError(
            f"{path} has {len(frame.columns):,} columns, and a table has {MOST_COLUMNS:,} at the most: leave some out"
        )
    return len(frame), [{"name": str(column), "kind": _kind(frame[column])} for column in frame.columns]


def _kind(column: Any) -> str:
    """number, date, category, text (too many different ones, or none of these) or empty."""
    from databazaar.data.encoders import CategoricalColumn, DateColumn, NumericColumn
    from databazaar.data.holdout import fit_column
    from databazaar.data.schema_message import LeftOut

    try:
        fitted = fit_column(column, said=None, wanted=False, day_first=None, where="")
    except BazaarError:  # its sentence would show a value
        return "text"
    kinds = {NumericColumn: "number", DateColumn: "date", CategoricalColumn: "category"}
    if isinstance(fitted, LeftOut):
        return {"empty": "empty", "constant": "date", "identifier": "text"}[fitted.why]
    return kinds.get(type(fitted), "text")
