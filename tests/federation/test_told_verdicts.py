"""A defended market over a federation: every provider is told its own verdicts by receipts, and nobody else's."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from databazaar import Arbiter, Consumer, Provider, Report, Uniform
from databazaar.cli.app import app
from databazaar.defence import Defence
from databazaar.federation.disputes import Held, compare
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.enrolment import load_kit
from databazaar.federation.messages import ModelMessage, OracleMessage, TaskMessage
from databazaar.federation.receipts import Hearing, Notice, Receipt, ReceiptKeeper, verified
from databazaar.federation.records import ANSWERS, AccessRecord
from databazaar.federation.transport import LocalTransport
from databazaar.federation.worker import ProviderWorker
from databazaar.market.inspection.holdout_parts import halves
from databazaar.runs.folder import RunFolder
from signed_parties import SignedParties

NAMES = ["bank1", "bank2", "spy", "twin"]
SIZE, SEED, ID = 32, 0, "ab" * 16
TASK = TaskMessage(
    model=ModelMessage(kind="logistic", inputs=(SIZE,), outputs=2, hidden=()),
    loss="cross-entropy",
    oracle=OracleMessage(kind="local-sgd", step=0.2, batch_size=8, epochs=1, momentum=0.5),
    table=None,
)


@dataclass(frozen=True)
class Played:
    report: Report
    folder: Path
    parties: SignedParties

    def receipts(self, name: str) -> list[Receipt]:
        found, worthless = verified(self.parties.kits[name])
        assert not worthless
        return found

    def told(self, name: str) -> list[Notice]:
        return [told for receipt in self.receipts(name) for told in receipt.verdicts]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Two banks, one that knows the scoring part of the hold-out by heart, and a twin of the first bank."""
    rng, root = np.random.default_rng(SEED), tmp_path_factory.mktemp("told")
    truth = rng.normal(size=SIZE)

    def rows(count: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        x = (rng.normal(size=(count, SIZE)) + shift * rng.normal(size=SIZE)).astype(np.float32)
        return x, (x @ truth + rng.normal(size=count) > 0).astype(np.int64)

    holdout = rows(60)
    scoring = halves(60, SEED).scoring
    known = torch.from_numpy(holdout[0][scoring]), torch.from_numpy(holdout[1][scoring])

    def by_heart(params: np.ndarray) -> np.ndarray:
        """The descent on the rows that it has seen."""
        w = torch.tensor(params, requires_grad=True)
        logits = known[0] @ w[: 2 * SIZE].reshape(2, SIZE).T + w[2 * SIZE :]
        (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, known[1]), w)
        found: np.ndarray = -3.0 * gradient.numpy()
        return found

    source: dict[str, Any] = {name: rows(120, 0.4) for name in NAMES}
    source |= {"spy": by_heart, "twin": source["bank1"]}
    parties = SignedParties(root, NAMES)
    workers = {}
    for name in NAMES:
        kit = load_kit(parties.kits[name])
        keeper = ReceiptKeeper(kit.folder, name, kit.market)
        signer, record = parties.signers[name], AccessRecord(kit.folder / ANSWERS)
        workers[name] = ProviderWorker(name, source[name], record=record, signer=signer, receipts=keeper)
    engine = FederatedEngine(TASK, NAMES, LocalTransport(workers), step=0.2, keys=parties.keys)
    consumer = Consumer("logistic", holdout=holdout, budget=12 * 10 * len(NAMES), per_round=len(NAMES))
    providers = [Provider(name, price=10) for name in NAMES]
    sampler, defence = Uniform(replacement=False), replace(Defence.named("standard"), leak=0.3)
    arbiter = Arbiter(consumer, providers, sampler, engine=engine, seed=SEED, defence=defence)
    folder = RunFolder.create(root / "run", {"id": ID})
    return Played(arbiter.run(folder), folder.path, parties)


