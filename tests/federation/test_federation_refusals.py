"""Kits, certificates and answers that are not what they should be: each is refused in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import CertificateSigningRequestBuilder, load_pem_x509_certificate
from typer.testing import CliRunner

from databazaar.cli import enrolment as joining
from databazaar.cli.app import app
from databazaar.codes import Code
from databazaar.data.schema import Schema
from databazaar.data.schema_message import SchemaMessage
from databazaar.engines import Ask
from databazaar.errors import BazaarError
from databazaar.federation import enrolment, enrolment_files, pki
from databazaar.federation.accepted_schemas import AcceptedSchemas
from databazaar.federation.accountant import Accountant
from databazaar.federation.check import check
from databazaar.federation.engine import FederatedEngine, FederatedJob
from databazaar.federation.messages import ModelMessage, TaskMessage
from databazaar.federation.policy import RefusedError
from databazaar.federation.records import AccessRecord, earnings
from databazaar.federation.table import Table
from databazaar.federation.transport import LocalTransport
from databazaar.federation.worker import ProviderWorker
from databazaar.files import lock
from markets import ORACLE, ROWS, TASK, examples

NO_SERVER = 20_001
"""A port of a market whose server is never started."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A market, the complete kit of bank1, and bank2's request, which waits to be signed; tests only copy it."""
    root = tmp_path_factory.mktemp("made")
    market = enrolment.init_market(root / "market", "fraud", "localhost", NO_SERVER).folder
    asked = enrolment.request(enrolment.invite(market, "bank1"), root / "bank1")
    enrolment.complete(root / "bank1", enrolment.sign(market, asked))
    enrolment.request(enrolment.invite(market, "bank2"), root / "bank2")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "root"))


def change(path: Path, **changes: Any) -> None:
    """Replaces parts of a JSON file, or removes those for which None is given."""
    found = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


def ec_request(name: str) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    request = CertificateSigningRequestBuilder().subject_name(pki._name(name)).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


def weak_request(name: str) -> str:
    return pki.new_request(rsa.generate_private_key(public_exponent=65537, key_size=1024), name)


def sign_with(request: Callable[[str], str], name: str = "bank2") -> Callable[[Path], object]:
    """The operator signs a request that was made from the invitation, but not by our code."""

    def attempt(root: Path) -> object:
        secret = json.loads((root / "market/invitations/bank2.json").read_text())["secret"]
        asked = request(name)
        change(root / "bank2/bank2.request.json", request=asked, proof=enrolment_files.proof(secret, asked))
        return enrolment.sign(root / "market", root / "bank2/bank2.request.json")

    return attempt


def sign_revoked(root: Path) -> object:
    """The invitation of a provider that was shut out comes back, as from a backup."""
    invitation = root / "market/invitations/bank2.json"
    kept = invitation.read_text()
    enrolment.record_revocation(root / "market", "bank2")
    invitation.write_text(kept)
    return enrolment.sign(root / "market", root / "bank2/bank2.request.json")


def request_with(**changes: Any) -> Callable[[Path], object]:
    def attempt(root: Path) -> object:
        invitation = root / "market/invitations/bank2.json"
        change(invitation, **changes)
        return enrolment.request(invitation, root / "new")

    return attempt


def complete_with(text: str) -> Callable[[Path], object]:
    def attempt(root: Path) -> object:
        change(root / "market/certificates/bank1.json", certificate=text)
        return enrolment.complete(root / "bank1", root / "market/certificates/bank1.json")

    return attempt


