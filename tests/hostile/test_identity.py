"""A provider that answers in another's name, and whoever else makes replies up: none of it counts, and none is paid."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from databazaar import Arbiter, Report, Uniform
from databazaar.codes import Code
from databazaar.engines import Ask
from databazaar.federation import enrolment, renewal
from databazaar.federation.messages import Reply, decode_request, encode_reply, question_hash, vector_parts
from databazaar.federation.pki import new_key, verifies
from databazaar.federation.records import ANSWERS, AccessRecord
from databazaar.federation.signatures import MarketKeys, Signer, issued
from databazaar.federation.transport import Fault, LocalTransport
from databazaar.federation.worker import ProviderWorker
from databazaar.ledger.replies import ReplyStatement, SignedReply
from databazaar.runs.folder import RunFolder
from markets import a_consumer, afar, examples, federated
from signed_parties import NAMES, Handler, SignedParties

EVERYBODY = Uniform(replacement=False)
ASIDE = "quarantined"


def poison(signer: Signer | None = None, **changes: object) -> Handler:
    """An update that ruins the model, in bank1's name, signed by whom it may be."""

    def handler(payload: bytes) -> bytes:
        request, params = decode_request(payload)
        header = {"protocol": 2, "run": request.run, "round": request.round, "provider": "bank1", "status": "ok"}
        header |= {"code": "", "epsilon": None, "delta": None, "question": question_hash(payload), **changes}
        reply = Reply.model_validate(header)
        vector = vector_parts(None if params is None else -100 * torch.arange(len(params)) * torch.ones_like(params))
        if signer is not None:
            reply = reply.model_copy(update={"signature": signer.sign(reply.statement(*vector).text)})
        return encode_reply(reply, vector)

    return handler


def played(parties: SignedParties, handlers: dict[str, Handler], folder: Path | None = None) -> Report:
    """A market whose transport brings these handlers' bytes as the providers' own: it was fooled."""
    engine = parties.engine(handlers)
    return Arbiter(a_consumer(), afar(NAMES), EVERYBODY, engine=engine, seed=3).run(folder)


def reasons(report: Report, provider: str) -> list[str | None]:
    """The codes of one provider's accesses."""
    place = [payout.provider for payout in report.payouts].index(provider)
    accesses = [access for round in report.rounds for access in round.accesses if access.provider == place]
    return [None if access.failure is None else access.failure.name for access in accesses]


def test_without_signatures_a_fooled_transport_is_the_end_of_the_model() -> None:
    """What all of this is for: the attack that the other tests see fail."""
    handlers: dict[str, Handler] = {name: ProviderWorker(name, examples(name)) for name in NAMES}
    honest = Arbiter(a_consumer(), afar(NAMES), EVERYBODY, engine=federated(NAMES, LocalTransport(handlers))).run()
    fooled = federated(NAMES, LocalTransport({**handlers, "bank1": poison()}))
    ruined = Arbiter(a_consumer(), afar(NAMES), EVERYBODY, engine=fooled).run()
    assert honest.final_utility > 0.7 > 0.1 > ruined.final_utility
    assert ruined.payouts[0].pay == honest.payouts[0].pay == 12, "and it is paid for"


def of_kit(parties: SignedParties, name: str) -> Signer:
    return parties.signers[name]


FORGERIES: dict[str, tuple[Callable[[SignedParties], Handler], str]] = {
    "unsigned": (lambda parties: poison(), Fault.NOT_SIGNED),
    "with another provider's key": (lambda parties: poison(of_kit(parties, "bank2")), Fault.NOT_SIGNED),
    "with a made-up key": (lambda parties: poison(Signer(new_key())), Fault.NOT_SIGNED),
    "another's honest answer": (lambda parties: parties.worker("bank2"), Fault.OTHER_PROVIDER),
    "to another question": (
        lambda parties: poison(of_kit(parties, "bank1"), question="0" * 64),
        Fault.OTHER_QUESTION,
    ),
    "to no question": (lambda parties: poison(of_kit(parties, "bank1"), question=""), Fault.OTHER_QUESTION),
    "to another round": (lambda parties: poison(of_kit(parties, "bank1"), round=99), Fault.OTHER_ROUND),
}


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.filterwarnings("ignore:bank1")
def test_a_reply_in_another_s_name_is_void(parties: SignedParties, forgery: str) -> None:
    make, why = FORGERIES[forgery]
    report = played(parties, {"bank1": make(parties)})
    assert set(reasons(report, "bank1")) == {why, ASIDE}
    assert report.payouts[0].pay == 0 and report.final_utility > 0.6
    assert report.payouts[1].pay == report.payouts[2].pay == 12


