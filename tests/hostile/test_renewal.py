"""New certificates for old ones, the authority's key on a stick, and files from hostile senders."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from databazaar.cli.app import app
from databazaar.errors import BazaarError
from databazaar.federation import enrolment, pki, renewal, revocations, server
from databazaar.federation.check import check

MINUTE = 1 / 24 / 60


def bazaar(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, BazaarError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def held(kit: Path) -> int:
    return enrolment.kit_certificate(kit).serial_number


def ends_in(days: float, root: Path) -> None:
    """The certificate of bank1 is replaced by one that ends then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pki, "LEAF_DAYS", days)
        sent = json.loads(enrolment.sign(root / "market", renewal.renew(root / "bank1")).read_text())
    (root / "bank1/startup/client.crt").write_text(sent["certificate"])


@pytest.mark.parametrize("new_key", [False, True])
def test_a_provider_renews_and_keeps_its_name(root: Path, new_key: bool) -> None:
    market, kit = root / "market", root / "bank1"
    before, key = held(kit), (kit / "startup/client.key").read_bytes()
    code, said = bazaar("provider", "request", kit, *["--new-key"] * new_key)
    assert code == 0 and "bazaar federation sign bank1.renewal.json" in said
    assert held(kit) == before and (kit / "startup/client.key").read_bytes() == key, "it goes on with what it has"
    assert bazaar("federation", "sign", kit / "bank1.renewal.json", "--folder", market)[0] == 0
    sent = market / "certificates/bank1.json"
    assert set(json.loads(sent.read_text())) == {"kind", "provider", "certificate"}
    assert bazaar("provider", "complete", sent, "--kit", kit)[0] == 0
    assert held(kit) != before
    assert ((kit / "startup/client.key").read_bytes() != key) == new_key
    assert not (kit / enrolment.PENDING).exists()
    assert (kit / "startup/client.key").stat().st_mode & 0o777 == 0o600
    assert [certificate.serial_number for certificate in pki.issued(market, "bank1")] == [before, held(kit)]
    (entry,) = revocations.read(market / "ca/crl.pem", pki.certificate_of(market))
    assert entry.serial == before and entry.superseded and revocations.in_force(market / "ca/crl.pem") == set()
    assert enrolment.members(market) == ["bank1", "bank2"]
    again = renewal.renew(kit)
    enrolment.complete(kit, enrolment.sign(market, again))
    assert len(pki.issued(market, "bank1")) == 3


def test_a_request_to_renew_is_taken_from_the_holder_of_the_name_alone(root: Path) -> None:
    market = root / "market"
    stolen = json.loads(renewal.renew(root / "bank2").read_text()) | {"provider": "bank1"}
    asked = pki.new_request(pki.load_key(root / "bank2/startup/client.key"), "bank1")
    proof = pki.prove(pki.load_key(root / "bank2/startup/client.key"), "fraud", "bank1", asked)
    for name, sent in {"own": stolen, "forged": {**stolen, "request": asked, "proof": proof}}.items():
        (root / f"{name}.json").write_text(json.dumps(sent))
        with pytest.raises(BazaarError, match=r"not one of bank1|not made with bank1's present key"):
            enrolment.sign(market, root / f"{name}.json")
    (root / "ghost.json").write_text(json.dumps({**stolen, "provider": "ghost"}))
    with pytest.raises(BazaarError, match="ghost has no certificate to renew"):
        enrolment.sign(market, root / "ghost.json")
    assert len(pki.issued(market, "bank1")) == 1


def test_a_request_to_renew_serves_once(root: Path) -> None:
    """Signed again it gives the same certificate; after the next one it is worth nothing."""
    market, kit = root / "market", root / "bank1"
    asked = Path(shutil.copy(renewal.renew(kit, new_key=True), root / "first.json"))
    first = enrolment.sign(market, asked).read_text()
    assert enrolment.sign(market, asked).read_text() == first
    enrolment.complete(kit, market / "certificates/bank1.json")
    enrolment.complete(kit, enrolment.sign(market, renewal.renew(kit, new_key=True)))
    with pytest.raises(BazaarError, match="not made with bank1's present key"):
        enrolment.sign(market, asked)
    renewal.renew(kit)
    server.revoke(market, "bank1")
    with pytest.raises(BazaarError, match="bank1 was revoked"):
        enrolment.sign(market, kit / "bank1.renewal.json")
    with pytest.raises(BazaarError, match="bank1 was revoked"):
        enrolment.invite(market, "bank1")


