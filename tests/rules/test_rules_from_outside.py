"""A package that is not ours brings one rule of each sort, and nothing of ours is changed for it.

tests/rules/acme is such a package as an installer would leave it: a module and its metadata with entry points. It is
there where its folder is on the path of Python. Every row about rules in the table of docs/explanation/architecture.md
is proved here: runs in one process, audits, statements and reports in another, with and without the package.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import processes
from databazaar.data.fraud import write_fraud_files

pytestmark = [pytest.mark.slow, pytest.mark.process]

ACME = Path(__file__).parent / "acme"
HELPERS = Path(__file__).parents[1] / "helpers"
ROWS = ("sampler", "aggregator", "payment", "stops")

PLAY = """
import sys
import numpy as np
import acme_rules
from databazaar import Arbiter, Consumer, Provider
from databazaar.testing import check_aggregator, check_payment, check_sampler, check_stop

check_sampler(acme_rules.Bargain())
check_aggregator(acme_rules.Median())
check_payment(acme_rules.HalfForHarm())
check_stop(acme_rules.Reserve(11))

def pull(offset):
    return lambda w: 1.0 + offset - w

def utility(w):
    return float(np.exp(-np.sum((w - 1.0) ** 2)))

rules = {
    "sampler": acme_rules.Bargain(0.3),
    "aggregator": acme_rules.Median(),
    "payment": acme_rules.HalfForHarm(),
    "stops": [acme_rules.Reserve(11)],
}
for row, rule in rules.items():
    providers = [Provider(f"p{i}", oracle=pull(0.5 * i), price=4 + 2 * i) for i in range(4)]
    consumer = Consumer(np.zeros(3), budget=90, per_round=2, utility=utility, step=0.3)
    Arbiter(consumer, providers, engine="loop", **{row: rule}).run(f"{sys.argv[1]}/{row}")
"""

COMMANDS = """
import contextlib, io, json, sys
from databazaar.cli import main
from undrawn import undraw

undraw()
said = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    sys.argv[1:] = arguments
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    said.append({"code": code, "out": out.getvalue(), "err": err.getvalue()})
print(json.dumps(said))
"""


def python(code: str, *arguments: str, acme: bool = True) -> str:
    path = os.pathsep.join([*([str(ACME)] if acme else []), str(HELPERS), os.environ.get("PYTHONPATH", "")])
    done = processes.run([sys.executable, "-c", code, *arguments], env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


READING = ("audit RUN", "show RUN statement", "show RUN report")


def bazaar(*commands: list[str], acme: bool = True) -> list[dict[str, Any]]:
    """What each command said, all of them in one new process."""
    said: list[dict[str, Any]] = json.loads(python(COMMANDS, json.dumps(commands), acme=acme).splitlines()[-1])
    return said


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    python(PLAY, str(folder))
    return folder


def test_it_runs_and_is_audited_stated_and_reported_by_other_processes(runs: Path) -> None:
    said = bazaar(*(command.replace("RUN", str(runs / row)).split() for row in ROWS for command in READING))
    assert [one["code"] for one in said] == [0] * len(said), said
    for row, one in zip(ROWS, said[::3], strict=True):
        assert one["out"].startswith("ok:"), row
        page = (runs / row / "report.html").read_text(encoding="utf-8")
        assert "acme-" in page and "acme-rules" in page, row
    summary = json.loads((runs / "stops" / "summary.json").read_text())
    assert summary["stop"]["reason"]["text"].startswith("11 were to be kept") and summary["refunded"] > 0


def test_without_the_package_it_says_which_one_to_install(runs: Path) -> None:
    rows = ("sampler", "payment", "stops")
    commands = [(command, row) for row in rows for command in READING]
    said = bazaar(*(command.replace("RUN", str(runs / row)).split() for command, row in commands), acme=False)
    for (command, _), one in zip(commands, said, strict=True):
        assert (one["code"], one["out"]) == (3 if command == "audit RUN" else 2, ""), one
        assert "comes from the package acme-rules" in one["err"] and "pip install acme-rules" in one["err"]


def test_an_audit_needs_no_aggregator(runs: Path) -> None:
    """It moves the model, and no money."""
    (said,) = bazaar(["audit", str(runs / "aggregator")], acme=False)
    assert said["code"] == 0 and said["out"].startswith("ok:")


def test_all_of_them_are_named_in_market_toml(tmp_path: Path) -> None:
    path = write_fraud_files(tmp_path / "fraud")
    text = path.read_text(encoding="utf-8")
    rules = (
        '[sampler]\nkind = "acme-bargain"\ncuriosity = 0.5\n\n[aggregator]\nkind = "acme-median"\n\n'
        '[payment]\nkind = "acme-half-for-harm"\n\n[[stops]]\nkind = "acme-reserve"\nkeep = 21\n\n[[providers]]'
    )
    text = text.replace("budget = 1000", "budget = 60").replace("[[providers]]", rules, 1)
    path.write_text(text, encoding="utf-8")
    run = str(tmp_path / "run")
    played, audited, shown = bazaar(["run", str(path), "--out", run, "--json"], ["audit", run], ["run", run, "--quiet"])
    assert played["code"] == 0, played
    outcome = json.loads(played["out"])
    assert outcome["spent"] <= 40 and "21 were to be kept, and 20 are left" in outcome["message"]
    assert audited["code"] == shown["code"] == 0
    (tmp_path / "run" / "summary.json").unlink()  # as if it had been killed at the very end
    refused, audited, resumed = bazaar(
        ["run", str(path), "--out", str(tmp_path / "other")], ["audit", run], ["run", run], acme=False
    )
    assert refused["code"] == resumed["code"] == 2 and audited["code"] == 3
    assert "pip install acme-rules" in resumed["err"] and "pip install acme-rules" in audited["err"]
    assert "sampler.kind = 'acme-bargain' must be one of" in refused["err"] and "install" in refused["err"]
    assert not (tmp_path / "other").exists()
