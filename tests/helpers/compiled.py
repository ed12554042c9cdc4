"""What workers import is compiled before they start, by one process: they would all do it, at the same time."""

from __future__ import annotations

import compileall
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
)

MODULES = ("src", "experiments/src", "tests/helpers", "benchmarks", "examples")
TESTS = ("tests", "experiments/tests")


def compile_for_workers(config: pytest.Config) -> None:
    """In the process that starts workers. In a fresh clone it saves each of them some four seconds."""
    starts_workers = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if starts_workers and not sys.dont_write_bytecode:
        for folder in MODULES:
            compileall.compile_dir(config.rootpath / folder, quiet=2)
        for folder in TESTS:
            _rewrite(config, sorted((config.rootpath / folder).rglob("test_*.py")))


def _rewrite(config: pytest.Config, files: Iterable[Path]) -> None:
    """As pytest does when it imports a file of tests, so that asserts say what they have compared."""
    for file in files:
        cached = get_cache_dir(file) / f"{file.stem}{PYC_TAIL}"
        if _read_pyc(file, cached) is None:
            cached.parent.mkdir(exist_ok=True)
            digest, code = _rewrite_test(file, config)
            _write_pyc(config.stash[assertstate_key], code, digest, cached)