def request_again(root: Path) -> object:
    return enrolment.request(root / "market/invitations/bank2.json", root / "bank2")


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "kit with a key": (request_again, "already holds a key: give a new folder, or send the request that is in it"),
    "revoked": (sign_revoked, "bank2 was revoked and its name stays shut out: invite it under a new name"),
    "endless file": (request_with(padding="x" * 1_000_001), "is not an invitation: ask the operator for one"),
    "another kind": (request_with(kind="request"), "is not an invitation: ask the operator for one"),
    "no secret": (request_with(secret=None), "the file lacks 'secret': ask the sender for it again"),
    "provider that is a number": (request_with(provider=5), "the file lacks 'provider': ask the sender for it again"),
    "no request": (
        sign_with(lambda name: "PEM"),
        "the certificate request of bank2 cannot be read: have it made",
    ),
    "another's request": (sign_with(ec_request, "bank3"), "the certificate request is not one of bank2"),
    "another kind of key": (sign_with(ec_request), "the key of bank2 is not RSA of 2048 bits or more"),
    "weak key": (sign_with(weak_request), "the key of bank2 is not RSA of 2048 bits or more"),
    "no certificate": (complete_with("PEM"), "the certificate of bank1 cannot be read: ask the operator for it again"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_onboarding_refuses_what_is_not_in_order(root: Path, case: str) -> None:
    attempt, words = REFUSED[case]
    with pytest.raises(BazaarError) as refused:
        attempt(root)
    assert words in str(refused.value) and "\n" not in str(refused.value)
    assert enrolment.members(root / "market") == ["bank1"]
    assert not (root / "new").exists(), "a refused invitation leaves no half kit"


def test_a_key_that_does_not_belong_to_the_certificate_is_found(root: Path) -> None:
    """Without a traceback, whatever else is looked at."""
    (root / "bank1/startup/client.key").write_bytes(pki.key_pem(pki.new_key()))
    bad = {what: says for what, (ok, says) in findings(root / "bank1").items() if not ok}
    assert any("do not belong together" in says or "another key" in says for says in bad.values()), bad


def test_a_kit_whose_key_is_of_another_kind_is_refused(root: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (root / "bank1/startup/client.key").write_bytes(text)
    with pytest.raises(BazaarError, match=r"client\.key holds no RSA key: make the kit again"):
        enrolment.complete(root / "bank1", root / "market/certificates/bank1.json")


def findings(kit: Path) -> dict[str, tuple[bool, str]]:
    return {finding.what: (finding.ok, finding.says) for finding in check(kit)}


@pytest.mark.process
def test_a_certificate_that_has_expired_is_not_taken_and_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(root / "bank1")["certificate"][0]
    monkeypatch.setattr(pki, "LEAF_DAYS", -1 / 24 / 60)  # it ended a minute ago
    authority = load_pem_x509_certificate((root / "market/ca/ca.pem").read_bytes())
    key = pki.load_key(root / "bank1/startup/client.key").public_key()
    certificate = pki.pem(pki.Authority(pki.load_key(root / "market/ca/ca.key"), authority).issue("bank1", key))
    with pytest.raises(BazaarError, match="the certificate of bank1 is not valid today: check the clock, or ask"):
        complete_with(certificate)(root)
    (root / "bank1/startup/client.crt").write_text(certificate)
    assert findings(root / "bank1")["certificate"] == (
        False,
        "the certificate has expired: ask the operator for a new invitation, and make a new kit",
    )


@pytest.mark.process
def test_a_provider_s_file_is_looked_at_before_it_joins(root: Path) -> None:
    table = root / "bank1.csv"
    table.write_text("amount,fraud\n" + "1.5,0\n2.5,1\n" * 16)
    looked = CliRunner().invoke(app, ["provider", "check", str(root / "bank1"), "--data", str(table)])
    assert "ok   data         32 rows with amount, fraud" in looked.output
    assert joining.source(table, None, root / "bank1") == Table(
        table.resolve(), AcceptedSchemas((root / "bank1").resolve())
    )
    table.write_text("amount,fraud\n" + "1.5,0\ninf,1\n" * 16)
    looked = CliRunner().invoke(app, ["provider", "check", str(root / "bank1"), "--data", str(table)])
    assert f"BAD  data         {table}: column 'amount' is not a finite number in data row 2" in looked.output


@pytest.mark.process
def test_a_provider_s_file_is_looked_at_as_the_market_last_asked(root: Path) -> None:
    own = pd.DataFrame({"amount": [1.0, 2.0, 4.0], "fraud": ["no", "yes", "no"]})
    asked = SchemaMessage.model_validate(Schema.fit(own, target="fraud", task="classification").to_dict())
    path = root / "bank1.csv"
    path.write_text("amount;fraud\n" + "1,5;yes\n2,5;no\n;no\n3,5;\n" * 11)
    table = Table(path, AcceptedSchemas(root / "bank1"))
    assert table.examples(asked)[1].tolist() == [1, 0, 0] * 11
    command = ["provider", "check", str(root / "bank1"), "--data", str(path)]
    assert "ok   data         33 of 44 rows fit" in CliRunner().invoke(app, command).output
    path.write_text("amount;fraud\n" + "1,5;yes\n3,5;\n" * 31)
    assert f"BAD  data         {path} has 31 rows to learn from" in CliRunner().invoke(app, command).output
    path.write_text("amount,fraud\n" + "1.5,perhaps\n" * ROWS)
    assert f"BAD  data         {path}: column 'fraud' has the class perhaps" in CliRunner().invoke(app, command).output


def answer(source: Any, task: TaskMessage = TASK, width: int = 10) -> dict[int, Code]:
    """Why a provider with this source gave no update; empty where it gave one."""
    engine = FederatedEngine(task, ["bank1"], LocalTransport({"bank1": ProviderWorker("bank1", source)}))
    return engine.query(Ask(torch.zeros(width), [0], 0, 5)).failures


NUMBERS = TASK.model_copy(
    update={"loss": "squared-error", "model": ModelMessage(kind="linear", inputs=(4,), outputs=2, hidden=())}
)


def test_targets_of_several_numbers_fit_a_model_of_as_many_outputs() -> None:
    x, y = examples("bank1")
    assert answer((x, np.stack([y, -y], 1).astype(np.float32)), NUMBERS) == {}
    assert answer((x, y.astype(np.float32)), NUMBERS) == {0: Code.of("refused", why="task-does-not-fit")}


def test_a_file_is_no_use_without_the_market_s_schema(tmp_path: Path) -> None:
    assert TASK.table is None
    assert answer(Table(tmp_path / "bank1.csv")) == {0: Code.of("refused", why="task-does-not-fit")}


@pytest.mark.parametrize(
    ("oracle", "reason"),
    [
        (lambda w: w.tolist(), "the update is a list, not a vector"),
        (lambda w: w[:-1], "the update has shape [9], not [10]"),
        (lambda w: w + np.nan, "the update holds NaN or infinity"),
    ],
)
def test_a_bad_update_is_this_side_s_error_and_its_reason_stays_here(
    oracle: Callable[[np.ndarray], Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert answer(oracle) == {0: Code.of("provider-failed", why="computation-failed")}
    assert reason in caplog.text


def test_a_charge_over_the_cap_takes_nothing(tmp_path: Path) -> None:
    path, work = tmp_path / "privacy.json", (1.0, ORACLE.batch_size / ROWS, 4)
    free = Accountant(path, 1e-5, 1e6)
    free.charge(*work)
    tight = Accountant(path, 1e-5, free.spent * 1.01)
    before = path.read_bytes()
    with pytest.raises(RefusedError):
        tight.check(*work)
    with pytest.raises(RefusedError, match="privacy-spent"):
        tight.charge(*work)
    assert (path.read_bytes(), tight.spent) == (before, free.spent)


def test_one_process_joins_with_a_kit_at_a_time(root: Path) -> None:
    (root / "data.csv").write_text("a,fraud\n" + "1,0\n" * ROWS)
    held = lock(root / "bank1" / "invitation.json", "the test is the first")
    asked = CliRunner().invoke(app, ["provider", "join", str(root / "bank1"), "--data", str(root / "data.csv")])
    held.close()
    assert isinstance(asked.exception, BazaarError)
    assert "another process has joined with" in str(asked.exception) and "stop it first" in str(asked.exception)


def test_whoever_was_revoked_is_not_to_be_invited_again(root: Path) -> None:
    enrolment.record_revocation(root / "market", "bank1")
    job = FederatedJob(root / "market", TASK, step=1.0, deadline=1.0, wait=1.0)
    with pytest.raises(
        BazaarError, match=r"bank1 was revoked.*take it out of market\.toml, or invite it under a new name"
    ):
        job.engine(["bank1"])


def test_two_accountants_of_one_account_forget_nothing(tmp_path: Path) -> None:
    """Whichever writes last, what both have spent is kept, and the cap holds for both together."""
    path, work = tmp_path / "privacy.json", (1.0, ORACLE.batch_size / ROWS, 4)
    alone = Accountant(tmp_path / "alone.json", 1e-5, 1e6)
    first, second = (Accountant(path, 1e-5, 1e6) for _ in range(2))
    for turn in (first, second, second, first):
        turn.charge(*work)
        alone.charge(*work)
        assert turn.spent == alone.spent == json.loads(path.read_text())["epsilon"]
    tight = Accountant(path, 1e-5, alone.spent * 1.001)
    with pytest.raises(RefusedError, match="privacy-spent"):
        tight.charge(*work)


def test_a_statement_is_compared_with_the_run_that_it_is_for(tmp_path: Path) -> None:
    record = AccessRecord(tmp_path / "answers.jsonl")
    for run, rounds in (("old", 3), ("new", 5)):
        for number in range(rounds):
            record.add(run, number, "ok", "", None)
    items = [{"round": number, "paid": 1} for number in range(3)]
    old, new = earnings(record, {"run": "old", "items": items, "pay_text": "3 credits"})
    assert (old.paid, old.unpaid_rounds, old.unknown_rounds, new.paid) == (3, (), (), None)
    with pytest.raises(BazaarError, match="is for the run other, in which this provider answered nothing"):
        earnings(record, {"run": "other", "items": items, "pay_text": "3 credits"})
    _, last = earnings(record, {"items": items, "pay_text": "3 credits"})
    assert last.unpaid_rounds == (3, 4), "one that names no run is compared with the last"


def test_a_statement_is_compared_with_answers_that_are_there(tmp_path: Path) -> None:
    assert earnings(AccessRecord(tmp_path / "answers.jsonl")) == []
    with pytest.raises(BazaarError, match="has answered nothing yet: there is nothing to compare the statement with"):
        earnings(AccessRecord(tmp_path / "answers.jsonl"), {"items": []})
