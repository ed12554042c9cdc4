"""The commands of operator and provider, in process where that is enough and as real processes where it is not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import typer
from test_federated_market import MARKET, bazaar
from test_federated_market import command as run
from typer.testing import CliRunner

from databazaar.cli.app import app
from databazaar.data.fraud import fraud_banks
from databazaar.errors import BazaarError
from databazaar.federation import server
from databazaar.federation.grpc_transport import GrpcTransport
from databazaar.federation.records import AccessRecord
from loopback import WAIT, Federation, eventually
from processes import Forked

pytestmark = pytest.mark.process


def commands() -> list[list[str]]:
    found = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return [[group, name] for group in ("federation", "provider") for name in found[group].commands]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_help_has_an_example(command: list[str]) -> None:
    assert f"bazaar {' '.join(command)}" in run(*command, "--help").split("Examples:")[1]


def test_onboarding_by_hand_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("federation", "init", "--name", "fraud", "--port", 20001)
    assert "provider request bank1.json" in run("federation", "invite", "bank1")
    run("provider", "request", "federation/invitations/bank1.json")
    run("federation", "sign", "kit/bank1.request.json")
    assert "kit is complete" in run("provider", "complete", "federation/certificates/bank1.json")
    assert "member   bank1: not connected" in run("federation", "status")
    assert json.loads(run("federation", "status", "--json"))["up"] is False
    assert "was not up" in run("federation", "down")
    looked = CliRunner().invoke(app, ["provider", "check", "kit", "--data", "none.csv"])
    assert looked.exit_code == 2
    assert "BAD  connection   nothing answers at localhost:20001" in looked.output
    assert "BAD  data         none.csv: the file does not exist" in looked.output
    assert "nothing answered yet" in run("provider", "earnings", "kit")
    assert "shut out" in run("federation", "revoke", "bank1")
    assert "revoked  bank1" in run("federation", "status")


def test_earnings_beside_a_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(tmp_path)
    kit = federation.enroll("bank1")
    for round in (0, 2, 5):
        AccessRecord(kit / "answers.jsonl").add("a" * 32, round, "ok", "", None)
    statement = tmp_path / "bank1.json"
    items = [{"round": r, "draw": 0, "paid": 2, "failure": ""} for r in (0, 0, 2)]
    statement.write_text(
        json.dumps({"provider": "bank1", "pay_text": "6 credits", "items": items, "why": "It\x1b[1m was."})
    )
    printed = run("provider", "earnings", kit, "--statement", statement)
    assert "3 rounds answered, 0 refused, 0 failed" in printed
    assert "paid 6 credits; 1 rounds answered and not paid: 5\n  It�[1m was.\n" in printed
    assert json.loads(run("provider", "earnings", kit, "--json"))[0]["answered"] == 3
    statement.write_text(json.dumps({"provider": "bank2", "items": []}))
    with pytest.raises(BazaarError, match="is not bank1's statement"):
        run("provider", "earnings", kit, "--statement", statement)
    statement.write_text("no JSON")
    with pytest.raises(BazaarError, match="cannot be read as JSON"):
        run("provider", "earnings", kit, "--statement", statement)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "give either --data FILE or --oracle"),
        (["--data", "none.csv"], "does not exist"),
        (["--oracle", "no.such:thing"], "is not found"),
        (["--oracle", "os:name"], "cannot be called"),
        (["--oracle", "math:sqrt", "--models", "transformer"], "--models: 'transformer' is unknown"),
        (
            ["--oracle", "math:sqrt", "--max-memory", "1e7"],
            r"--max-memory 1e\+07: give a number above 0 and below 1e\+06",
        ),
        (["--oracle", "math:sqrt", "--max-seconds", "inf"], "--max-seconds inf: give a number above 0 and below"),
        (
            ["--oracle", "math:sqrt", "--epsilon-cap", "1", "--delta", "2"],
            "--delta 2: give a number above 0 and below 1",
        ),
        (["--oracle", "math:sqrt", "--epsilon-cap", "1"], "callable oracle sees to its own privacy"),
    ],
)
def test_join_says_what_is_wrong_before_it_connects(tmp_path: Path, options: list[str], says: str) -> None:
    kit = Federation(tmp_path).enroll("bank1")
    with pytest.raises(BazaarError, match=says):
        run("provider", "join", kit, *options)


@pytest.mark.slow
def test_a_provider_with_privacy_joins_answers_refuses_and_sees_its_earnings(
    federation: Federation, transport: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(federation.root)
    monkeypatch.setenv("DATABAZAAR_ACCOUNTS", str(federation.root / "accounts"))
    root, story = federation.root, fraud_banks(1)
    kit = federation.enroll("private")
    story.holdout.to_csv(root / "holdout.csv", index=False)
    story.banks[0].frame.to_parquet(root / "private.parquet", index=False)
    text = MARKET.replace("budget = 150", "budget = 30") + '[sampler]\nkind = "osmd"\n[[providers]]\nid = "private"\n'
    (root / "private.toml").write_text(text)
    options = ["--data", "private.parquet", "--epsilon-cap", "3", "--noise", "1"]
    provider = bazaar("provider", "join", str(kit), *options, where=root)
    try:
        assert transport.wait_for(["private"], WAIT) == []
        outcome = json.loads(run("run", "private.toml", "--out", "kept", "--json"))
        (line,) = outcome["providers"]
        assert 0 < line["epsilon"] <= 3
        assert line["accesses"] > 0 and line["failures"] > 0
        statement = run("show", "kept", "statement", "--provider", "private", "--json")
        (root / "private.json").write_text(statement)
        assert json.loads(statement)["epsilon"] == line["epsilon"]
        assert "privacy at δ = 1e-05" in (root / "kept" / "report.html").read_text()
        earned = run("provider", "earnings", kit, "--statement", "private.json")
        assert "every round you answered is paid" in earned
        assert re.search(r"receipts acknowledge (\d+) of \1 rounds answered\n", earned)
        assert "of the market agree with it" in run("audit", "kept", "--receipts", kit)
    finally:
        provider.send_signal(signal.SIGINT)
        err = provider.communicate(timeout=WAIT)[1]
    assert provider.returncode == 0, err
    assert "connected" in err and "Traceback" not in err
    assert "account private: ε = 0 of 3 is spent" in err
    assert "the market's schema is pinned, and no other is answered: " in err and "predicts 'fraud' (0, 1) from" in err
    spent = f"account private: ε = {line['epsilon']:.3g} at δ = 1e-05\n  {root.resolve() / 'private.parquet'}"
    assert spent in run("provider", "check", kit)
    server.revoke(federation.market, "private")


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:  # it has just ended, and the zygote has taken its exit code
        return []


@pytest.mark.slow
def test_the_demo_pays_the_good_banks_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "databazaar", "demo", "--federated", "--out", "run", "--json"]
    process = Forked([*command, "--budget", "80"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    seen: dict[int, psutil.Process] = {}

    def ended() -> bool:
        if process.poll() is None:
            seen.update({child.pid: child for child in children_of(process)})
        return process.poll() is not None

    assert eventually(ended, 300.0)
    assert process.stdout is not None
    outcome = json.loads(process.stdout.read())
    process.stdout.close()
    assert process.returncode == 0
    pay = {line["provider"]: line["pay"] for line in outcome["providers"]}
    assert pay["harbour-bank"] > pay["coastal-direct"]
    assert outcome["spent"] == sum(pay.values()) == 80
    assert len(seen) >= 5, "a server and four banks"
    assert psutil.wait_procs(list(seen.values()), timeout=WAIT)[1] == []
    assert not list(tmp_path.glob("bazaar-*"))


@pytest.mark.slow
def test_the_demo_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "databazaar", "demo", "--federated", "--out", str(tmp_path / "run")]
    process = Forked(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    assert eventually(lambda: len(children_of(process)) >= 2, WAIT)
    seen = children_of(process)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=WAIT)[1]
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert psutil.wait_procs(seen, timeout=WAIT)[1] == []
    assert not list(tmp_path.glob("bazaar-*"))
