"""Whole markets over real processes: the same hashes as at home, and every fault that a provider can have."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from databazaar import Arbiter, BazaarError, Progress, Report, Uniform
from databazaar.cli.app import app
from databazaar.codes import QUARANTINED
from databazaar.data.fraud import fraud_banks
from databazaar.engines import Beginning
from databazaar.engines.quarantine import Quarantine
from databazaar.federation import messages, server
from databazaar.federation.grpc_transport import GrpcTransport
from databazaar.federation.signatures import MarketKeys
from databazaar.federation.transport import Failures, Fault, Replies
from loopback import SEARCH_PATH, WAIT, Federation, eventually
from markets import a_consumer, afar, at_home, federated
from own_samplers import Valued
from processes import Forked

pytestmark = [pytest.mark.slow, pytest.mark.process]
BANKS = ["bank1", "bank2", "bank3"]
EVERYBODY = Uniform(replacement=False)


@pytest.fixture(autouse=True)
def awake(transport: GrpcTransport) -> None:
    """A provider imports what it computes with when a market first asks."""
    assert federated(BANKS, transport).would_take(BANKS, WAIT) == {}


@pytest.fixture
def behave(federation: Federation) -> Iterator[dict[str, Path]]:
    files = {name: federation.root / name / "behave.txt" for name in BANKS}
    yield files
    for file in files.values():
        file.unlink(missing_ok=True)


def reasons(report: Report, provider: str) -> list[str | None]:
    """The codes of one provider's accesses."""
    index = [payout.provider for payout in report.payouts].index(provider)
    accesses = [access for round in report.rounds for access in round.accesses if access.provider == index]
    return [None if access.failure is None else access.failure.name for access in accesses]


def test_the_same_model_and_ledger_as_at_home_and_each_is_asked_once_a_round(
    federation: Federation, transport: GrpcTransport
) -> None:
    home = Arbiter(a_consumer(), at_home(BANKS), Valued(), engine="loop", device="cpu", seed=3).run()
    engine = federated(BANKS, transport)
    engine.begin(Beginning("1" * 32))
    away = Arbiter(a_consumer(), afar(BANKS), Valued(), engine=engine, seed=3).run()
    assert (away.model_hash, away.ledger_head) == (home.model_hash, home.ledger_head)
    drawn = [(r.number, f"bank{a.provider + 1}") for r in away.rounds for a in r.accesses]
    assert len(drawn) > len(set(drawn)), "somebody was drawn twice in a round"
    asked = [
        (int(line.split()[1]), name)
        for name in BANKS
        for line in (federation.root / name / "asked.txt").read_text().splitlines()
        if line.startswith("1" * 32) and line.endswith("update")
    ]
    assert sorted(asked) == sorted(set(drawn))


