"""In-run training beside averaging and beside plain PyTorch, on the paper's image market:
python benchmarks/bench_in_run.py FOLDER mnist kmnist --models mlp cnn --seeds 2     (torch and NumPy suffice)

FOLDER holds mnist.npz and others (x_train, y_train, x_test, y_test). The market is the paper's: 100 providers of 400
samples, a quarter each with 0, 20, 50 and 90 % wrong labels, 1,000 rows of hold-out, rounds of 10 accesses at one
price. It prints test accuracy, mean pay by quarter, and the time of a round: on a CPU that of the processor (with
DATABAZAAR_THREADS=1 OMP_NUM_THREADS=1 that of one core), so that other work on the machine does not count. "clean" is
plain PyTorch on the 25 clean providers: steps of as many rows at the same rates, 16 a round. From 100 rounds on the
market takes as many; in fewer it takes more.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from databazaar import Arbiter, Consumer, Provider, Uniform
from databazaar.learners import Averaging, InRun, Learner
from databazaar.samplers import Adaptive, Sampler

WRONG = (0.0, 0.2, 0.5, 0.9)
EACH, HOLDOUT, PER_ROUND = 400, 1000, 10


def mlp(side: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(side * side, 300), nn.ReLU(), nn.Linear(300, 10))


def cnn(side: int) -> nn.Module:
    first = (nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(4 * side * side, 128), nn.ReLU(), nn.Linear(128, 10))


Rows = tuple[Tensor, Tensor]
MODELS: dict[str, Callable[[int], nn.Module]] = {"mlp": mlp, "cnn": cnn}


class ImageMarket:
    """The providers' rows, the hold-out and the test set of one seed."""

    def __init__(self, path: Path, seed: int) -> None:
        with np.load(path) as file:
            x, y, x_test, y_test = (file[name] for name in ("x_train", "y_train", "x_test", "y_test"))
        rng = np.random.default_rng(111 + seed)
        order = rng.permutation(len(x))
        self.side = x.shape[-1]
        self.providers = list[Rows]()
        for i in range(100):
            rows = order[i * EACH : (i + 1) * EACH]
            labels, bad = y[rows].astype(np.int64), int(EACH * WRONG[i // 25])
            labels[:bad] = (labels[:bad] + rng.integers(1, 10, bad)) % 10
            self.providers.append((_images(x[rows]), torch.from_numpy(labels)))
        judging = order[100 * EACH : 100 * EACH + HOLDOUT]
        self.holdout = _images(x[judging]), torch.from_numpy(y[judging].astype(np.int64))
        self.test = _images(x_test), torch.from_numpy(y_test.astype(np.int64))

    def accuracy(self, model: nn.Module, device: str) -> float:
        model = model.to(device).eval()
        with torch.no_grad():
            found = [model(x.to(device)).argmax(1).cpu() for x in torch.split(self.test[0], 1000)]
        return float((torch.cat(found) == self.test[1]).double().mean())


def _images(pixels: np.ndarray) -> Tensor:
    return torch.from_numpy(pixels.astype(np.float32) / 255)[:, None]


def _clock(device: str) -> float:
    return time.process_time() if device == "cpu" else time.perf_counter()


def bought(
    market: ImageMarket, model: nn.Module, sampler: Sampler, learner: Learner, rounds: int, seed: int, device: str
) -> tuple[float, list[float], float, int]:
    """Test accuracy of the model at the end, mean pay by quarter, seconds of a round, and rounds."""
    budget = rounds * PER_ROUND
    consumer = Consumer(model, holdout=market.holdout, budget=budget, per_round=PER_ROUND, utility="negative-loss")
    providers = [Provider(f"p{i}", rows) for i, rows in enumerate(market.providers)]
    arbiter = Arbiter(consumer, providers, sampler, learner=learner, seed=seed, device=device)
    begun = _clock(device)
    report = arbiter.run()
    seconds = (_clock(device) - begun) / len(report.rounds)
    pay = np.array([one.pay for one in report.payouts]).reshape(4, 25).mean(1)
    arbiter.close()
    return market.accuracy(arbiter.model, device), pay.round(1).tolist(), seconds, len(report.rounds)


def plain(rows: list[Rows], model: nn.Module, steps: int, rounds: int, device: str, seed: int) -> float:
    """Plain PyTorch, as many steps of as many rows at the same rates; the seconds of a round."""
    rule, x, y = InRun(), *(torch.cat([one[part] for one in rows]).to(device) for part in (0, 1))
    optimizer = torch.optim.AdamW(model.to(device).parameters(), lr=rule.rate, weight_decay=rule.weight_decay)
    generator, size = torch.Generator().manual_seed(seed), PER_ROUND * EACH // steps
    begun = _clock(device)
    for number in range(rounds):
        for step in range(steps):
            rate = 0.02 + 0.98 * (1 + math.cos(math.pi * number / rounds)) / 2
            for group in optimizer.param_groups:
                group["lr"] = rule.rate * rate * min(1.0, (number * steps + step + 1) / rule.warm_up)
            at = torch.randint(len(y), (size,), generator=generator).to(device)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[at]), y[at]).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), rule.clip)
            optimizer.step()
    if device != "cpu":
        torch.cuda.synchronize()
    return (_clock(device) - begun) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["mlp"])
    parser.add_argument("--rows", nargs="+", default=["adaptive", "uniform", "averaging", "clean"])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    kinds: dict[str, tuple[Sampler, Learner]] = {
        "adaptive": (Adaptive(), InRun()),
        "uniform": (Uniform(replacement=False), InRun()),
        "averaging": (Adaptive(), Averaging()),
    }
    for name in given.names:
        for form in given.models:
            found: dict[str, list[float]] = {}
            for seed in range(given.seeds):
                market = ImageMarket(given.folder / f"{name}.npz", seed)
                for kind in given.rows:
                    torch.manual_seed(seed)
                    model = MODELS[form](market.side)
                    if kind in kinds:
                        right, pay, seconds, rounds = bought(
                            market, model, *kinds[kind], given.rounds, seed, given.device
                        )
                        said = f"pay by quarter {pay}, {rounds} rounds"
                    else:
                        seconds = plain(market.providers[:25], model, 16, given.rounds, given.device, seed)
                        right, said = market.accuracy(model, given.device), "plain PyTorch on the 25 clean providers"
                    found.setdefault(kind, []).append(right)
                    what = f"{name} {form} {kind} seed {seed}: accuracy {right:.4f}"
                    print(f"{what}, {1e3 * seconds:.1f} ms a round, {said}", flush=True)
            for kind, values in found.items():
                error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
                print(f"== {name} {form} {kind}: {np.mean(values):.4f} ± {error:.4f} ({len(values)} seeds)", flush=True)


if __name__ == "__main__":
    main()
