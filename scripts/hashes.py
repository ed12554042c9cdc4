"""The SHA-256 of every file that constraints.txt pins, for the Python versions of the workflow on Linux (x86-64):

    python scripts/hashes.py > hashes.txt

`make hashed` installs by it. torch is left out: it comes in several builds, each with other files and other packages
beside it. Files come from whatever index pip is set up with; nothing of it is written down.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11.9", "3.12", "3.13")
LEFT_OUT = "torch"


def pins(text: str) -> list[str]:
    """The pins of constraints.txt, without the one that has many builds."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line for line in lines if line.partition("==")[0] != LEFT_OUT]


def report(wanted: list[str], version: str) -> dict[str, Any]:
    """What pip would install for this version of Python; nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "wanted.txt"
        asked.write_text("\n".join(wanted) + "\n")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
        pip += ["--python-version", version, "--target", folder, "--report", "-", "-r", str(asked)]
        done = subprocess.run(pip, stdout=subprocess.PIPE, check=True)  # noqa: S603
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def written(wanted: list[str], reports: list[dict[str, Any]]) -> str:
    """One line a package, as pip's requirements files have it."""
    digests = defaultdict(set)
    for found in reports:
        for one in found["install"]:
            digests[_plain(one["metadata"]["name"])].add(one["download_info"]["archive_info"]["hashes"]["sha256"])
    about = "# Made by `make constraints` (scripts/hashes.py): what `make hashed` installs. torch is not here.\n"
    lines = []
    for pin in wanted:
        known = sorted(digests[_plain(pin.partition("==")[0])])
        lines.append(" ".join([pin, *(f"--hash=sha256:{digest}" for digest in known)]))
    return about + "\n".join(lines) + "\n"


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


if __name__ == "__main__":
    wanted = pins((ROOT / "constraints.txt").read_text())
    sys.stdout.write(written(wanted, [report(wanted, version) for version in VERSIONS]))
