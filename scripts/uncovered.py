"""Compares what no test ran with the places that tests/uncovered.toml names: python scripts/uncovered.py [REPORT]

REPORT is coverage's JSON, build/coverage.json by default, as `make coverage` writes it. A function with lines that no
test ran must be named there, with a reason; otherwise this ends with 1 and lists what is missing.
"""

from __future__ import annotations

import json
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAMED = ROOT / "tests" / "uncovered.toml"
SOURCE = "src/databazaar/"


def gaps(report: dict[str, Any]) -> dict[str, list[int]]:
    """The lines that no test ran, by file and function, such as cli/app.py:main."""
    found = {}
    for path, file in report["files"].items():
        for function, region in file["functions"].items():
            if region["missing_lines"]:
                found[f"{path.removeprefix(SOURCE)}:{function or '<module>'}"] = region["missing_lines"]
    return found


def named(text: str) -> list[str]:
    """The places that the settings name; a star stands for any part of a name. Each group says why."""
    groups = tomllib.loads(text)
    assert all(group["why"].strip() for group in groups.values())
    return [place for group in groups.values() for place in group["places"]]


def main(report: Path) -> int:
    found = gaps(json.loads(report.read_text(encoding="utf-8")))
    known = named(NAMED.read_text(encoding="utf-8"))
    new = {place: lines for place, lines in found.items() if not any(fnmatchcase(place, one) for one in known)}
    old = [one for one in known if not any(fnmatchcase(place, one) for place in found)]
    for place, lines in new.items():
        print(f"{place}: no test runs line {', '.join(map(str, lines))}")  # noqa: T201
    if old:
        print(f"now covered here, and perhaps elsewhere: {', '.join(old)}")  # noqa: T201
    if new:
        print(f"write a test, or name the place and its reason in {NAMED.relative_to(ROOT)}")  # noqa: T201
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "coverage.json")))
