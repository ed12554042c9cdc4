"""Mutation tests of the code that carries money and rights: python scripts/mutants.py [--help]

Each mutant is one small change of a module that scripts/mutants.toml lists. It is killed if a fast test fails with it,
or does not end. Survivors must be named in that file with a reason: otherwise this ends with 1, as it does where fewer
than 95 % of all mutants are killed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import sys
import tomllib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from mutant_changes import Mutant  # noqa: E402
from mutant_runs import ENDLESS, KILLED, Plan, tried  # noqa: E402

SETTINGS = Path(__file__).with_suffix(".toml")
LAST = ROOT / "build" / "mutants.json"
LEAST_KILLED = 0.95


def named(survivors: Sequence[dict[str, Any]]) -> set[tuple[str, ...]]:
    """The mutants that may survive, by module, function, line and changed line. Each group says why."""
    assert all(group["reason"].strip() for group in survivors)
    return {tuple(one) for group in survivors for one in group["mutants"]}


def plan_of(tests: Sequence[str] = ()) -> tuple[Plan, set[tuple[str, ...]]]:
    """What the settings say; with other tests, where some are given."""
    settings = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    known = named(settings.pop("survivors", []))
    return Plan(ROOT, **settings | ({"tests": tests} if tests else {})), known


def sampled(mutants: Sequence[Mutant], most: int, seed: int) -> list[Mutant]:
    """At most so many of each module, drawn by a seed, in their order."""
    rng, chosen = random.Random(seed), set[Mutant]()
    for _, group in groupby(mutants, lambda mutant: mutant.module):
        several = list(group)
        chosen |= set(rng.sample(several, min(most, len(several))))
    return [mutant for mutant in mutants if mutant in chosen]


def interval(killed: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z, share = 1.96, killed / of
    middle, wide = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return (middle - wide) / (1 + z * z / of), (middle + wide) / (1 + z * z / of)


def report(ends: dict[Mutant, str], known: set[tuple[str, ...]], of: int) -> tuple[list[str], bool]:
    """Lines for people, and whether enough of the mutants are killed and all others named."""
    live = [mutant for mutant, end in ends.items() if end not in (KILLED, ENDLESS)]
    unnamed = [mutant for mutant in live if mutant.name not in known]
    lines = [f"{'module':40} mutants  killed  survivors  not named"]
    for module in dict.fromkeys(mutant.module for mutant in ends):
        own, lived, bad = (sum(one.module == module for one in several) for several in (ends, live, unnamed))
        lines.append(f"{module:40} {own:7} {own - lived:7} {lived:10} {bad:10}")
    killed = len(ends) - len(live)
    low, high = interval(killed, len(ends))
    sample = f" of a sample of all {of:,} (95 % interval: {low:.1%} to {high:.1%})" if of > len(ends) else ""
    lines.append(f"{killed:,} of {len(ends):,} mutants are killed: {killed / len(ends):.2%}{sample}")
    lines += [f"survived: {mutant}" for mutant in unnamed]
    gone = known - {mutant.name for mutant in live} if of == len(ends) else set()
    lines += [f"named, and no survivor: {' | '.join(one)}" for one in sorted(gone)]
    if unnamed:
        lines.append(f"write a test, or name the survivor and its reason in {SETTINGS.relative_to(ROOT)}")
    return lines, not unnamed and killed >= LEAST_KILLED * len(ends)


def ended() -> dict[str, str]:
    """How each ended when it was tried last; another run may have written it meanwhile."""
    found: dict[str, str] = json.loads(LAST.read_text(encoding="utf-8")) if LAST.exists() else {}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation tests of the modules that scripts/mutants.toml lists.")
    parser.add_argument("tests", nargs="*", help="these tests alone, in place of those that the settings name")
    parser.add_argument("--only", action="append", metavar="PART", help="modules with this in their path")
    parser.add_argument("--sample", type=int, metavar="N", help="at most N mutants of each module, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--part", choices=["functions", "constants"], help="only what is inside, or outside, of functions"
    )
    parser.add_argument("--survivors", action="store_true", help="only those that survived when they were last tried")
    given = parser.parse_args()
    plan, known = plan_of(given.tests)
    mutants = [one for one in plan.mutants() if not given.only or any(part in one.module for part in given.only)]
    mutants = [one for one in mutants if not given.part or bool(one.function) == (given.part == "functions")]
    if given.survivors:
        last = ended()
        mutants = [one for one in mutants if last.get(str(one), KILLED) not in (KILLED, ENDLESS)]
    chosen = sampled(mutants, given.sample, given.seed) if given.sample else mutants
    ends, shown = dict[Mutant, str](), os.fdopen(os.dup(1), "w", buffering=1)

    def tell(mutant: Mutant, end: str) -> None:
        ends[mutant] = end
        if end != KILLED or len(ends) % 50 == 0:
            print(f"[{len(ends)} of {len(chosen)}] {end}: {mutant}", file=shown)

    try:
        tried(plan, chosen, tell)
    finally:
        LAST.parent.mkdir(exist_ok=True)
        LAST.write_text(json.dumps(ended() | {str(one): end for one, end in ends.items()}, indent=1), encoding="utf-8")
    lines, enough = report(ends, known, len(plan.mutants()))
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(*lines, f"{used / 60:.1f} minutes of computing", sep="\n", file=shown)
    shown.close()
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
