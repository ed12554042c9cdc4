"""Which files of tests a change may break: those that changed, and those that name a module that did."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path


def changed(root: Path) -> set[str]:
    """Files that differ from the last commit of main, by git; those that are not committed yet, too."""
    found = set[str]()
    for command in ("diff --name-only main...HEAD", "diff --name-only HEAD", "ls-files --others --exclude-standard"):
        done = subprocess.run(["git", *command.split()], cwd=root, capture_output=True, text=True)
        found.update(done.stdout.split())
    return found


def affected(root: Path, tests: Iterable[Path]) -> set[Path]:
    """`from a.b import c` names the module a.b, and a.b.c where that is one; helpers are named by their last part."""
    paths = {Path(name) for name in changed(root) if name.endswith(".py")}
    names = {
        ".".join(path.with_suffix("").parts[path.parts.index("src") + 1 :]) for path in paths if "src" in path.parts
    }
    names |= {path.stem for path in paths if "src" not in path.parts}
    here = {test for test in tests if test.is_relative_to(root) and test.relative_to(root) in paths}
    return here | {test for test in tests if names & imported(test.read_text(encoding="utf-8"))}


def imported(text: str) -> set[str]:
    """
    >>> sorted(imported("import x\\nfrom a.b import c, d\\n"))
    ['a.b', 'a.b.c', 'a.b.d', 'x']
    """
    found = set(re.findall(r"^import ([\w.]+)", text, re.M))
    for module, names in re.findall(r"^from ([\w.]+) import \(?([^)\n]*(?:\n [^)]*)*)", text, re.M):
        found |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    return found