@pytest.mark.filterwarnings("ignore:bank1")
def test_a_forgery_is_not_kept_as_somebody_s_word(parties: SignedParties, tmp_path: Path) -> None:
    played(parties, {"bank1": poison(of_kit(parties, "bank2"))}, tmp_path / "run")
    assert {reply.statement.provider for reply in RunFolder(tmp_path / "run").evidence.replies()} == {"bank2", "bank3"}


def test_a_reply_is_bound_to_its_update(parties: SignedParties) -> None:
    """Somebody on the way exchanges the update under an honest provider's signature."""
    honest = parties.worker("bank1")

    def exchanged(payload: bytes) -> bytes:
        reply, params = honest(payload), decode_request(payload)[1]
        return (
            reply
            if params is None
            else reply[: -len(b"".join(vector_parts(params)))] + b"".join(vector_parts(params + 1))
        )

    assert set(reasons(played(parties, {"bank1": exchanged}), "bank1")) == {Fault.NOT_SIGNED, ASIDE}


@pytest.mark.parametrize(
    ("relabelled", "why"),
    [(False, Fault.OTHER_ROUND), (True, Fault.OTHER_QUESTION)],
    ids=["as it was", "renumbered"],
)
def test_an_older_reply_is_void(parties: SignedParties, relabelled: bool, why: str) -> None:
    """An honest reply of bank1 is caught, and sent again for all later rounds."""
    honest, caught = parties.worker("bank1"), list[bytes]()

    def replayed(payload: bytes) -> bytes:
        request = decode_request(payload)[0]
        if not caught:
            caught.append(honest(payload))
        number = request.round if relabelled else 0
        return caught[0].replace(b'"round":0,', f'"round":{number},'.encode())

    first, *later = reasons(played(parties, {"bank1": replayed}), "bank1")
    assert first is None and set(later) == {why, ASIDE}


def test_what_a_provider_signs_is_kept_named_and_audited(parties: SignedParties, tmp_path: Path) -> None:
    played(parties, {}, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    named = [entry.body["reply"] for entry in run.entries() if entry.kind == "post"]
    kept = {reply.statement.digest: reply for reply in run.evidence.replies()}
    assert len(named) == 36 and set(named) == set(kept)
    for reply in kept.values():
        (pem,) = run.evidence.certificates()[reply.statement.provider]
        key = issued(pem, run.evidence.authority(), reply.statement.provider)
        assert verifies(key, reply.statement.text, reply.signature)
    assert run.evidence.authority() == MarketKeys.of(parties.market).authority
    assert run.audit().ok
    assert {answer.reply for answer in AccessRecord(parties.kits["bank1"] / ANSWERS)} == {
        digest for digest, reply in kept.items() if reply.statement.provider == "bank1"
    }


@pytest.mark.filterwarnings("ignore:bank")
def test_a_mess_under_a_signature_is_named_too(parties: SignedParties, tmp_path: Path) -> None:
    """What a provider has signed it has said, and cannot say that it was somebody else."""
    forged = {
        "bank1": poison(of_kit(parties, "bank1"), status="refused", code="task-not-allowed"),
        "bank2": poison(of_kit(parties, "bank2"), provider="bank2", code="computation-failed"),
    }
    report = played(parties, forged, tmp_path / "run")
    by_provider = {a.provider: a for a in report.rounds[0].accesses}
    assert (by_provider[0].failure, by_provider[1].failure) == (
        Code(Fault.BAD_TENSOR),
        Code(Fault.BAD_HEADER),
    )
    run = RunFolder(tmp_path / "run")
    assert all("reply" in entry.body for entry in run.entries() if entry.round == 0 and entry.kind in ("post", "void"))
    assert run.audit().ok


CHANGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], bool]] = {
    "one is gone": (lambda lines: lines[1:], False),
    "all are gone": (lambda lines: [], False),
    "other words": (lambda lines: [line.replace(b'"status":"ok"', b'"status":"error"') for line in lines], False),
    "noise": (lambda lines: [b"x" * 9000, b"", b"[]", b"{", b'{"statement":1}', *lines, *lines], True),
}


