"""A package that is not ours brings one rule of each sort, and nothing of ours is changed for it.

tests/rules/acme is such a package as an installer would leave it: a module and its metadata with entry points. It is
there where its folder is on the path of Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ACME = Path(__file__).parent / "acme"
RULES = {
    "sampler": "acme_rules.Bargain(0.3)",
    "aggregator": "acme_rules.Median()",
    "payment": "acme_rules.HalfForHarm()",
    "stops": "[acme_rules.Reserve(11)]",
}


def python(code: str, *arguments: str, acme: bool = True) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ACME), os.environ.get("PYTHONPATH", "")]) if acme else os.environ.get("PYTHONPATH", "")
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )


def bazaar(*arguments: str, acme: bool = True) -> subprocess.CompletedProcess[str]:
    return python("from databazaar.cli import main; main()", *arguments, acme=acme)


PLAY = """
import sys
import numpy as np
import acme_rules
from databazaar import Arbiter, Consumer, Provider

def pull(offset):
    return lambda w: 1.0 + offset - w

def utility(w):
    return float(np.exp(-np.sum((w - 1.0) ** 2)))

providers = [Provider(f"p{{i}}", oracle=pull(0.5 * i), price=4 + 2 * i) for i in range(4)]
consumer = Consumer(np.zeros(3), budget=90, per_round=2, utility=utility, step=0.3)
report = Arbiter(consumer, providers, engine="loop", {rules}).run(sys.argv[1])
print(report.message)
"""


@pytest.mark.parametrize("check", ["sampler", "aggregator", "payment", "stop"])
def test_the_checks_of_the_library_pass_it(check: str) -> None:
    rule = {**RULES, "stop": "acme_rules.Reserve(11)"}[check]
    done = python(f"import acme_rules\nfrom databazaar import check_{check}\ncheck_{check}({rule})")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("row", RULES)
def test_a_rule_from_outside_runs_and_is_audited_reported_and_stated_in_other_processes(
    row: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = python(PLAY.format(rules=f"{row}={RULES[row]}"), str(run))
    assert done.returncode == 0, done.stderr
    if row == "stops":
        assert "11 were to be kept" in done.stdout
    audited = bazaar("audit", str(run))
    assert (audited.returncode, audited.stdout[:3]) == (0, "ok:"), audited.stdout + audited.stderr
    assert bazaar("statement", str(run)).returncode == 0
    reported = bazaar("report", str(run))
    assert reported.returncode == 0, reported.stderr
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "acme-" in page and "acme-rules" in page


@pytest.mark.parametrize("row", ["sampler", "payment", "stops"])
def test_without_the_package_it_says_which_one_to_install(row: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert python(PLAY.format(rules=f"{row}={RULES[row]}"), str(run)).returncode == 0
    for command in ("audit", "statement", "report"):
        done = bazaar(command, str(run), acme=False)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "pip install acme-rules" in done.stderr
        assert done.stdout == ""


def test_an_audit_needs_no_aggregator(tmp_path: Path) -> None:
    """It moves the model, and no money."""
    run = tmp_path / "run"
    assert python(PLAY.format(rules=f"aggregator={RULES['aggregator']}"), str(run)).returncode == 0
    assert bazaar("audit", str(run), acme=False).returncode == 0
