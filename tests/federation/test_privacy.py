"""Differential privacy on the provider's side: the bound, the noise, the account, and an honest no."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar import Arbiter, BazaarError, build_model
from databazaar.codes import Code
from databazaar.engines import Ask
from databazaar.engines.quarantine import Quarantine
from databazaar.federation.accountant import Accountant
from databazaar.federation.policy import RefusedError
from databazaar.federation.privacy import PrivateUpdates, clipped_sum
from databazaar.federation.records import AccessRecord
from databazaar.federation.transport import LocalTransport
from databazaar.federation.worker import ProviderWorker
from databazaar.learning.inputs import as_table
from databazaar.learning.losses import LOSSES
from databazaar.learning.oracles import build_oracle, compute_update
from databazaar.learning.task import Task
from databazaar.runs.folder import RunFolder
from markets import ORACLE, ROWS, TASK, a_consumer, afar, at_home, examples, federated

NAMES = ["bank1", "bank2", "bank3"]
DATA = as_table(examples("bank1"), "bank1")


def a_task(kind: str = "logistic") -> Task:
    return Task(build_model(kind, [4], 2, hidden=[5]), LOSSES["cross-entropy"])


def private(path: Path, noise: float = 1.0, clip: float = 0.5, cap: float = 1e6) -> PrivateUpdates:
    return PrivateUpdates(noise, clip, Accountant(path / "privacy.json", 1e-5, cap))


@settings(max_examples=40)
@given(st.floats(1e-3, 1e3), st.floats(1e-4, 10.0), st.integers(0, 29))
def test_no_row_moves_the_sum_by_more_than_the_clip(scale: float, clip: float, row: int) -> None:
    task = a_task("mlp")
    assert task.model is not None
    w = task.layout.flatten(task.model)
    x, y = DATA[0] * scale, DATA[1]
    others = torch.arange(len(x)) != row
    apart = clipped_sum(task, (x, y), w, clip) - clipped_sum(task, (x[others], y[others]), w, clip)
    assert float(apart.norm()) <= clip * (1 + 1e-4) + 1e-5


def test_without_clipping_the_sum_is_that_of_plain_gradients() -> None:
    task = a_task("mlp")
    assert task.model is not None
    w = task.layout.flatten(task.model).requires_grad_()
    outputs = torch.func.functional_call(task.model, task.layout.unflatten(w), (DATA[0],))
    torch.autograd.backward(task.loss(outputs, DATA[1]).sum())
    torch.testing.assert_close(clipped_sum(task, DATA, w.detach(), 1e9), w.grad)
    alone = [clipped_sum(task, (DATA[0][i : i + 1], DATA[1][i : i + 1]), w.detach(), 0.1) for i in range(ROWS)]
    torch.testing.assert_close(clipped_sum(task, DATA, w.detach(), 0.1), torch.stack(alone).sum(0))


def test_the_noise_has_the_scale_that_the_account_is_charged_for(tmp_path: Path) -> None:
    oracle = ORACLE.model_copy(update={"kind": "full-gradient"})
    task = a_task()
    w = torch.zeros(10)
    mechanism = private(tmp_path, noise=2.0, clip=0.5)
    updates = torch.stack([mechanism.update(oracle, task, DATA, w) for _ in range(400)])
    exact = -clipped_sum(task, DATA, w, 0.5) / ROWS
    assert torch.allclose(updates.mean(0), exact, atol=5 * 2.0 * 0.5 / ROWS / 20)
    assert float(updates.std(0).mean()) == pytest.approx(2.0 * 0.5 / ROWS, rel=0.05)


@pytest.mark.parametrize("asked", [{"steps": 2}, {"momentum": 0.0, "optimizer": "adam", "weight_decay": 0.1}])
def test_a_private_answer_takes_the_steps_that_the_oracle_asks_for(tmp_path: Path, asked: dict[str, object]) -> None:
    """Without noise to speak of, and with every row in each step, it is the plain oracle."""
    oracle = ORACLE.model_copy(update={"batch_size": ROWS, "epochs": 3, **asked})
    task, w = a_task(), torch.zeros(10)
    mechanism = private(tmp_path, noise=1e-7, clip=1e3, cap=math.inf)
    plain = compute_update(build_oracle(**oracle.model_dump()), task, DATA, w, 0, 0)
    torch.testing.assert_close(mechanism.update(oracle, task, DATA, w), plain, rtol=1e-2, atol=1e-3)
    history = json.loads((tmp_path / "privacy.json").read_text())["history"]
    assert history == [[1e-7, 1.0, asked.get("steps", 3)]]


def test_the_account_is_opacus_s_and_survives_a_restart(tmp_path: Path) -> None:
    from opacus.accountants import RDPAccountant  # seconds, which processes that do not run this are spared

    mechanism = private(tmp_path, noise=1.1)
    for _ in range(5):
        mechanism.update(ORACLE, a_task(), DATA, torch.zeros(10))
    expected = RDPAccountant()
    for _ in range(5 * 4):  # four batches of 8 rows
        expected.step(noise_multiplier=1.1, sample_rate=8 / ROWS)
    assert mechanism.accountant.spent == pytest.approx(expected.get_epsilon(1e-5))
    again = private(tmp_path, noise=2.0)
    assert again.accountant.spent == mechanism.accountant.spent
    again.update(ORACLE, a_task(), DATA, torch.zeros(10))
    assert again.accountant.spent > mechanism.accountant.spent
    assert len(json.loads((tmp_path / "privacy.json").read_text())["history"]) == 2
    (tmp_path / "privacy.json").write_text("{")
    with pytest.raises(BazaarError, match="what was spent is not known"):
        private(tmp_path)


def test_an_answer_is_charged_before_it_is_computed(tmp_path: Path) -> None:
    mechanism = private(tmp_path)
    broken = Task(build_model("logistic", [5], 2), LOSSES["cross-entropy"])
    with pytest.raises(RuntimeError):
        mechanism.update(ORACLE, broken, DATA, torch.zeros(12))
    assert mechanism.accountant.spent > 0
    assert (tmp_path / "privacy.json").exists()


def test_an_account_that_cannot_be_written_gives_no_answer_and_no_refusal(tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    worker = ProviderWorker("bank1", examples("bank1"), privacy=private(tmp_path / "kit"))
    (tmp_path / "kit").rmdir()
    (tmp_path / "kit").write_text("a file in the folder's place")
    replies = federated(["bank1"], LocalTransport({"bank1": worker})).query(Ask(torch.zeros(10), [0], 0, 5))
    assert replies.failures == {0: Code.of("provider-failed", why="computation-failed")}
    assert not replies.updates.any()


def test_at_its_cap_a_provider_refuses_is_not_paid_and_not_set_aside(tmp_path: Path) -> None:
    cap = 12.0
    mechanism = private(tmp_path, cap=cap)
    record = AccessRecord(tmp_path / "answers.jsonl")
    worker = ProviderWorker("bank1", examples("bank1"), record=record, privacy=mechanism)
    handlers = {name: ProviderWorker(name, examples(name)) for name in NAMES} | {"bank1": worker}
    folder = RunFolder.create(tmp_path / "run")
    engine = federated(NAMES, LocalTransport(handlers), quarantine=Quarantine(1))
    Arbiter(a_consumer(60), afar(NAMES), engine=engine, seed=3).run(folder)
    report = folder.report()
    first = report.payouts[0]
    assert first.accesses > 0 and first.failures > 1
    assert {a.failure for r in report.rounds for a in r.accesses if a.failure} == {
        Code.of("refused", why="privacy-spent")
    }
    assert first.epsilon is not None and 0 < first.epsilon == mechanism.accountant.spent <= cap
    assert [p.epsilon for p in report.payouts[1:]] == [None, None]
    assert engine.privacy == folder.privacy() == {"bank1": (first.epsilon, 1e-5)}
    assert report.notes == (f"bank1 says it has spent ε = {first.epsilon:.3g} of privacy at δ = 1e-05.",)
    with pytest.raises(RefusedError):
        mechanism.check(ORACLE, ROWS)
    assert {answer.status for answer in record} == {"ok", "refused"}


def test_the_same_question_again_costs_nothing_and_gets_the_same_answer(tmp_path: Path) -> None:
    mechanism = private(tmp_path)
    worker = ProviderWorker("bank1", examples("bank1"), privacy=mechanism)
    engine = federated(["bank1"], LocalTransport({"bank1": worker}))
    ask = Ask(a_consumer().initial_parameters(), [0], 0, 5)
    first, spent = engine.query(ask).updates, mechanism.accountant.spent
    assert torch.equal(engine.query(ask).updates, first)
    assert mechanism.accountant.spent == spent


def test_the_market_s_seed_says_nothing_about_the_noise(tmp_path: Path) -> None:
    updates = []
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        worker = ProviderWorker("bank1", examples("bank1"), privacy=private(tmp_path / place))
        engine = federated(["bank1"], LocalTransport({"bank1": worker}))
        updates.append(engine.query(Ask(a_consumer().initial_parameters(), [0], 0, 5)).updates)
    assert not torch.allclose(updates[0], updates[1])


def test_with_little_noise_and_a_wide_clip_it_learns_as_without(tmp_path: Path) -> None:
    """In the mean of several runs: which rows a step takes is random, so one run proves little."""
    utilities = []
    for run in range(6):
        handlers = {}
        for name in NAMES:
            (tmp_path / f"{name}-{run}").mkdir()
            mechanism = private(tmp_path / f"{name}-{run}", noise=0.05, clip=10.0, cap=math.inf)
            handlers[name] = ProviderWorker(name, examples(name), privacy=mechanism)
        away = Arbiter(a_consumer(), afar(NAMES), engine=federated(NAMES, LocalTransport(handlers)), seed=3).run()
        utilities.append(away.final_utility)
    home = Arbiter(a_consumer(), at_home(NAMES), engine="loop", device="cpu", seed=3).run()
    assert sum(utilities) / len(utilities) == pytest.approx(home.final_utility, abs=0.1)


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    for delta, cap in ((0.0, 1.0), (1.0, 1.0), (1e-5, 0.0), (1e-5, math.nan)):
        with pytest.raises(BazaarError):
            Accountant(tmp_path / "privacy.json", delta, cap)
    with pytest.raises(BazaarError, match="callable oracle"):
        ProviderWorker("bank1", lambda w: w, privacy=private(tmp_path))
    assert TASK.model is not None
