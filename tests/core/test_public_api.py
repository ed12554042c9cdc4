"""The public names are these, and the core imports with torch and NumPy alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import databazaar
from databazaar import Arbiter, Consumer, Provider

NAMES = [
    "Arbiter",
    "BazaarError",
    "Callback",
    "Consumer",
    "Defence",
    "LedgerError",
    "LocalSGD",
    "Mean",
    "NoProgress",
    "OSMD",
    "PricePerAccess",
    "Progress",
    "Provider",
    "Quote",
    "Report",
    "TargetUtility",
    "Adaptive",
    "Uniform",
    "build_model",
    "judge_purchase",
    "load_model",
    "load_run",
]

OPTIONAL = ["MarketClassifier", "MarketRegressor"]

LATER = [
    *("sqlalchemy", "pandas", "pyarrow", "matplotlib", "typer", "rich", "pydantic", "sklearn", "scipy", "psycopg"),
    *("tensorboard", "mlflow"),
]


def test_public_names_are_pinned() -> None:
    assert sorted(databazaar.__all__) == sorted(NAMES)
    assert sorted(databazaar.__optional__) == OPTIONAL
    assert all(hasattr(databazaar, name) for name in [*NAMES, *OPTIONAL])
    assert {*NAMES, *OPTIONAL} <= set(dir(databazaar))


@pytest.mark.process
def test_every_name_but_the_estimators_is_had_without_the_extras() -> None:
    said = run_python(
        """
import sys
for name in ("sklearn", "tensorboard", "mlflow", "matplotlib", "pandas"):
    sys.modules[name] = None
from databazaar import *
try:
    import databazaar.sklearn
except BazaarError as reason:
    print(reason)
"""
    )
    assert said == "the estimators need scikit-learn: `pip install 'databazaar[sklearn]'`"


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.process
def test_the_core_imports_with_torch_and_numpy_alone() -> None:
    """Names that torch itself brings along are not ours to forbid."""
    code = "import sys, torch, torch.func; bare = set(sys.modules); import databazaar; print(*set(sys.modules) - bare)"
    ours = {name.split(".")[0] for name in run_python(code).split()}
    assert "databazaar" in ours
    assert not ours & set(LATER)


@pytest.mark.process
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


@pytest.mark.parametrize("module", ["ledger", "ledger.sql", "samplers", "payments", "stops", "aggregators", "registry"])
@pytest.mark.process
def test_a_ledger_and_its_rules_are_read_without_torch(module: str) -> None:
    run_python(
        f"""
import sys
sys.modules["torch"] = None
import databazaar.{module}
"""
    )


@pytest.mark.process
def test_a_run_is_audited_and_reported_without_torch(tmp_path: Path) -> None:
    consumer = Consumer(np.zeros(2), budget=6, per_round=2, utility=lambda w: float(w.sum()))
    Arbiter(consumer, [Provider("p", oracle=lambda w: w + 1)], engine="loop").run(tmp_path / "run")
    run_python(
        f"""
import sys
sys.modules["torch"] = None
from pathlib import Path
from databazaar.runs.folder import RunFolder
folder = RunFolder(Path({str(tmp_path / "run")!r}))
assert folder.audit().ok and folder.report().spent == 6
"""
    )
