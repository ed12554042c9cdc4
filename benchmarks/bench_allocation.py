"""Whom to ask and at what price: samplers side by side in simulated markets, at the same money, one setting for all.

    python benchmarks/bench_allocation.py markets       # ten markets: final loss; OSMD is the best of eight settings
    python benchmarks/bench_allocation.py incentives    # what a provider earns at its own price from 1 to 1,000
    python benchmarks/bench_allocation.py bandits       # gains of all scales, 1 to 50 draws, 9 to 1,000 providers
    python benchmarks/bench_allocation.py images --data FOLDER --device cuda   # the paper's image sets
    python benchmarks/bench_allocation.py tables        # flights: who is paid, over five seeds

Needs torch and NumPy, `images` also the package in experiments/, and `tables` what bench_real.py needs. A seed has its
own data and draws; ± is one standard error over seeds. Losses are those of the delivered model, the best by the
hold-out, on test rows; every sampler is judged so. MNIST is read from --data, and its markets are left out without it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from allocation_markets import logistic, markets
from databazaar.engines import Engine
from databazaar.learning.utilities import Evaluator
from databazaar.ledger import Accounts
from databazaar.market.arbiter import Arbiter
from databazaar.market.loop import play
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers import OSMD, SAMPLERS, Adaptive, Sampler, Uniform

Floats = NDArray[np.float64]

TUNED = {f"osmd {eta:g} {alpha:g}": OSMD(eta, alpha) for eta in (0.3, 1, 3, 10) for alpha in (0.05, 0.3)}
UNTUNED: dict[str, Sampler] = {
    "adaptive": Adaptive(),
    **({"coins": SAMPLERS.build({"kind": "coins"})} if "coins" in SAMPLERS.kinds() else {}),
    "uniform": Uniform(),
}


def _one(job: tuple[str, str, int, str | None]) -> tuple[str, str, int, float]:
    row, name, seed, data = job
    return row, name, seed, markets(data)[row](seed).play({**TUNED, **UNTUNED}[name], seed)[0]


def bench_markets(seeds: int, jobs: int, data: str | None, only: str) -> None:
    rows = [row for row in markets(data) if only in row]
    every = [(row, name, seed, data) for row in rows for name in (*TUNED, *UNTUNED) for seed in range(seeds)]
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row, name, seed, loss in in_processes(_one, every, jobs):
        found.setdefault((row, name), {})[seed] = loss
    lost = {key: np.array([by_seed[seed] for seed in range(seeds)]) for key, by_seed in found.items()}
    known = min(TUNED, key=lambda name: float(lost[rows[0], name].mean()))  # as tuned where all ask the same
    say(
        f"{'final loss, ' + str(seeds) + ' seeds':38}{'osmd, best of 8':>24}{known:>16}", *(f"{n:>16}" for n in UNTUNED)
    )
    for row in rows:
        best = min(TUNED, key=lambda name: float(lost[row, name].mean()))
        cells = (f"{written(lost[row, name]):>16}" for name in (known, *UNTUNED))
        verdict = ""
        for rival in (best, known):
            ahead = lost[row, "adaptive"] - lost[row, rival]
            if ahead.mean() > error(ahead):
                verdict += f"  adaptive behind {rival} by {ahead.mean():.4f} ± {error(ahead):.4f}"
        say(f"{row:38}{written(lost[row, best]):>14} {best[5:]:>9}", *cells, verdict)


def _revenue(job: tuple[str, int, int, int]) -> tuple[tuple[str, int, int], int]:
    name, place, price, seed = job
    market = logistic(seed)
    asked = [price if i == place else 20 for i in range(40)]
    _, pay = replace(market, prices=asked).play({**TUNED, **UNTUNED}[name], seed)
    return (name, place, price), pay.get(f"p{place}", 0)


def bench_incentives(seeds: int, jobs: int, names: Sequence[str], out: Path | None) -> None:
    """One provider at its own price, all others at 20: the first of the best group, and the last of the worst."""
    own, who = (1, 5, 10, 15, 20, 25, 35, 50, 80, 150, 300, 1_000), {"good": 0, "bad": 39}
    every = [
        (name, place, price, seed) for name in names for place in who.values() for price in own for seed in range(seeds)
    ]
    found: dict[tuple[str, int, int], list[int]] = {}
    for key, pay in in_processes(_revenue, every, jobs):
        found.setdefault(key, []).append(pay)
    say(f"{'revenue of 6,000, own price':24}", *(f"{price:>12,}" for price in own))
    curves: dict[str, list[float]] = {}
    for kind, place in who.items():
        for name in names:
            pays = [np.array(found[name, place, price], dtype=float) for price in own]
            say(f"{kind + ', ' + name:24}", *(f"{pay.mean():6.0f} ± {error(pay):3.0f}" for pay in pays))
            curves[f"{kind}, {name}"] = [float(pay.mean()) for pay in pays]
    if out is not None:
        draw(own, curves, out)


def draw(prices: Sequence[int], curves: Mapping[str, Sequence[float]], out: Path) -> None:
    """The curves as a figure, on logarithmic axes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axes, kind in zip(panels, ("good", "bad"), strict=True):
        for name, curve in curves.items():
            if name.startswith(kind):
                label = name.removeprefix(f"{kind}, ").replace("osmd 3 0.05", "osmd (price ignored)")
                axes.plot(prices, np.maximum(curve, 1), marker="o", markersize=3, label=label)
        axes.axhline(150, color="grey", linewidth=0.8, linestyle=":")
        axes.set(xscale="log", yscale="log", title=f"a {kind} provider", xlabel="its price (all others ask 20)")
    panels[0].set_ylabel("what it earns of 6,000")
    panels[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def _bandit(job: tuple[str, int, int, str, float, int]) -> tuple[tuple[str, int, int, str], float]:
    """The mean gain of the accesses of a run of 50 rounds, as a share of what the best provider would have brought."""
    name, n, draws, kind, scale, seed = job
    rng = np.random.default_rng([seed, n])
    means = rng.permutation(np.linspace(0, 1, n))
    roster, budget = Roster.equal(n), 50 * draws
    sampler = OSMD.from_theory(n, budget, draws) if name == "theory" else {**TUNED, **UNTUNED}[name]
    state, left, brought = sampler.init(roster, budget, draws), budget, 0.0
    while left >= draws:
        round_budget = RoundBudget(left, roster.prices)
        drawn = sampler.draw(state, rng, draws, round_budget)
        now = means[::-1] if kind == "the best change" and left <= budget // 2 else means
        brought += now[drawn].sum()
        left -= len(drawn)
        fade = 1 / (1 + 10 * (1 - left / budget)) if kind == "they decay" else 1.0
        offset = 5.0 if kind == "common offset" else 0.0
        gains = scale * fade * (now + offset + rng.normal(scale=0.3, size=n))[drawn]
        state = sampler.update(state, drawn, gains, round_budget)
    return (name, n, draws, kind), brought / (budget - left)


def bench_bandits(seeds: int, jobs: int) -> None:
    cases = [(9, 1, "plain"), (9, 3, "plain"), (100, 10, "plain"), (1_000, 50, "plain")]
    cases += [(100, 10, kind) for kind in ("they decay", "the best change", "common offset")]
    names = (*TUNED, "theory", *UNTUNED)
    scales = (1e-4, 1e-2, 1.0, 100.0)
    every = [
        (name, *case, scale, seed) for case in cases for name in names for scale in scales for seed in range(seeds)
    ]
    found: dict[tuple[str, int, int, str], list[float]] = {}
    for key, share in in_processes(_bandit, every, jobs):
        found.setdefault(key, []).append(share)
    say("mean gain of an access, best provider = 1, over gains of scale", ", ".join(f"{scale:g}" for scale in scales))
    say(f"{'':34}{'osmd, best of 8':>16}", *(f"{name:>16}" for name in ("theory", *UNTUNED)))
    for n, draws, kind in cases:
        best = max(TUNED, key=lambda name: float(np.mean(found[name, n, draws, kind])))
        shares = (np.array(found[name, n, draws, kind]) for name in (best, "theory", *UNTUNED))
        say(f"{f'n = {n:,}, K = {draws}, {kind}':34}", *(f"{written(share):>16}" for share in shares))


def bench_images(data: Path, device: str, datasets: Sequence[str], seeds: int, names: Sequence[str]) -> None:
    """The paper's budget and settings, samplers as they come; test accuracy of the last model and the delivered one."""
    from databazaar.engines.vectorized import VectorizedEngine
    from databazaar_experiments.images import image_market
    from databazaar_experiments.lockstep import run_in_lockstep
    from databazaar_experiments.methods import OSMDWithoutReplacement
    from databazaar_experiments.protocol_figures import FIGURES
    from databazaar_experiments.stacks import PAPER_STACKS
    from databazaar_experiments.stacks.cnn import evaluator_for

    for dataset in datasets:
        settings = FIGURES.images[dataset]
        market = image_market(dataset, settings, data)
        engine = VectorizedEngine(market.consumer(0).task, market.providers, torch.device(device), stacks=PAPER_STACKS)
        evaluator = evaluator_for(market.consumer(0), engine.device)
        tester = evaluator_for(replace(market.consumer(0), holdout=market.test, utility="accuracy"), engine.device)
        tuned = OSMDWithoutReplacement(settings.eta, settings.alpha)
        samplers = {"tuned osmd": tuned, **UNTUNED}
        for name in names:
            sampler = samplers[name]
            job = partial(_trained, market, sampler, tester)
            trained = run_in_lockstep([partial(job, seed) for seed in range(seeds)], engine, evaluator)
            found = np.array([ended for ended, _ in trained])
            groups = np.array(market.groups)
            pay = np.array([paid for _, paid in trained])
            paid = [float(pay[:, groups == group].mean()) for group in range(4)]
            cells = (
                f"{what} {written(found[:, i])}"
                for i, what in enumerate(("half: last", "delivered", "end: last", "delivered"))
            )
            say(f"{dataset:8}{name:11}", *cells, "pay", *(f"{amount:.1f}" for amount in paid))


def _trained(
    market: Any, sampler: Sampler, tester: Evaluator, seed: int, engine: Engine, evaluator: Evaluator
) -> tuple[Any, list[int]]:
    arbiter = Arbiter(market.consumer(seed), market.providers, sampler, engine=engine, seed=seed)
    ear = _HalfAndEnd(partial(_accuracy, tester))
    run = arbiter.begin(Accounts(arbiter.rules), ear, evaluator)
    play(run, engine)
    return ear.ended(), [run.accounts.book.pay.get(p.id, 0) for p in market.providers]


def _accuracy(tester: Any, params: torch.Tensor) -> float:
    return float(tester.score(params[None]).utility[0])


class _HalfAndEnd:
    """Hears the rounds of one run, and keeps the models at half the budget and at the end: the last and the best."""

    def __init__(self, accuracy: Callable[[torch.Tensor], float]) -> None:
        self.accuracy, self.best, self.half = accuracy, -math.inf, list[float]()

    def __call__(self, progress: Any) -> None:
        if progress.utility > self.best:
            self.best, self.best_params = progress.utility, progress.params
        self.last_params = progress.params
        if not self.half and 2 * progress.asked >= progress.budget:
            self.half = self.ended()

    def ended(self) -> list[float]:
        now = [self.accuracy(self.last_params), self.accuracy(self.best_params)]
        return [*self.half, *now]


def bench_tables(seeds: int) -> None:
    """Real flights, defaults only: how alike the pay of several seeds is, and what six half-wrong carriers get."""
    import tempfile

    sys.path.insert(0, str(Path(__file__).parent))
    import bench_real as real
    from databazaar.config.jobs import market_job

    cases = {
        "36 providers": real.flight_market(real.by_origin_and_month),
        "16 carriers": real.flight_market(real.by_carrier),
        "16 carriers, 6 half wrong": real.flight_market(real.by_carrier, dirty=6),
    }
    for name, make in cases.items():
        for division in (0, 1):
            tables = make(division)
            with tempfile.TemporaryDirectory() as folder:
                path = tables.write(Path(folder))
                pays = []
                for seed in range(seeds):
                    job = replace(market_job(path), seed=seed)
                    arbiter = job.arbiter()
                    run = arbiter.begin(Accounts(arbiter.rules))
                    play(run, arbiter.engine)
                    pays.append([run.accounts.book.pay.get(p.id, 0) for p in arbiter.providers])
                ids = [p.id.lower() for p in arbiter.providers]
            alike = np.asarray(np.corrcoef(pays))[np.triu_indices(seeds, 1)].mean()
            earned = dict(zip(ids, np.array(pays).sum(axis=0).tolist(), strict=True))
            share = sum(earned[who.lower()] for who in tables.wrong) / sum(earned.values())
            say(
                f"{name}, division {division}: correlation of pay {alike:.2f}"
                + (f", to the six {100 * share:.1f} %" if tables.wrong else "")
            )


def in_processes(function: Callable[[Any], Any], jobs: Sequence[Any], processes: int) -> Iterator[Any]:
    with get_context("fork").Pool(processes, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from pool.imap_unordered(function, jobs, chunksize=4)


def error(values: Floats) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def written(values: Floats) -> str:
    return f"{values.mean():.4f} ±{error(values):.4f}"


def say(*parts: str) -> None:
    sys.stdout.write(" ".join(parts).rstrip() + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("markets", "incentives", "bandits", "images", "tables"))
    parser.add_argument("--seeds", type=int, default=None, help="20, of incentives 100, of images 10, of tables 5")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", type=Path, default=None, help="the folder that holds mnist.npz and the others")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--datasets", default="mnist,fmnist,kmnist,cifar10")
    parser.add_argument("--samplers", default=None, help="of images and incentives, with commas between")
    parser.add_argument("--only", default="", help="markets whose name has this in it")
    parser.add_argument("--out", type=Path, default=None, help="where to draw the curves of incentives, as SVG")
    given = parser.parse_args()
    ours = {"images": "tuned osmd,adaptive", "incentives": "osmd 3 0.05,adaptive,coins"}
    given.samplers = given.samplers or ours.get(given.what, "")
    data = None if given.data is None else str(given.data)
    if given.what == "markets":
        bench_markets(given.seeds or 20, given.jobs, data, given.only)
    elif given.what == "incentives":
        bench_incentives(given.seeds or 100, given.jobs, given.samplers.split(","), given.out)
    elif given.what == "bandits":
        bench_bandits(given.seeds or 20, given.jobs)
    elif given.what == "images":
        bench_images(given.data, given.device, given.datasets.split(","), given.seeds or 10, given.samplers.split(","))
    else:
        bench_tables(given.seeds or 5)


if __name__ == "__main__":
    main()
