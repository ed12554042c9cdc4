"""The price of privacy: what a model is worth, and who is paid, as providers protect their rows more.

    python examples/price_of_privacy.py docs/figures/price-of-privacy.png

Four banks of the fraud story sell updates. In the first figure all of them answer with differential privacy, from
little noise to much: ε is what the hardest-worked bank has spent at the end of the run, at δ = 1e-5. In the second
only the best bank protects itself, and the others' pay shows what the market makes of it. Mean and range over seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

from databazaar import OSMD, Arbiter, Consumer, Provider, build_model
from databazaar.data.fraud import fraud_banks
from databazaar.data.schema import Schema
from databazaar.federation.accountant import Accountant
from databazaar.federation.engine import FederatedEngine
from databazaar.federation.messages import ModelMessage, OracleMessage, TaskMessage
from databazaar.federation.privacy import PrivateUpdates
from databazaar.federation.transport import LocalTransport
from databazaar.federation.worker import ProviderWorker

BANKS = ("harbour-bank", "meadow-credit-union", "alpine-business-bank", "coastal-direct")
BEST = BANKS[0]
NOISES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
DELTA = 1e-5


@dataclass(frozen=True)
class Outcome:
    utility: float
    epsilon: float
    share: float


def play(seed: int, noise: float, private: Collection[str], budget: int) -> Outcome:
    """One market; the banks in `private` answer with this noise, the others as they are."""
    story = fraud_banks(seed)
    schema = Schema.fit(story.holdout, target="fraud", task="classification")
    oracle = OracleMessage(kind="stochastic-gradient", step=1.0, batch_size=64, epochs=1, momentum=0.0)
    model = ModelMessage(kind="logistic", inputs=(schema.width,), outputs=2, hidden=())
    task = TaskMessage(model=model, loss="cross-entropy", oracle=oracle, table=None)
    consumer = Consumer(
        build_model("logistic", [schema.width], 2, seed=seed),
        holdout=schema.encode(story.holdout, "holdout"),
        budget=budget,
        per_round=4,
        step=0.5,
    )
    with tempfile.TemporaryDirectory() as folder:
        accounts = {name: Accountant(Path(folder) / f"{name}.json", DELTA, float("inf")) for name in private}
        workers = {
            bank.id: ProviderWorker(
                bank.id,
                schema.encode(bank.frame, bank.id),
                privacy=PrivateUpdates(noise, 1.0, accounts[bank.id]) if bank.id in accounts else None,
            )
            for bank in story.banks
            if bank.id in BANKS
        }
        engine = FederatedEngine(task, BANKS, LocalTransport(workers))
        arbiter = Arbiter(consumer, [Provider(name) for name in BANKS], OSMD(1.0, 0.1), engine=engine, seed=seed)
        report = arbiter.run()
        pay = {payout.provider: payout.pay for payout in report.payouts}
        spent = max((account.spent for account in accounts.values()), default=float("inf"))
        return Outcome(report.final_utility, spent, pay[BEST] / report.spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=400)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(given.seeds)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    open_runs = [play(seed, 1.0, (), given.budget) for seed in seeds]
    for axis, private, what, label in (
        (left, BANKS, "utility", "utility at the end"),
        (right, (BEST,), "share", f"{BEST}'s share of the pay"),
    ):
        runs = [[play(seed, noise, private, given.budget) for seed in seeds] for noise in NOISES]
        epsilon = [np.mean([run.epsilon for run in row]) for row in runs]
        values = np.array([[getattr(run, what) for run in row] for row in runs])
        plain = float(np.mean([getattr(run, what) for run in open_runs]))
        axis.fill_between(epsilon, values.min(1), values.max(1), alpha=0.2)
        axis.plot(epsilon, values.mean(1), marker="o")
        axis.axhline(plain, linestyle="--", color="gray")
        axis.annotate("without privacy", (max(epsilon), plain), ha="right", va="bottom", color="gray")
        axis.set(xscale="log", xlabel="ε spent (δ = 1e-5): less privacy →", ylabel=label)
        for noise, e, row in zip(NOISES, epsilon, values, strict=True):
            print(f"{label}: noise {noise:g}, ε {e:.2f}, {row.mean():.3f} ({row.min():.3f} to {row.max():.3f})")
        print(f"{label}: without privacy {plain:.3f}")
    left.set_title("Everybody answers with privacy")
    right.set_title("Only the best bank does")
    figure.savefig(given.out, dpi=110)


if __name__ == "__main__":
    main()
