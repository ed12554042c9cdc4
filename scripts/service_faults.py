"""Many kill points over three concurrent jobs of a hub, on SQLite and on PostgreSQL:

    python scripts/service_faults.py [--points 200] [--each 12] [--seed 0] [--database sqlite|postgresql]
    python scripts/service_faults.py --federation [--points 24] [--each 2] [--seed 0]

`--each` points are played in one market, one after the other; then it must come to the models and ledgers of the same
jobs from the shell, with books that sum to zero and every access paid once. Prints a table, and ends with 1 if a point
did not hold. With `--federation` two of the jobs are over sites of a real federation, of which providers and
the server are killed too (tests/helpers/site_faults.py says what must hold then).
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from sqlalchemy import create_engine, text  # noqa: E402

from databazaar.service.database.connection import Database  # noqa: E402
from databazaar.service.database.upgrade import upgrade  # noqa: E402
from databazaar.service.settings import Settings  # noqa: E402
from hub_faults import Stage, Struck, points  # noqa: E402
from hub_market import PLUGIN, SPECS, hub_market, run_alone  # noqa: E402
from postgres import Server, running  # noqa: E402
from site_faults import SiteStage, queued_market, site_points  # noqa: E402
from site_market import SITES, Sites  # noqa: E402

sys.path.insert(0, str(PLUGIN))


def sqlite(folder: Path) -> Callable[[], str]:
    numbers = itertools.count()
    folder.mkdir()
    return lambda: _upgraded(f"sqlite:///{folder / f'hub{next(numbers)}.sqlite'}")


def postgresql(server: Server) -> Callable[[], str]:
    numbers = itertools.count()

    def make() -> str:
        name = f"hub{next(numbers)}"
        engine = create_engine(server.url(), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return _upgraded(server.url(database=name))

    return make


def _upgraded(url: str) -> str:
    database = Database(url)
    upgrade(database)
    database.dispose()
    return url


def alone(folder: Path) -> dict[str, tuple[str, str]]:
    """What the jobs come to from the shell, undisturbed."""
    database = Database(sqlite(folder / "alone")())
    market = hub_market(database, Settings(home=folder / "alone/hub", cash="test"))
    found = {name: run_alone(market, name, folder / f"alone-{name}") for name in SPECS}
    database.dispose()
    return found


@contextmanager
def federation(folder: Path) -> Iterator[SiteStage]:
    """Two sites, and a market with two jobs over them and one over files, which has been played undisturbed once."""
    sites = Sites(folder / "sites")
    database = Database(sqlite(folder / "databases")())
    try:
        for seed, name in enumerate(SITES):
            sites.found(name, seed, "--schemas", "20")
        sites.up()
        for name in SITES:
            sites.start(name)
        settings = Settings(home=folder / "made", cash="test", federation=sites.market)
        made = queued_market(database, settings)
        sites.wait()
        stage = SiteStage(sites, made, folder / "played")
        stage.play([])
        yield stage
    finally:
        sites.close()
        database.dispose()


def play(stage: Stage | SiteStage, database: str, count: int, each: int, seed: int) -> list[Struck]:
    found: list[Struck] = []
    chosen: Any = site_points(count, seed) if isinstance(stage, SiteStage) else points(count, database, seed)
    for begin in range(0, count, each):
        started = time.monotonic()
        these = chosen[begin : begin + each]
        try:
            struck = stage.play(these)
        except AssertionError as failed:  # it hangs, or the hub does not start
            struck = [Struck(point, False, str(failed)) for point in these]
        found += struck
        hits, wrong = sum(one.hit for one in struck), struck[0].wrong
        took = time.monotonic() - started
        print(f"{database} {len(found)}/{count}: {hits} hit, {wrong or 'as undisturbed'}, {took:.0f} s", flush=True)  # noqa: T201
    return found


def table(found: dict[str, list[Struck]]) -> str:
    """Points down: how many there were, hit something, and held."""
    rows: list[tuple[str, ...]] = [("point", "database", "points", "killed", "held")]
    for database, struck in found.items():
        for kind in sorted({(one.point.what, one.point.when) for one in struck}):
            of_kind = [one for one in struck if (one.point.what, one.point.when) == kind]
            held = Counter(one.wrong is None for one in of_kind)[True]
            row = (" at ".join(kind), database, len(of_kind), sum(one.hit for one in of_kind), held)
            rows.append(tuple(map(str, row)))
        whole = len(struck), sum(one.hit for one in struck), sum(one.wrong is None for one in struck)
        rows.append(("all", database, *map(str, whole)))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill points over three concurrent jobs of a hub.")
    parser.add_argument("--points", type=int, help="in all, half of them on each database")
    parser.add_argument("--each", type=int, help="in one market")
    parser.add_argument("--federation", action="store_true", help="with sites, on SQLite")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), help="on this one alone")
    args = parser.parse_args()
    usual = (24, 2) if args.federation else (200, 12)
    count, each = args.points or usual[0], args.each or usual[1]
    kinds = [args.database] if args.database else ["sqlite", "postgresql"]
    found: dict[str, list[Struck]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bazaar-faults-")))
        if args.federation:
            stage = stack.enter_context(federation(folder))
            found["federation"] = play(stage, "federation", count, each, args.seed)
            print(f"{stage.void} jobs had void accesses of a provider that was away, and all else as undisturbed")  # noqa: T201
            kinds = []
        whole = alone(folder) if kinds else {}
        for kind in kinds:
            server = stack.enter_context(running()) if kind == "postgresql" else None
            make = sqlite(folder / "databases") if server is None else postgresql(server)
            found[kind] = play(Stage(make, folder / kind, whole, server), kind, count // len(kinds), each, args.seed)
    print(table(found))  # noqa: T201
    return 0 if all(one.wrong is None for struck in found.values() for one in struck) else 1


if __name__ == "__main__":
    sys.exit(main())