def test_consumers_over_one_federation_end_as_each_would_alone(federation: Federation) -> None:
    """Three processes, each with its own arbiter, ask the same banks; nothing but time depends on the others."""
    command = [sys.executable, "-m", "consumer_process", str(federation.market)]
    consumers = {
        seed: Forked(
            [*command, f"consumer-{seed}", str(seed)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": SEARCH_PATH},
        )
        for seed in (7, 8, 9)
    }
    for seed, process in consumers.items():
        alone = Arbiter(a_consumer(), at_home(BANKS), Valued(), engine="loop", device="cpu", seed=seed).run()
        found = json.loads(done(process)[0])
        assert found == {"model": alone.model_hash, "head": alone.ledger_head, "void": 0}
    assert server.status(federation.market).queues == {}


def test_lies_of_every_kind_are_voided_and_the_run_goes_on(transport: GrpcTransport, behave: dict[str, Path]) -> None:
    behave["bank2"].write_text("nan inf good huge shape good stale identity good raise")
    engine = federated(BANKS, transport, quarantine=Quarantine(3))
    report = Arbiter(a_consumer(30), afar(BANKS), EVERYBODY, engine=engine).run()
    assert reasons(report, "bank2") == [
        Fault.NOT_FINITE,
        Fault.NOT_FINITE,
        None,
        "beyond-limit",
        Fault.OTHER_SHAPE,
        None,
        Fault.OTHER_ROUND,
        Fault.OTHER_PROVIDER,
        None,
        "provider-error",
    ]
    assert [(p.accesses, p.failures, p.pay) for p in report.payouts] == [(10, 0, 10), (3, 7, 3), (10, 0, 10)]
    assert (report.spent, report.refunded) == (23, 7)


def test_only_what_a_provider_has_signed_counts_and_it_gets_receipts(
    federation: Federation, transport: GrpcTransport, behave: dict[str, Path], tmp_path: Path
) -> None:
    """bank3 answers as bank1, on bank1's own connection, with everything but its key; then somebody signs nothing."""
    behave["bank1"].write_text("good forged shape good")
    engine = federated(BANKS, transport, keys=MarketKeys.of(federation.market))
    report = Arbiter(a_consumer(36), afar(BANKS), EVERYBODY, engine=engine).run(tmp_path / "run")
    void = [None, Fault.NOT_SIGNED, Fault.OTHER_QUESTION, None]
    assert reasons(report, "bank1") == 3 * void
    assert [payout.pay for payout in report.payouts] == [6, 12, 12]
    assert eventually(lambda: all((federation.root / name / "receipts.jsonl").exists() for name in BANKS))
    kits = [str(federation.root / name) for name in BANKS]
    checked = command("audit", tmp_path / "run", *(word for kit in kits for word in ("--receipts", kit)))
    assert "6 receipts of the market agree with it" in checked


class NotingTransport(GrpcTransport):
    """Notes whom it asked for what, and how long it was to wait."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked: list[tuple[list[str], str, float]] = []

    def request(self, names: Sequence[str], payload: bytes, timeout: float) -> tuple[Replies, Failures]:
        self.asked.append((sorted(names), messages.decode_request(payload)[0].kind, timeout))
        return super().request(names, payload, timeout)


def test_a_hanging_provider_costs_its_deadline_twice_and_then_next_to_nothing(
    federation: Federation, behave: dict[str, Path]
) -> None:
    def tell(progress: Progress) -> None:
        if progress.round == 6:
            behave["bank3"].unlink()
            with GrpcTransport(federation.market) as other:
                wait_until_it_answers(other, "bank3")

    behave["bank3"].write_text("hang")
    with NotingTransport(federation.market) as transport:
        engine = federated(BANKS, transport, deadline=3.0, quarantine=Quarantine(2))
        report = Arbiter(a_consumer(60), afar(BANKS), EVERYBODY, engine=engine).run(tell=tell)
    why = reasons(report, "bank3")
    assert why[:2] == ["no-answer"] * 2
    assert set(why[2:6]) == {QUARANTINED.name}
    assert why[-1] is None, "it is let back in"
    assert why == sorted(why, key=lambda reason: (reason is None, reason == QUARANTINED.name))
    everybody, others, probe = (BANKS, "update", 3.0), (BANKS[:2], "update", 3.0), (["bank3"], "describe", 0.5)
    waited_for = [everybody, everybody, probe, others, others, probe, others, others]
    assert transport.asked[: len(waited_for)] == waited_for, "nobody waits for a provider that is set aside"
    assert report.payouts[0].failures == report.payouts[1].failures == 0


def wait_until_it_answers(transport: GrpcTransport, name: str) -> None:
    """Connected is not enough: on busy cores it takes seconds from there until a provider's own process answers."""
    assert transport.wait_for([name], WAIT) == []
    assert eventually(lambda: not federated([name], transport).would_take([name], 5.0), WAIT)


def test_a_provider_killed_in_the_middle_of_a_run_rejoins_it(federation: Federation, transport: GrpcTransport) -> None:
    def tell(progress: Progress) -> None:
        if progress.round == 2:
            federation.kill("bank2")
        if progress.round == 6:
            federation.start("bank2")
            with GrpcTransport(federation.market) as other:
                wait_until_it_answers(other, "bank2")

    engine = federated(BANKS, transport, deadline=10.0)
    report = Arbiter(a_consumer(60), afar(BANKS), EVERYBODY, engine=engine).run(tell=tell)
    why = reasons(report, "bank2")
    assert why[:2] == [None, None] and why[-1] is None
    assert why[2] in ("connection-lost", "not-connected")
    assert report.payouts[1].failures == sum(reason is not None for reason in why)
    assert report.payouts[0].failures == report.payouts[2].failures == 0


MARKET = """\
[market]
name = "crash"
budget = 150
per_round = 3
seed = 4
[data]
holdout = "holdout.csv"
target = "fraud"
[model]
kind = "mlp"
hidden = [8]
[oracle]
step = 0.05
[defence]
kind = "standard"
[engine]
kind = "federated"
device = "cpu"
[federation]
folder = "market"
deadline = 20.0
wait = 90.0
"""


def bazaar(*arguments: str, where: Path) -> subprocess.Popen[str]:
    return Forked(
        [sys.executable, "-m", "databazaar", *arguments],
        cwd=where,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def command(*arguments: object) -> str:
    """The same in this process, and faster."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, BazaarError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def done(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=180)
    assert process.returncode == code, err
    return out, err


def rounds_answered(federation: Federation, run: Path) -> int:
    number = json.loads((run / "run.json").read_text())["id"] if run.exists() else "nothing"
    notes = (federation.root / "bank1" / "asked.txt").read_text().splitlines()
    return sum(line.startswith(number) and line.endswith("update") for line in notes)


@pytest.mark.usefixtures("no_figures")  # as in the processes: what is audited here is drawn here, too
def test_bazaar_run_and_resume_after_arbiter_and_server_were_killed(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are killed with -9; the end is that of a run at home that nobody disturbed, and the same are cleared."""
    root, story = federation.root, fraud_banks(1)
    story.holdout.to_csv(root / "holdout.csv", index=False)
    providers = ""
    for name, bank in zip(BANKS, story.banks[::3], strict=True):
        bank.frame.head(200).to_csv(root / name / "data.csv", index=False)
        providers += f'[[providers]]\nid = "{name}"\nfile = "{name}/data.csv"\n'
    (root / "market.toml").write_text(MARKET + providers)
    monkeypatch.chdir(root)
    home = json.loads(command("run", "market.toml", "--engine", "loop", "--out", "home", "--json"))
    run = root / "away"
    arbiter = bazaar("run", "market.toml", "--out", "away", "--quiet", where=root)
    assert eventually(lambda: rounds_answered(federation, run) >= 3, WAIT), arbiter.communicate(timeout=5)
    arbiter.send_signal(signal.SIGKILL)
    arbiter.communicate()
    answered = rounds_answered(federation, run)
    again = bazaar("run", "away", "--quiet", where=root)
    assert eventually(lambda: rounds_answered(federation, run) >= answered + 3, WAIT)
    pid = server.status(federation.market).pid
    psutil.Process(pid).kill()
    assert "went away: bring it up again and resume the run" in done(again, 2)[1]
    with pytest.raises(BazaarError, match="is not up: run `bazaar federation up`"):
        command("run", "away")
    federation.up()
    out, err = done(bazaar("run", "away", "--json", where=root))
    away = json.loads(out)
    assert not any("goes on" in line for line in err.splitlines()), err
    assert away["model_hash"] == home["model_hash"]
    assert away["providers"] == home["providers"]
    assert away["ledger_head"] != home["ledger_head"]  # only at home do the digests of the banks' files stand in it
    assert 0 < away["spent"] == home["spent"] <= 150
    assert "ok:" in command("audit", "away")


def test_user_errors_are_one_sentence(federation: Federation, tmp_path: Path) -> None:
    (tmp_path / "holdout.csv").write_text("a,fraud\n1,0\n2,1\n")
    text = MARKET.replace('"market"\ndeadline', f'"{federation.market}"\ndeadline')
    (tmp_path / "market.toml").write_text(text + '[[providers]]\nid = "stranger"\n')
    with pytest.raises(BazaarError, match=r"^stranger is no member of .* `bazaar federation invite stranger`"):
        command("run", tmp_path / "market.toml")
