"""What attacks earn and do to the model, with and without a defence.

    python benchmarks/bench_trust.py --market logistic --defence none standard strict --jobs 2 --json runs.jsonl
    python benchmarks/bench_trust.py --market mnist --data FOLDER --attack clones-5,leak-sgd --json runs.jsonl
    python benchmarks/bench_trust.py --table runs.jsonl          # the table of runs that are there already
    python benchmarks/bench_trust.py --table runs.jsonl --cost   # what it costs where nobody attacks

Needs torch and NumPy alone. A seed has its own data and draws. `earns` is what all attackers of a market get together,
in percent of the budget, with one standard error over seeds; accuracy is that of the delivered model on test rows, in
points against the same seed's market without attackers and without a defence. Flags are of honest providers. With
--json every run is written down as one line once it is played, and runs that stand there are not played again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from databazaar.samplers import OSMD, Adaptive, Sampler
from databazaar_experiments.attacks import (
    Alie,
    Alternate,
    Attack,
    Backdoor,
    Boost,
    Clones,
    Collude,
    Flip,
    Honest,
    Leak,
    Mixed,
    Noise,
    Price,
    Replay,
    Selective,
    Sign,
    Split,
    Zero,
)
from trust_markets import MARKETS, SHAPES

SAMPLERS: dict[str, Sampler] = {"adaptive": Adaptive(), "osmd": OSMD(3.0, 0.1)}
CROWD = 6
"""Attackers beside 14 honest providers: 30 % of the market."""
CLEAN = "nobody"


@dataclass(frozen=True)
class Case:
    """A row of the table: who takes how many places, knowing what of the hold-out; `one_owner` is declared for all."""

    attack: Attack | None
    places: int = 1
    leak: str = ""
    bad_place: bool = False
    shape: str = "plain"
    one_owner: bool = False

    @property
    def honest(self) -> bool:
        return self.attack is None or isinstance(self.attack, Honest)


def cases() -> dict[str, Case]:
    rows = {
        CLEAN: Case(None),
        "honest": Case(Honest()),
        "honest-bad": Case(Honest(), bad_place=True),
        "honest-two": Case(Honest(), 2),
        "honest-30%": Case(Honest(), CROWD),
        **{shape: Case(Honest(), shape=shape) for shape in SHAPES if shape != "plain"},
        **{f"clones-{m}": Case(Clones(m)) for m in (2, 5, 10)},
        "clones-5-names": Case(Clones(5, declared=False)),
        "clones-5-noise": Case(Clones(5, declared=False, noise=0.5)),
        "clones-5-bias": Case(Clones(5, declared=False, bias=0.5)),
        "split-5": Case(Split(5)),
        "split-5-names": Case(Split(5, declared=False)),
        "bad-clones-5": Case(Clones(5), bad_place=True),
        "bad-clones-10": Case(Clones(10), bad_place=True),
        "bad-clones-10-names": Case(Clones(10, declared=False), bad_place=True),
    }
    for leak in ("scoring", "half", "both"):
        rows |= {f"leak-{leak}-{how}": Case(Leak(how), leak=leak) for how in ("sgd", "own", "fit", "poison")}
    rows |= {
        "replay-last": Case(Replay()),
        "replay-all": Case(Replay("all")),
        "replay-long": Case(Replay(factor=5.0)),
        "replay-reversed": Case(Replay(factor=-1.0)),
        "replay-noisy": Case(Replay(noise=0.5)),
        "replay-constant": Case(Replay(noise=0.5, constant=True)),
        "noise-small": Case(Noise(0.1)),
        "noise-large": Case(Noise(3.0)),
        "noise-constant": Case(Noise(1.0, constant=True)),
        "names-10-owners": Case(Noise(0.1), 10),
        **{f"names-{m}-declared": Case(Noise(0.1), m, one_owner=True) for m in (5, 50, 200)},
        "zero": Case(Zero()),
        **{f"boost-{factor}": Case(Boost(float(factor))) for factor in (2, 5, 10)},
        "boost-line": Case(Boost(None)),
        "price-2": Case(Price(2)),
        "price-5": Case(Price(5)),
        "selective": Case(Selective()),
        "selective-half": Case(Selective(0.5)),
        "alternate": Case(Alternate()),
        "sign": Case(Sign()),
        "collude": Case(Collude(), 2),
        "collude-10": Case(Collude(10.0), 2),
        "backdoor": Case(Backdoor()),
        "backdoor-3": Case(Backdoor(factor=3.0)),
        "sign-30%": Case(Sign(), CROWD),
        "sign-5-30%": Case(Sign(5.0), CROWD),
        "flip-30%": Case(Flip(), CROWD),
        "noise-30%": Case(Noise(1.0), CROWD),
        "alternate-30%": Case(Alternate(), CROWD),
        "alie-30%": Case(Alie(), CROWD),
        "backdoor-30%": Case(Backdoor(), CROWD),
        "leak-poison-30%": Case(Leak("poison"), CROWD, leak="scoring"),
        "mixed-30%": Case(Mixed(), CROWD, leak="scoring"),
    }
    return rows


Job = tuple[str, str, str, str, int, str]
"""Market, case, sampler, defence, seed, and where data lie."""


def played(job: Job) -> dict[str, Any]:
    """One run, as it is written down."""
    market, name, sampler, defence, seed, data = job
    case, begin = cases()[name], time.perf_counter()
    rules = {} if defence == "none" else {"defence": defence}
    made = MARKETS[market](seed, SHAPES[case.shape], case.places, case.bad_place, data)
    if case.one_owner:
        made = replace(made, places=[replace(place, owner="one") for place in made.places])
    result = made.play(case.attack, seed, SAMPLERS[sampler], case.leak, **rules)
    told = {"market": market, "case": name, "sampler": sampler, "defence": defence, "seed": seed}
    return {**told, **asdict(result), "seconds": round(time.perf_counter() - begin, 2)}


def key(run: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(run[name] for name in ("market", "case", "sampler", "defence", "seed"))


def play_all(jobs: Sequence[Job], processes: int, file: Path | None) -> list[dict[str, Any]]:
    runs = read([file]) if file is not None and file.exists() else []
    there = {key(run) for run in runs}
    left = [job for job in jobs if job[:5] not in there]
    with ExitStack() as stack:
        done: Iterable[dict[str, Any]] = map(played, left)
        if processes > 1:
            pool = get_context("spawn").Pool(processes, initializer=torch.set_num_threads, initargs=(1,))
            done = stack.enter_context(pool).imap_unordered(played, left)
        for run in done:
            runs.append(run)
            if file is not None:
                with file.open("a") as lines:
                    lines.write(json.dumps(run) + "\n")
    wanted = {job[:5] for job in jobs}
    return [run for run in runs if key(run) in wanted]


def read(files: Iterable[Path]) -> list[dict[str, Any]]:
    runs = (json.loads(line) for file in files for line in file.read_text().splitlines())
    return list({key(run): run for run in runs}.values())


def table(runs: Sequence[dict[str, Any]], model: str) -> str:
    """A table in Markdown for each market and sampler, with a column for each defence."""
    lines: list[str] = []
    for market, sampler in sorted({(run["market"], run["sampler"]) for run in runs}):
        grouped: dict[tuple[str, str], dict[int, dict[str, Any]]] = defaultdict(dict)
        for run in runs:
            if (run["market"], run["sampler"]) == (market, sampler):
                grouped[run["case"], run["defence"]][run["seed"]] = run
        clean = {seed: run[model] for seed, run in grouped.get((CLEAN, "none"), {}).items()}
        defences = [name for name in ("none", "standard", "strict") if any(name == has for _, has in grouped)]
        head = [f"{what}, {name}" for what in ("earns %", "accuracy", "trigger %", "flagged") for name in defences]
        lines += [f"### {market}, {sampler}", "", f"| case | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
        for name in (name for name in cases() if any(name == has for has, _ in grouped)):
            columns = [cells(name, grouped[name, defence], clean, model) for defence in defences]
            row = [cell for kind in zip(*columns, strict=True) for cell in kind]
            lines.append(f"| {name} | {' | '.join(row)} |")
        lines.append("")
    return "\n".join(lines)


def cells(name: str, runs: dict[int, dict[str, Any]], clean: dict[int, float], model: str) -> tuple[str, ...]:
    """What the attackers earn, accuracy against the clean market, the trigger's success, and flags: how many attackers
    of a market are flagged, how many honest providers, and in how many markets one of those is."""
    if not runs:
        return ("", "", "", "")
    case = cases()[name]
    earned = [100 * sum(run["pay"].get(id, 0.0) for id in run["attackers"]) for run in runs.values()]
    points = [100 * (run[model] - clean[seed]) for seed, run in runs.items() if seed in clean]
    wrong = [sum(case.honest or id not in run["attackers"] for id in run["flagged"]) for run in runs.values()]
    right = [0 if case.honest else sum(id in run["attackers"] for id in run["flagged"]) for run in runs.values()]
    markets = sum(count > 0 for count in wrong)
    return (
        spread(earned),
        spread(points, "+")
        if name != CLEAN or model != "accuracy" or (points and any(points))
        else f"{100 * np.mean([run[model] for run in runs.values()]):.1f} %",
        f"{100 * np.mean([run['trigger'] for run in runs.values()]):.0f}",
        f"{np.mean(right):.1f} + {sum(wrong)} honest in {markets} of {len(runs)}",
    )


def cost(runs: Sequence[dict[str, Any]]) -> str:
    """What a defence costs where nobody attacks: accuracy, beside `none` with the same seeds, and whose pay is farther
    from that with `none` than one standard error of it; and in how many markets an honest provider is flagged."""
    played: dict[tuple[str, ...], dict[int, dict[str, Any]]] = defaultdict(dict)
    for run in runs:
        played[run["market"], run["sampler"], run["case"], run["defence"]][run["seed"]] = run
    lines, flags = [], defaultdict[tuple[str, bool], list[bool]](list)
    for (market, sampler, case, defence), own in played.items():
        if defence == "none":
            continue
        honest, plain = cases()[case].honest, played.get((market, sampler, case, "none"), {})
        flags[defence, honest] += [
            bool({*r["flagged"]} - (set() if honest else {*r["attackers"]})) for r in own.values()
        ]
        seeds = sorted(own.keys() & plain.keys())
        if not honest or len(seeds) < 2:
            continue
        points = spread([100 * (own[seed]["accuracy"] - plain[seed]["accuracy"]) for seed in seeds], "+")
        beyond = []
        for id in sorted({id for seed in seeds for id in plain[seed]["pay"]}):
            before, now = (np.array([100 * r[seed]["pay"].get(id, 0.0) for seed in seeds]) for r in (plain, own))
            error = float(np.std(before, ddof=1) / np.sqrt(len(seeds)))
            if abs((now - before).mean()) > error:
                beyond.append(f"{id} {(now - before).mean():+.1f} of {before.mean():.1f} ± {error:.1f}")
        lines.append(
            f"{market}, {sampler}, {case}, {defence}, {len(seeds)} seeds: {points} points; {'; '.join(beyond)}"
        )
    for (defence, honest), found in flags.items():
        where = "nobody attacks" if honest else "somebody attacks"
        lines.append(f"{defence}: an honest provider is flagged in {sum(found)} of {len(found)} markets where {where}")
    return "\n".join(lines)


def spread(values: Sequence[float], sign: str = "") -> str:
    if not values:
        return ""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{np.mean(values):{sign}.1f} ± {error:.1f}"


def chosen(attacks: str, parser: argparse.ArgumentParser) -> list[str]:
    """The cases that are asked for, and the clean market that they are compared with."""
    begun = [""] if attacks == "all" else attacks.split(",")
    for begin in begun:
        if not any(name.startswith(begin) for name in cases()):
            parser.error(f"no case begins with {begin!r}: there are {', '.join(cases())}")
    return [name for name in cases() if name == CLEAN or name.startswith(tuple(begun))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--market", nargs="+", choices=MARKETS, default=["logistic"])
    parser.add_argument("--attack", default="all", help="cases of the table, or beginnings of their names, by commas")
    parser.add_argument("--defence", nargs="+", default=["none"])
    parser.add_argument("--sampler", nargs="+", choices=SAMPLERS, default=["adaptive"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", default=str(Path(__file__).parents[2] / "shared" / "datasets"), help="has mnist.npz")
    parser.add_argument("--json", type=Path, default=None, help="where every run is written down")
    parser.add_argument("--table", type=Path, nargs="+", default=None, help="plays nothing, reads such files")
    parser.add_argument("--cost", action="store_true", help="with --table: what a defence costs where nobody attacks")
    parser.add_argument("--model", choices=("accuracy", "last_accuracy"), default="accuracy", help="delivered, or last")
    given = parser.parse_args()
    if given.table is not None:
        runs = read(given.table)
    else:
        jobs = [
            (market, name, sampler, defence, seed, given.data)
            for seed in range(given.seeds)
            for market in given.market
            for sampler in given.sampler
            for name in chosen(given.attack, parser)
            for defence in given.defence
        ]
        runs = play_all(jobs, given.jobs, given.json)
    sys.stdout.write((cost(runs) if given.cost else table(runs, given.model)) + "\n")


if __name__ == "__main__":
    main()