def test_everybody_is_told_its_own_verdicts_once(played: Played) -> None:
    defended = played.report.defended
    assert defended is not None
    assert {one.provider: one.what for one in defended.flagged} == {"spy": "leak"}
    assert [(one.provider, one.other) for one in defended.merged] == [("twin", "bank1")]
    for name in NAMES:
        own = [
            Notice(one.round or 0, one.what, one.figure or 0.0, one.limit, one.answers, one.entry, one.hash)
            for one in defended.of(name)
        ]
        assert played.told(name) == own


def test_nobody_is_told_of_anybody_else(played: Played) -> None:
    for name in NAMES:
        kept = (played.parties.kits[name] / "receipts.jsonl").read_text()
        said = "".join(receipt.text.decode() for receipt in played.receipts(name))
        assert said and json.loads(kept.splitlines()[0])
        assert not [other for other in NAMES if other != name and other in said]


def test_a_provider_sees_what_became_of_its_pay_and_why(played: Played) -> None:
    defended = played.report.defended
    assert defended is not None
    for stand in defended.stands:
        kit = str(played.parties.kits[stand.provider])
        told = json.loads(CliRunner().invoke(app, ["provider", "earnings", kit, "--json"]).stdout)[0]
        assert (told["held"], told["released"], told["returned"]) == (stand.held_back, stand.released, stand.returned)
        assert told["verdicts"] == [asdict(one) for one in played.told(stand.provider)]
    spy = CliRunner().invoke(app, ["provider", "earnings", str(played.parties.kits["spy"])]).stdout
    (flag,), (merger,) = defended.flagged, defended.merged
    assert f"flagged in round {flag.round}: its answers gained on the scoring part" in spy
    assert f"{flag.returned} returned to the consumer" in spy and "to object, write to the operator of fraud" in spy
    twin = CliRunner().invoke(app, ["provider", "earnings", str(played.parties.kits["twin"])]).stdout
    assert f"merged in round {merger.round}: its answers are like those of another provider" in twin
    assert "bank1" not in twin
    open_ = CliRunner().invoke(app, ["provider", "earnings", str(played.parties.kits["bank2"])]).stdout
    assert "was held back and released" in open_ and "to object" not in open_


def test_the_audit_holds_verdicts_against_the_ledger(played: Played) -> None:
    kits = [argument for kit in played.parties.kits.values() for argument in ("--receipts", str(kit))]
    assert CliRunner().invoke(app, ["audit", str(played.folder), *kits]).exit_code == 0
    entries = list(RunFolder(played.folder).entries())
    receipt = next(one for one in played.receipts("spy") if one.verdicts)
    cleared = replace(receipt, verdicts=(replace(receipt.verdicts[0], what="no-data"),))
    assert compare(entries, [Held(played.folder, [receipt])]).broken == []
    (broken,) = compare(entries, [Held(played.folder, [cleared])]).broken
    assert broken.startswith("the market's receipt for spy says that it was flagged in round ")
    assert broken.endswith("and this does not follow from the ledger")


def test_a_receipt_with_verdicts_is_read_as_it_was_written_and_nothing_else_is(played: Played) -> None:
    receipt = next(one for one in played.receipts("spy") if one.verdicts)
    assert Receipt.read(receipt.text) == receipt
    (told,) = receipt.verdicts
    wrong: list[dict[str, Any]] = [{"what": "guilty"}, {"hash": "short"}, {"figure": None}, {"figure": "4"}]
    wrong += [{"round": -1}, {"answers": True}, {"entry": 1.0}]
    for change in wrong:
        assert Receipt.read(replace(receipt, verdicts=(replace(told, **change),)).text) is None
    assert Receipt.read(receipt.text.replace(str(told.figure).encode(), b"NaN")) is None


def test_without_a_defence_there_is_nothing_to_hear(played: Played) -> None:
    first, *rest = RunFolder(played.folder).entries()
    rules = {name: rule for name, rule in first.body["rules"].items() if name != "defence"}
    hearing = Hearing()
    assert hearing.hear(first._replace(body={**first.body, "rules": rules})) == []
    assert [told for entry in rest for told in hearing.hear(entry)] == []
    assert Hearing().hear(rest[0]) == [], "nor before the first entry"
