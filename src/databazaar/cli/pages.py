"""What people read of a run, the page and the statement, held against the ledger."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Mapping
from dataclasses import replace

from databazaar.display import listed
from databazaar.errors import BazaarError, UncheckableError
from databazaar.files import read_plain
from databazaar.ledger import Audit
from databazaar.ledger.replay import TOLERANCE
from databazaar.runs.folder import RunFolder
from databazaar.runs.notes import CSV, JSON, PAGE

NOT_FINAL = {JSON: '"closed": false', PAGE: "nothing on this page is final"}
"""How a statement and a page say themselves that they were written before the run's end."""
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,30}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?(?![\w.])")
_COMPUTED = 6
"""Decimals from which on a number may be a computed one."""


def audit(folder: RunFolder, head: str | None = None) -> Audit:
    """The audit of a run's folder but for its pages, replayed once for both."""
    if folder.finished and _there(folder):
        folder.replay()  # with the rounds that a page shows
    return folder.audit(head)


def compared(folder: RunFolder, found: Audit) -> Audit:
    """An audit together with the page and the statement that lie in the run's folder: they are written anew in memory,
    and must be the same but for last digits. Those of an unfinished run are of some earlier moment: see `not_compared`.
    """
    there = _there(folder)
    if not (found.ok and found.closed and there):
        return found
    if not folder.finished:
        raise UncheckableError(
            f"all else holds, but {listed(there)} cannot be checked before the summary is written: "
            f"`bazaar run {folder.path}` writes it"
        )
    try:
        texts = {name: read_plain(folder.path / name, folder.path).decode("utf-8", "replace") for name in there}
    except UncheckableError:
        raise
    except BazaarError as refused:  # a link or a pipe in its place
        return replace(found, first_broken=str(refused))
    return replace(found, first_broken=_why_pages_differ(folder, found, texts))


def not_compared(folder: RunFolder) -> list[str]:
    """What to say of a page and a statement that an audit does not look at."""
    there = [] if folder.finished else _there(folder)
    return [f"not compared, because the run is not finished: {listed(there)}"] if there else []


def _there(folder: RunFolder) -> list[str]:
    return [name for name in (CSV, JSON, PAGE) if os.path.lexists(folder.path / name)]


def _why_pages_differ(folder: RunFolder, found: Audit, texts: Mapping[str, str]) -> str | None:
    from databazaar.reports.pages import generator
    from databazaar.reports.run_page import page_of, statements_of

    by_us = f'content="{html.escape(generator())}"' in texts.get(PAGE, "")
    final = not any(sign in texts.get(name, "") for name, sign in NOT_FINAL.items())
    report = folder.report()
    expected = statements_of(report)
    for name, text in texts.items():
        if name in expected and alike(text, expected[name]):
            continue
        if name == PAGE and by_us:
            title = _title(folder, text)
            if any(alike(text, page_of(folder, report, found, title, others_tables=one)) for one in (True, False)):
                continue  # a hub's page says nothing of providers' tables
        if by_us and final:
            return f"{name} is not what follows from the ledger: it was changed"
        why = "another version wrote it, or somebody else" if final else "it is older than the run's end"
        raise UncheckableError(
            f"all else holds, but {folder.path / name} cannot be checked, because {why}: "
            f"`bazaar show {folder.path} report` writes it anew"
        )
    return None


def alike(one: str, other: str) -> bool:
    """Whether texts are the same but for the last digits of computed numbers, which another machine's exp gives
    otherwise. Whole numbers, and amounts of a few decimals, have to be the same; drawings have coordinates of six.

    >>> alike("share 0.57164340246352970", "share 0.57164340246352981"), alike("paid 31.00", "paid 31.01")
    (True, False)
    """
    if one == other:
        return True
    if _NUMBER.split(one) != _NUMBER.split(other):
        return False
    return all(map(_close, _NUMBER.findall(one), _NUMBER.findall(other)))


def _close(one: str, other: str) -> bool:
    if one == other:
        return True
    decimals = max(len(number.partition(".")[2]) for number in (one, other))
    if decimals < _COMPUTED and "e" not in one + other:
        return False
    apart = abs(float(one) - float(other))
    return apart <= (1.5e-6 if decimals == _COMPUTED else 1e-15 + TOLERANCE * abs(float(other)))


def _title(folder: RunFolder, page: str) -> str:
    """A run without a name is called as its folder was when the page was written."""
    written = re.search(r"<title>([^<]*)</title>", page)
    return folder.title if folder.named or written is None else html.unescape(written[1])
