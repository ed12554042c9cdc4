"""The markets whose models are pinned: each gives its report and its parameters."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from databazaar import OSMD, Arbiter, Consumer, LocalSGD, Provider, Report, Uniform, build_model
from databazaar.config.jobs import market_job
from databazaar.data.fraud import fraud_banks, write_fraud_files
from databazaar.data.tables import Schema
from databazaar.learning.task import Halving
from databazaar.market.arbiter import theory_sampler
from databazaar.samplers import Sampler

Played = tuple[Report, Tensor]


def canary() -> str:
    """Whether floating-point work comes out here, to the last bit, as where the hashes were noted down."""
    generator = torch.Generator().manual_seed(7)
    a = torch.randn(64, 48, generator=generator)
    b = torch.randn(48, 64, generator=generator)
    c = torch.relu(a @ b)
    values = torch.cat([c.flatten(), torch.logsumexp(c, 1), torch.exp(-c.mean(0)), c.sum(0)])
    return hashlib.sha256(values.numpy().tobytes() + np.exp(np.linspace(-5, 5, 999)).tobytes()).hexdigest()


def examples(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Two classes in four dimensions; every name has its own rows, and a higher number more wrong labels."""
    rng = np.random.default_rng(list(name.encode()))
    y = rng.integers(0, 2, 30)
    x = rng.normal(size=(30, 4)) + 1.5 * (2 * y[:, None] - 1)
    wrong = rng.random(30) < 0.2 * (int(name[-1]) - 1)
    return x.astype(np.float32), np.where(wrong, 1 - y, y)


def _played(arbiter: Arbiter) -> Played:
    report = arbiter.run()
    return report, arbiter.last_parameters


def first_demo(budget: int, sampler: Sampler) -> Played:
    """The demo as it was at first: from a model that knows nothing, judged by all of the consumer's rows."""
    story = fraud_banks(0)
    schema = Schema.fit(story.holdout, target="fraud", task="classification")
    model = build_model("mlp", [schema.width], schema.outputs, hidden=[16], seed=0)
    consumer = Consumer(model, budget=budget, holdout=schema.encode(story.holdout, "holdout"), per_round=5)
    providers = [Provider(b.id, schema.encode(b.frame, b.id), LocalSGD(0.05, 32)) for b in story.banks]
    return _played(Arbiter(consumer, providers, sampler, device="cpu"))


def demo() -> Played:
    return first_demo(1000, OSMD(1.0, 0.1))


def demo_uniform() -> Played:
    return first_demo(300, Uniform())


PAPERS = """\
[market]
name = "fraud"
budget = BUDGET
per_round = 5

[consumer]
train = 0

[data]
holdout = "holdout.csv"
target = "fraud"
audit = 0

[model]
hidden = [16]

[oracle]
step = 0.05

[sampler]
kind = "osmd"

[engine]
kind = "ENGINE"

"""
"""The paper's market in the words of today."""


def market_toml(engine: str = "vectorized", budget: int = 1000) -> Played:
    with tempfile.TemporaryDirectory() as folder:
        path = write_fraud_files(Path(folder) / "fraud")
        providers = path.read_text()[path.read_text().index("[[providers]]") :]
        path.write_text(PAPERS.replace("BUDGET", str(budget)).replace("ENGINE", engine) + providers)
        return _played(market_job(path).arbiter())


def market_toml_loop() -> Played:
    return market_toml("loop", 100)


def federated() -> Played:
    from databazaar.federation.engine import FederatedEngine
    from databazaar.federation.messages import ModelMessage, OracleMessage, TaskMessage
    from databazaar.federation.policy import Policy
    from databazaar.federation.transport import LocalTransport
    from databazaar.federation.worker import ProviderWorker

    names = ["bank1", "bank2", "bank3"]
    oracle = OracleMessage(kind="local-sgd", step=0.2, batch_size=8, epochs=1, momentum=0.5)
    model = ModelMessage(kind="logistic", inputs=(4,), outputs=2, hidden=())
    task = TaskMessage(model=model, loss="cross-entropy", oracle=oracle, table=None)
    small = Policy(least_rows=30)
    transport = LocalTransport({name: ProviderWorker(name, examples(name), small) for name in names})
    engine = FederatedEngine(task, names, transport, step=Halving(0.2, every=4))
    consumer = Consumer("logistic", holdout=examples("holdout1"), budget=36, per_round=3)
    providers = [Provider(name) for name in names]
    return _played(Arbiter(consumer, providers, theory_sampler(consumer, providers), engine=engine, seed=3))


def with_failures() -> Played:
    """One provider fails every other round, one always: the average is over the valid draws."""
    calls: dict[str, int] = {}

    def oracle(name: str, pull: float) -> Callable[[np.ndarray], np.ndarray]:
        def update(w: np.ndarray) -> np.ndarray:
            calls[name] = calls.get(name, 0) + 1
            if name == "c" or (name == "b" and calls[name] % 2):
                raise ValueError("not today")
            return pull - w

        return update

    def utility(w: np.ndarray) -> float:
        return float(np.exp(-np.sum((w - 1.0) ** 2)))

    consumer = Consumer(np.zeros(3), budget=90, per_round=3, utility=utility, step=0.3)
    providers = [Provider(name, oracle=oracle(name, pull)) for name, pull in (("a", 1.0), ("b", 1.2), ("c", 0.0))]
    return _played(Arbiter(consumer, providers, theory_sampler(consumer, providers), engine="loop"))


def from_python() -> Played:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=8)

    def bank(rows: int, wrong_labels: float) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(rows, 8))
        y = (x @ truth > 0).astype(int)
        return x, np.where(rng.random(rows) < wrong_labels, 1 - y, y)

    consumer = Consumer("mlp", budget=200, per_round=4, holdout=bank(300, 0.0), step=Halving(1.0, 20))
    providers = [
        Provider(f"bank-{i}", bank(100 + 10 * i, wrong), LocalSGD(0.1, 16, 2, 0.3))
        for i, wrong in enumerate([0, 0.2, 0.5, 0.9])
    ]
    return _played(Arbiter(consumer, providers, theory_sampler(consumer, providers), device="cpu"))


MARKETS: dict[str, Callable[[], Played]] = {
    play.__name__: play
    for play in (demo, demo_uniform, market_toml, market_toml_loop, federated, with_failures, from_python)
}
