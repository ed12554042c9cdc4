"""What a bank installs, built as it is released: the library without the evaluation."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
EVALUATION = ROOT / "experiments" / "src" / "databazaar_experiments"
SENTENCE = "`{}` is no part of what is installed here: in a clone of databazaar, `pip install -e experiments`"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every file in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def installed(wheel: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment of processes that have this wheel, all that it depends on, and nothing else of this project."""
    library, others = tmp_path_factory.mktemp("library"), tmp_path_factory.mktemp("others")
    for name, content in wheel.items():
        path = library / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    packages = Path(str(metadata.distribution("typer").locate_file("")))
    for path in packages.iterdir():
        if not path.name.startswith("databazaar"):
            (others / path.name).symlink_to(path)
    return {**os.environ, "PYTHONPATH": f"{library}{os.pathsep}{others}"}


def python(environment: dict[str, str], *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """With -S no site-packages are added: neither packages nor the links to this clone."""
    command = [sys.executable, "-S", *args]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def test_the_wheel_is_the_whole_library(wheel: dict[str, bytes]) -> None:
    library = ROOT / "src"
    there = {path.relative_to(library).as_posix() for path in library.rglob("*") if path.is_file()}
    there = {name for name in there if "__pycache__" not in name}
    assert there and there == {name for name in wheel if ".dist-info/" not in name}


def test_nothing_of_the_evaluation_is_in_the_wheel(wheel: dict[str, bytes]) -> None:
    evaluation = [path for path in (ROOT / "experiments").rglob("*") if path.is_file() and path.stat().st_size]
    assert EVALUATION / "published.json" in evaluation
    assert not {path.read_bytes() for path in evaluation} & set(wheel.values())
    assert {name.split("/")[0] for name in wheel} == {
        "databazaar",
        f"databazaar-{metadata.version('databazaar')}.dist-info",
    }
    assert not [name for name in wheel if name.endswith((".npz", ".parquet")) or "published" in name]
    assert not [name for name, content in wheel.items() if b"databazaar_experiments" in content]


@pytest.mark.parametrize(
    "args", [("attack", "market.toml"), ("reproduce", "mixture", "--quick", "--set", "mixture.eta=0.002")]
)
def test_commands_of_the_package_beside_say_how_to_get_it(
    installed: dict[str, str], tmp_path: Path, args: tuple[str, ...]
) -> None:
    done = python(installed, "-m", "databazaar", *args, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"bazaar: {SENTENCE.format(args[0])}\n")
    assert list(tmp_path.iterdir()) == []


def test_the_other_commands_are_there_without_it(installed: dict[str, str], tmp_path: Path) -> None:
    code = "import databazaar; print(databazaar.__file__)"
    assert python(installed, "-c", code, cwd=tmp_path).stdout.startswith(installed["PYTHONPATH"].split(os.pathsep)[0])
    done = python(installed, "-m", "databazaar", "init", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["market.toml"]
    missing = python(installed, "-c", "import databazaar_experiments", cwd=tmp_path)
    assert "No module named 'databazaar_experiments'" in missing.stderr
