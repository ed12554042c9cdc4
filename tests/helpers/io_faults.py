"""Lets a run's I/O calls fail or its process die, one after the other, and sees that `bazaar run` gets there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from databazaar.errors import BazaarError
from databazaar.runs.folder import RunFolder
from processes import BAZAAR, Forked, Zygote

HERE = Path(__file__).parents[1] / "hostile" / "faults"
RUN = ("run", "market.toml", "--out", "run", "--quiet", "--engine", "loop")
MARKET = """\
[market]
name = "tiny"
budget = 6
per_round = 2

[data]
holdout = "holdout.csv"
target = "y"
task = "classification"

[model]
kind = "logistic"

[[providers]]
id = "a"
file = "a.csv"

[[providers]]
id = "b"
file = "b.csv"
"""


class Call(NamedTuple):
    """One I/O call of a run under its folder: the how manieth, of which kind, on what. Some need room on the disk."""

    number: int
    kind: str
    needs_room: bool
    path: str


@dataclass(frozen=True)
class Fault:
    """What happens at a call: a number of faults.c and the error where there is one. Some calls it cannot hit."""

    name: str
    number: int
    error: int = 0

    def hits(self, call: Call) -> bool:
        if self.name == "killed halfway":
            return "write" in call.kind
        return call.needs_room or self.error != errno.ENOSPC


FAULTS = [
    Fault("killed before", 1),
    Fault("killed halfway", 2),
    Fault("killed after", 3),
    Fault("no space, once", 4, errno.ENOSPC),
    Fault("no space, from then on", 5, errno.ENOSPC),
    Fault("I/O error, once", 4, errno.EIO),
    Fault("I/O error, from then on", 5, errno.EIO),
]


def library(folder: Path) -> Path:
    """faults.c, built by the machine's C compiler."""
    made, compiler = folder / "faults.so", os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("these tests need a C compiler: install gcc, or name one in the variable CC")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", made, HERE / "faults.c", "-ldl"],
        check=True,
    )
    return made


class Stage:
    """A folder with a tiny market, the run that nothing happened to, and a process that starts others within
    milliseconds. With `large`, its few numbers are kept as those of a large model are."""

    def __init__(self, folder: Path, large: bool = False) -> None:
        self.market = (folder / "market").resolve()
        self.market.mkdir(parents=True)
        self._log, self._journal = folder / "log.txt", folder / "journal.txt"
        (self.market / "market.toml").write_text(MARKET)
        for place, name in enumerate(("holdout", "a", "b")):
            rows = [f"{(7 * i + place) % 5 - 2},{(3 * i) % 7 - 3},{i % 2}" for i in range(12)]
            (self.market / f"{name}.csv").write_text("\n".join(["x,z,y", *rows]) + "\n")
        script = [HERE / "stage.py", self.market, "large" if large else "small"]
        self._zygote = Zygote(*script, env={"LD_PRELOAD": str(library(folder))})
        self.run = self.market / "run"
        assert self._bazaar(RUN, Fault("", 0), 0) == 0, self.said
        self.calls = list(self._journalled())
        self.whole = self._outcome()
        self._clear()

    def close(self) -> None:
        self._zygote.close()

    def why_not(self, fault: Fault, call: Call) -> str | None:
        """Plays the market with this fault, then resumes it without; what was not as it must be, or None."""
        self._clear()
        try:
            code = self._bazaar(RUN, fault, call.number)
            if (wrong := self._misbehaved(fault, code)) is not None:
                return wrong
            if self.run.exists() and (wrong := self._unsound()) is not None:
                return wrong
            if self._bazaar(("run", "run", "--quiet") if self.run.exists() else RUN) != 0:
                return f"afterwards: {self.said}"
            if self._bazaar(("audit", "run")) != 0:
                return f"audited: {self.said}"
            found = self._outcome()
            other = {name for name in found if found[name] != self.whole[name]}
            return f"another outcome: {', '.join(f'{name} {found[name]}' for name in other)}" if other else None
        finally:
            self._clear()

    def kill_at(self, call: Call) -> None:
        """Leaves the run as it was when its process died before this call."""
        self._clear()
        assert self._bazaar(RUN, FAULTS[0], call.number) == -9, self.said

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace").strip()

    def _misbehaved(self, fault: Fault, code: int) -> str | None:
        if not fault.error:
            return None if code == -9 else f"not killed, but ended with {code}: {self.said}"
        lines = [line for line in self.said.splitlines() if not line.startswith("bazaar: note: ")]
        if code == 0 or (code > 0 and len(lines) == 1 and lines[0].startswith("bazaar: ")):
            return None
        return f"ended with {code}: {lines[-1] if lines else ''}"

    def _unsound(self) -> str | None:
        """A ledger that was cut off anywhere is still a ledger, or says why it has to be resumed before it is read."""
        try:
            found = RunFolder(self.run).audit()
        except BazaarError as early:
            return None if "no ledger yet" in str(early) else str(early)
        return None if found.ok else found.message

    def _outcome(self) -> dict[str, Any]:
        summary = json.loads((self.run / "summary.json").read_text())
        files = sorted({str(path.relative_to(self.run)) for path in self.run.rglob("*")} - {"profile.json"})  # a note
        return {"head": summary["ledger_head"], "model": summary["model_hash"], "files": files}

    def _bazaar(self, args: Sequence[str], fault: Fault | None = None, nth: int = 0) -> int:
        armed = None if fault is None else (fault.number, nth, fault.error, str(self._journal))
        with self._log.open("wb") as log:
            more = {"fault": armed}
            process = Forked(
                [BAZAAR, *args], cwd=self.market, stdout=log, stderr=log, draws=True, zygote=self._zygote, more=more
            )
        return process.wait()

    def _journalled(self) -> Iterator[Call]:
        for line in self._journal.read_text().splitlines():
            number, kind, path = line.split(" ", 2)
            yield Call(int(number), kind.rstrip("+"), kind.endswith("+"), path)

    def _clear(self) -> None:
        for path in [self.run, *self.market.glob(".*.partial")]:
            shutil.rmtree(path, ignore_errors=True)