def test_an_older_certificate_does_not_come_back_and_a_cut_change_of_keys_is_finished(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    market, kit = root / "market", root / "bank1"
    older = Path(shutil.copy(market / "certificates/bank1.json", root / "older.json"))
    renewed = enrolment.sign(market, renewal.renew(kit, new_key=True))

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", cut)
        with pytest.raises(KeyboardInterrupt):
            enrolment.complete(kit, renewed)
    assert any("do not belong together" in finding.says for finding in check(kit))
    enrolment.complete(kit, renewed)
    with pytest.raises(BazaarError, match="not for bank1's key"):
        enrolment.complete(kit, older)
    monkeypatch.setattr(pki, "_CLOCK_SKEW", dt.timedelta(hours=1))
    key = pki.load_key(root / "bank2/startup/client.key").public_key()
    text = pki.pem(enrolment.operator_folder(market).authority(None, pki.from_environment).issue("bank2", key))
    (root / "old.json").write_text(json.dumps({"kind": "certificate", "provider": "bank2", "certificate": text}))
    with pytest.raises(BazaarError, match="holds a newer certificate"):
        enrolment.complete(root / "bank2", root / "old.json")


@pytest.mark.process
def test_everybody_is_warned_before_a_certificate_ends(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    market, kit = root / "market", root / "bank1"
    assert renewal.warnings(market) == [] and renewal.kit_warning(kit) == ""
    ends_in(12.5, root)
    with monkeypatch.context() as patch:
        patch.setattr(pki, "LEAF_DAYS", 3.5)
        renewal.renew_server(market)
    said = "the certificate of bank1 ends in 12 days: renew it with its `bazaar provider request KIT`"
    server_says = "the server's certificate ends in 3 days: renew it with `bazaar federation sign --server`"
    assert renewal.warnings(market) == [server_says, said]
    assert json.loads(bazaar("federation", "status", "--folder", market, "--json")[1])["warnings"] == [
        server_says,
        said,
    ]
    assert f"warning: {said}" in bazaar("federation", "status", "--folder", market)[1]
    looked = {finding.what: finding for finding in check(kit)}["certificate"]
    assert looked.ok and looked.says.endswith(
        "valid for 12 days more; the certificate ends in 12 days: renew it with `bazaar provider request bank1`"
    )


@pytest.mark.process
def test_a_name_whose_certificate_has_ended_is_invited_again(root: Path) -> None:
    market, kit = root / "market", root / "bank1"
    asked = renewal.renew(kit)
    ends_in(-MINUTE, root)
    with pytest.raises(BazaarError, match="the certificate of bank1 has ended: run `bazaar federation invite bank1`"):
        enrolment.sign(market, asked)
    with pytest.raises(BazaarError, match="the certificate has ended: ask the operator for an invitation"):
        renewal.renew(kit)
    assert "has expired" in {finding.what: finding for finding in check(kit)}["certificate"].says
    asked = enrolment.request(enrolment.invite(market, "bank1"), root / "new")
    enrolment.complete(root / "new", enrolment.sign(market, asked))
    assert len(pki.issued(market, "bank1")) == 3
    with pytest.raises(BazaarError, match="already has a certificate"):
        enrolment.invite(market, "bank1")


@pytest.mark.process
def test_a_server_that_nobody_would_take_is_not_started(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    market = root / "market"
    with monkeypatch.context() as patch:
        patch.setattr(pki, "LEAF_DAYS", -MINUTE)
        renewal.renew_server(market)
    assert bazaar("federation", "up", "--folder", market)[1].startswith("the server's certificate has ended")
    renewal.renew_server(market)
    renewal.ready(market)
    (market / "server/startup/server.key").write_bytes(pki.key_pem(pki.new_key()))
    with pytest.raises(BazaarError, match="do not belong together: run `bazaar federation sign --server`"):
        renewal.ready(market)
    (market / "server/startup/server.crt").unlink()
    with pytest.raises(BazaarError, match=r"the server's certificate in .* cannot be read"):
        renewal.ready(market)
