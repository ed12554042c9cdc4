"""The house in order: what ships, what the version is, and that the README's examples run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata, resources
from pathlib import Path

import pytest

import databazaar
from processes import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pinned() -> dict[str, str]:
    lines = [line for line in text_of("constraints.txt").splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line) for line in lines), lines
    return {
        re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in (line.partition("==") for line in lines)
    }


@pytest.mark.parametrize(
    "path", ["py.typed", "reports/report.css", "reports/sort.js", "reports/templates/base.html.jinja"]
)
def test_the_package_carries_its_files(path: str) -> None:
    assert resources.files("databazaar").joinpath(path).is_file()


@pytest.mark.process
def test_nothing_keeps_the_packages_files_out_of_the_wheel() -> None:
    """Hatchling takes the whole of src/databazaar except what git ignores."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--ignored", "--exclude-standard", "src"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        ignored = [line for line in done.stdout.splitlines() if "__pycache__" not in line]
        assert ignored == []
    build = tomllib.loads(text_of("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build == {"packages": ["src/databazaar"]}


def test_one_version_everywhere() -> None:
    assert databazaar.__version__ == PROJECT["version"] == metadata.version("databazaar")
    assert PROJECT["version"] in text_of("CHANGELOG.md")
    assert f"\nversion: {PROJECT['version']}\n" in text_of("CITATION.cff")


def test_the_command_is_the_one_that_the_readme_names() -> None:
    assert PROJECT["scripts"] == {"bazaar": "databazaar.cli:main"}
    assert Path(sys.executable).with_name("bazaar").exists()


def test_the_licence_is_apache_2_in_full() -> None:
    licence = text_of("LICENSE")
    assert PROJECT["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in licence and "END OF TERMS AND CONDITIONS" in licence
    assert all(f"\n   {number}. " in licence for number in range(1, 10))


@pytest.mark.process
def test_the_readmes_python_runs(tmp_path: Path) -> None:
    """Each block by itself, in an empty folder, in a process of its own with warnings as errors."""
    assert BLOCKS or "Arbiter" not in README, "README.md speaks of Arbiter without a ```python block"
    for place, block in enumerate(BLOCKS):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / "readme.py").write_text(block, encoding="utf-8")
        done = run([sys.executable, "-W", "error", "readme.py"], cwd=folder, draws=True)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_everything_that_is_declared_is_pinned() -> None:
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["test"], *extras["docs"]]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", line)[0]).lower() for line in wanted}
    assert names <= pinned().keys()
    assert pinned()["torch"] == "2.13.0"


def test_every_pin_but_torchs_has_the_hashes_of_its_files() -> None:
    """One for each Python of the workflow, or one for all. `make constraints` makes both files."""
    lines = [line.split() for line in text_of("hashes.txt").splitlines() if not line.startswith("#")]
    pins = [line for line in text_of("constraints.txt").splitlines() if not line.startswith(("#", "torch=="))]
    assert [pin for pin, *_ in lines] == pins
    for pin, *hashes in lines:
        assert 1 <= len(hashes) <= 3, pin
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), pin


def test_no_committed_file_names_a_registry_or_this_machine() -> None:
    """Addresses are those of the project, and of pages that a person reads."""
    known = ("https://github.com/", "https://databazaar.github.io/")
    files = [ROOT / name for name in ("Makefile", ".ci/run", "constraints.txt", "hashes.txt", "pyproject.toml")]
    files += [
        ROOT / "mkdocs.yml",
        ROOT / "CITATION.cff",
        ROOT / ".pre-commit-config.yaml",
        *(ROOT / ".github").rglob("*.*"),
    ]
    for path in files:
        text = path.read_text(encoding="utf-8")
        addresses = re.findall(r"\b[\w+.-]+://\S*", text)
        assert all(address.startswith(known) for address in addresses), (path, addresses)
        assert not re.search(r"index-url|find-links|/root/|/work/", text) and str(Path.home()) not in text, path


@pytest.mark.process
def test_the_makes_help_lists_what_the_readme_promises() -> None:
    told = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "lint", "docs", "bench", "clean"):
        assert re.search(rf"^  make {target} +\w", told, flags=re.MULTILINE), told


def test_the_places_that_no_test_runs_are_there() -> None:
    """A name in tests/uncovered.toml that is gone from the code goes from the list too."""
    for name, group in tomllib.loads(text_of("tests/uncovered.toml")).items():
        for place in group["places"]:
            path, _, function = place.partition(":")
            text = text_of(f"src/databazaar/{path}")
            for part in function.split("."):
                assert part in ("*", "<module>") or re.search(rf"\b(def|class) {part}\b", text), (
                    f"{name}: {place} is no longer there"
                )


@pytest.mark.parametrize(("function", "status"), [("passphrase", 0), ("of_no_such_name", 1)])
@pytest.mark.process
def test_a_gap_must_be_named(function: str, status: int, tmp_path: Path) -> None:
    regions = {"": {"missing_lines": []}, function: {"missing_lines": [7, 8]}}
    report = tmp_path / "coverage.json"
    report.write_text(json.dumps({"files": {"src/databazaar/cli/federation.py": {"functions": regions}}}))
    done = subprocess.run([sys.executable, "scripts/uncovered.py", report], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("of_no_such_name: no test runs line 7, 8" in done.stdout) == (status == 1)
