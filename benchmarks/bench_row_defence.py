"""What attacks with rows earn, without a defence and with `standard`: share of the pay, and the bought model's loss.

    python benchmarks/bench_row_defence.py                     # trees and in-run, eight seeds: about ten minutes
    python benchmarks/bench_row_defence.py --seeds 2 --models trees --attacks leak,noise

Eight honest providers of 600 rows, eight features, a consumer with 500 rows to train on and 500 to judge by, 400
accesses. Attackers stand beside them: the hold-out, slightly and strongly jittered or mixed into other rows; three
jittered copies of a provider; labels by chance, or 40 % wrong, of four providers; labels by chance under forty names.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from databazaar import Arbiter, Consumer, Provider
from databazaar.learners import InRun

Rows = tuple[NDArray[np.float32], NDArray[np.int64]]
HONEST, FEATURES, BUDGET = 8, 8, 400
ATTACKS = ("none", "leak", "leak-far", "leak-mixed", "copies", "noise", "wrong", "names")


def rows(count: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, FEATURES))
    signal = x[:, 0] + x[:, 1] * x[:, 2] + 0.7 * np.abs(x[:, 3]) - 0.5
    return x.astype(np.float32), (rng.random(count) < 1 / (1 + np.exp(-2 * signal))).astype(np.int64)


def jittered(given: Rows, by: float, rng: np.random.Generator) -> Rows:
    x, y = given
    return (x + by * rng.normal(size=x.shape)).astype(np.float32), y


def attackers(attack: str, holdout: Rows, first: Rows, rng: np.random.Generator) -> Iterator[Rows]:
    if attack == "leak":
        yield jittered(holdout, 0.05, rng)
    elif attack == "leak-far":
        yield jittered(holdout, 0.3, rng)
    elif attack == "leak-mixed":
        (x, y), (near, known) = rows(600, int(rng.integers(2**31))), jittered(holdout, 0.05, rng)
        yield np.concatenate([x[120:], near[:120]]), np.concatenate([y[120:], known[:120]])
    elif attack == "copies":
        yield from (jittered(first, 0.03, rng) for _ in range(3))
    else:
        for _ in range({"none": 0, "names": 40}.get(attack, 4)):
            x, y = rows(600, int(rng.integers(2**31)))
            wrong = rng.permutation(y) if attack != "wrong" else np.where(rng.random(600) < 0.4, 1 - y, y)
            yield x, wrong


def played(model: str, attack: str, defence: str, seed: int) -> tuple[float, float, float, Counter[str]]:
    """The attackers' share of the pay, the pay in all, the loss on new rows, and the verdicts."""
    rng, holdout = np.random.default_rng(seed), rows(500, 1_000 + seed)
    providers = {f"honest {i}": rows(600, 50 * seed + i) for i in range(HONEST)}
    bad = {f"bad {i}": one for i, one in enumerate(attackers(attack, holdout, providers["honest 0"], rng))}
    consumer = Consumer(model, holdout=holdout, train=rows(500, 2_000 + seed), budget=BUDGET, per_round=4)
    sellers = [Provider(name, table) for name, table in {**providers, **bad}.items()]
    arbiter = Arbiter(consumer, sellers, learner=InRun() if model == "mlp" else None, defence=defence, seed=seed)
    report = arbiter.run()
    pay, (x, y) = {one.provider: one.pay for one in report.payouts}, rows(5_000, 3_000 + seed)
    outputs = arbiter.training().outputs(arbiter.reached, torch.from_numpy(x))
    odds = outputs[:, -1] - (outputs[:, 0] if outputs.shape[1] == 2 else 0.0)
    loss = float(np.logaddexp(0.0, np.where(y == 1, -odds, odds)).mean())
    rulings = () if report.defended is None else report.defended.rulings
    told = Counter(f"{one.what} {one.provider.split()[0]}" for one in rulings)
    total = sum(pay.values())
    return sum(pay[name] for name in bad) / max(1, total), total, loss, told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--models", default="trees,mlp")
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    given = parser.parse_args()
    for model in given.models.split(","):
        print(f"\n{model}\n{'attack':<12}{'defence':<10}{'pay of bad':>16}{'paid':>7}{'loss':>18}   verdicts")
        for attack in given.attacks.split(","):
            for defence in ("none", "standard"):
                shares, paid, losses, told = zip(
                    *(played(model, attack, defence, seed) for seed in range(given.seeds)), strict=True
                )
                every = sum(told, Counter[str]())
                share, loss = (f"{np.mean(of):.4f} ± {_error(of):.4f}" for of in (shares, losses))
                print(
                    f"{attack:<12}{defence:<10}{share:>16}{np.mean(paid):>7.0f}{loss:>18}   {dict(every)}", flush=True
                )


def _error(figures: tuple[float, ...]) -> float:
    return float(np.std(figures, ddof=1) / np.sqrt(len(figures))) if len(figures) > 1 else float("nan")


if __name__ == "__main__":
    main()
