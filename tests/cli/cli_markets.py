"""Small markets on disk, and `bazaar` called in this process or as the real executable."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd

import processes
from databazaar.cli import main
from processes import BAZAAR

PROVIDERS = ("north", "south", "far east")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONWARNINGS": "error"}


@dataclass(frozen=True)
class Outcome:
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line of a refusal: exit code 2, nothing on standard output, no traceback."""
        assert (self.code, self.out) == (2, ""), self
        lines = self.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("bazaar: "), self.err
        return lines[0]


def bazaar(*args: str | Path, cwd: Path | None = None) -> Outcome:
    """The command in this process, with its own standard streams and argv."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd or Path.cwd()),
        mock.patch.object(sys, "argv", ["bazaar", *map(str, args)]),
        mock.patch.object(warnings, "showwarning", warnings.showwarning),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return Outcome(code, out.getvalue(), err.getvalue())


def executable(*args: str | Path, cwd: Path | None = None, draws: bool = False) -> Outcome:
    """The command as a user's shell starts it."""
    done = processes.run([BAZAAR, *map(str, args)], cwd=cwd, env=ENVIRONMENT, draws=draws)
    return Outcome(done.returncode, done.stdout, done.stderr)


def contents(folder: Path) -> dict[str, str]:
    """Every path under a folder and what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def table(rows: int, seed: int, task: str) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    amount, hour = rng.lognormal(3, 0.5, rows), rng.integers(0, 24, rows)
    channel = rng.choice(["web", "shop", "phone"], rows)
    signal = np.log(amount) - 3 + 0.5 * (channel == "web")
    target = (signal > 0.1).astype(int) if task == "classification" else np.round(10 * signal, 3)
    return pd.DataFrame({"amount": amount.round(2), "hour": hour, "channel": channel, "target": target})


def write_market(
    folder: Path, task: str = "classification", suffix: str = ".csv", budget: str = '"30.00"', more: str = ""
) -> Path:
    """A market of three providers in euros: two of one owner, prices of 0.50, 1.25 and 0.50."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, name in enumerate(("holdout", *PROVIDERS)):
        frame = table(80 if name == "holdout" else 30 + 10 * place, place, task)
        if suffix == ".parquet":
            frame["channel"] = frame["channel"].astype("category")
            frame.to_parquet(folder / f"{name}.parquet")
        else:
            frame.to_csv(folder / f"{name}{suffix}", index=False)
    kind = "logistic" if task == "classification" else "linear"
    text = f"""
[market]
name = "Small market"
budget = {budget}
per_round = 4
seed = 3
currency = "EUR"
decimals = 2

[data]
holdout = "holdout{suffix}"
target = "target"
task = "{task}"

[model]
kind = "{kind}"

[sampler]
kind = "osmd"

[engine]
device = "cpu"
"""
    for name, owner, price in zip(PROVIDERS, ("compass", "compass", ""), ("0.50", "1.25", "0.50"), strict=True):
        text += f'\n[[providers]]\nid = "{name}"\nfile = "{name}{suffix}"\nprice = "{price}"\n'
        text += f'owner = "{owner}"\n' if owner else ""
    path = folder / "market.toml"
    path.write_text(text + more, encoding="utf-8")
    return path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new), encoding="utf-8")
