"""The public names are these, and the core imports with torch and NumPy alone."""

from __future__ import annotations

import subprocess
import sys

import databazaar

NAMES = [
    "OSMD",
    "Arbiter",
    "Ask",
    "BazaarError",
    "Consumer",
    "Currency",
    "Engine",
    "FullGradient",
    "Halving",
    "LedgerError",
    "LocalSGD",
    "LoopEngine",
    "Progress",
    "Provider",
    "Replies",
    "Report",
    "Sampler",
    "StochasticGradient",
    "Uniform",
    "VectorizedEngine",
    "build_model",
    "check_engine",
    "check_sampler",
]

LATER = ["sqlalchemy", "pandas", "pyarrow", "matplotlib", "typer", "rich", "pydantic", "sklearn", "scipy", "psycopg"]


def test_public_names_are_pinned() -> None:
    assert sorted(databazaar.__all__) == sorted(NAMES)
    assert all(hasattr(databazaar, name) for name in NAMES)


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_core_imports_with_torch_and_numpy_alone() -> None:
    """Names that torch itself brings along are not ours to forbid."""
    listed = "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    ours = set(run_python(f"import sys, databazaar; {listed}").split())
    bare = set(run_python(f"import sys, torch, torch.func; {listed}").split())
    assert "databazaar" in ours
    assert not (ours - bare) & set(LATER)


def test_a_run_in_memory_needs_nothing_else_either() -> None:
    run_python(
        f"""
import sys
for name in {LATER!r}:
    sys.modules[name] = None
import numpy as np
from databazaar import Arbiter, Consumer, Provider
consumer = Consumer("logistic", holdout=(np.eye(4, dtype="float32"), np.arange(4) % 2), budget=8, per_round=2)
report = Arbiter(consumer, [Provider("p", data=(np.eye(4), np.arange(4) % 2))], device="cpu").run()
assert report.spent == 8
"""
    )