def test_replies_that_were_changed_are_found(parties: SignedParties, tmp_path: Path) -> None:
    played(parties, {}, tmp_path / "run")
    path = tmp_path / "run" / "replies.jsonl"
    lines = path.read_bytes().splitlines()
    for what, (change, holds) in CHANGES.items():
        path.write_bytes(b"\n".join(change(lines)))
        found = RunFolder(tmp_path / "run").audit()
        assert found.ok is holds, what
        assert found.ok or "replies.jsonl lacks the reply of bank" in found.message
    other = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**other, "id": "f" * 32}))
    assert not RunFolder(tmp_path / "run").audit().ok, "they are replies of another run"


def test_a_line_is_a_reply_or_none() -> None:
    said = ReplyStatement("0" * 32, 1, "bank1", "a" * 64, "ok", "", "b" * 64)
    assert SignedReply.read(SignedReply(said, "ab").line) == SignedReply(said, "ab")
    wrong: list[dict[str, object]] = [{"round": True}, {"question": "x"}, {"update": "y"}, {"run": 1}]
    for changes in wrong:
        assert SignedReply.read(SignedReply(replace(said, **changes), "ab").line) is None  # type: ignore[arg-type]
    assert SignedReply.read(SignedReply(said, "xyz").line) is None


def test_a_provider_without_a_certificate_has_no_key(parties: SignedParties) -> None:
    keys = MarketKeys.of(parties.market)
    assert keys.certificates_of("stranger") == [] and not keys.signed_with("stranger", b"x", "00")
    server = (parties.market / "server" / "startup" / "server.crt").read_text()
    assert issued(server, keys.authority, "fraud.server") is None, "a server's certificate is no provider's"
    assert issued(server, keys.authority, "fraud.server", server=True) is not None
    assert issued(server, keys.certificates_of("bank1")[0], "fraud.server", server=True) is None
    key = issued(keys.certificates_of("bank1")[0], keys.authority, "bank1")
    assert not verifies(key, b"x", "00") and not verifies(key, b"x", "no hex")


def test_a_key_counts_until_it_is_revoked(tmp_path: Path) -> None:
    """A provider that has renewed its key may sign with the earlier one until that has ended, and no longer."""
    parties = SignedParties(tmp_path, ["bank1"])
    market, kit, keys = parties.market, parties.kits["bank1"], parties.keys
    early, first = parties.signers["bank1"].sign(b"x"), keys.certificates_of("bank1")
    assert keys.signed_with("bank1", b"x", early) and len(first) == 1
    enrolment.complete(kit, enrolment.sign(market, renewal.renew(kit, new_key=True)))
    late = Signer.of_kit(kit).sign(b"x")
    assert keys.signed_with("bank1", b"x", early) and keys.signed_with("bank1", b"x", late)
    assert keys.certificates_of("bank1")[1:] == first
    renewal.revoke_certificates(market, "bank1")
    assert keys.certificates_of("bank1") == []
    assert not keys.signed_with("bank1", b"x", early) and not keys.signed_with("bank1", b"x", late)


def test_nothing_is_named_that_is_kept_nowhere(parties: SignedParties) -> None:
    replies = parties.engine().query(Ask(a_consumer().initial_parameters(), [0, 2], 0, 5))
    assert not replies.failures and not replies.signed
