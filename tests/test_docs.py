"""The documentation holds: its Python runs, its links lead somewhere, and no command, setting or name is left out."""

from __future__ import annotations

import pkgutil
import re
import runpy
from pathlib import Path
from types import ModuleType

import pytest
import typer

import databazaar
from databazaar.cli.app import app

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FILES = {
    page: dict(re.findall(r"^`(\S+)`\n\n```\w+\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    for page in PAGES
}
"""Blocks that stand under the name of a file, by page."""
BLOCKS = [
    pytest.param(page, block, id=f"{page.relative_to(DOCS)}:{text[: match.start()].count(chr(10)) + 1}")
    for page in PAGES
    for text in [page.read_text(encoding="utf-8")]
    for match in re.finditer(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    for block in [match[1]]
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_the_python_of_the_docs_runs(page: Path, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block alone, in an empty folder but for the files that its page has one write."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES[page].items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content, encoding="utf-8")
        monkeypatch.syspath_prepend(Path(name).parent.resolve())
    exec(compile(block, "docs", "exec", dont_inherit=True), {"__name__": "docs"})


def test_there_is_something_to_run() -> None:
    assert len(BLOCKS) >= 8


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_the_index_links_every_page() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = {(DOCS / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", index)}
    assert linked == {page.resolve() for page in PAGES} - {(DOCS / "index.md").resolve()}


def test_every_test_that_the_security_page_names_is_there() -> None:
    named = set(
        re.findall(r"\b(?:tests/[\w/]+/)?test_\w+\.py\b", (DOCS.parent / "SECURITY.md").read_text(encoding="utf-8"))
    )
    assert len(named) > 15
    for name in named:
        assert (DOCS.parent / name).exists() or list((DOCS.parent / "tests").glob(f"**/{name}")), name


def test_the_reference_has_every_public_name() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference" / "python").glob("*.md"))
    shown = set(re.findall(r"^::: (databazaar[\w.]*)$", pages, flags=re.MULTILINE))
    found = [pkgutil.resolve_name(name) for name in shown]
    rooms = [room for room in found if isinstance(room, ModuleType)]
    found += [getattr(room, name) for room in rooms for name in getattr(room, "__all__", vars(room))]
    for name in [*databazaar.__all__, *databazaar.__optional__]:
        documented = any(getattr(databazaar, name) is one for one in found)
        assert documented, f"{name}: give it a line in docs/reference/python"


def test_one_page_lists_every_public_name_and_no_other() -> None:
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\[`(\w+)`\]\(python/", text))
    assert listed == {*databazaar.__all__, *databazaar.__optional__}
    for name in re.findall(r"\[`([\w.]+\.\w+)`\]\(python/", text):
        assert pkgutil.resolve_name(f"databazaar.{name.removeprefix('databazaar.')}"), name


def test_the_reference_is_what_the_help_says_today() -> None:
    script = runpy.run_path(str(DOCS.parent / "scripts" / "cli_reference.py"))
    assert script["reference"]() == (DOCS / "reference" / "cli.md").read_text(encoding="utf-8"), "run that script"


def test_the_reference_has_every_command_and_every_option() -> None:
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    commands = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    for name, command in list(commands.items()):
        commands |= {f"{name} {inner}": part for inner, part in getattr(command, "commands", {}).items()}
    for name, command in commands.items():
        (part,) = re.findall(rf"^## bazaar {name}\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
        for parameter in command.params:
            written = [option for option in parameter.opts if option.startswith("--")] or [parameter.name]
            if not getattr(parameter, "hidden", False):
                assert all(option in part for option in written), f"{name} {written}: run scripts/cli_reference.py"


def test_the_reference_of_market_toml_is_what_the_code_declares() -> None:
    script = runpy.run_path(str(DOCS.parent / "scripts" / "market_reference.py"))
    text = (DOCS / "reference" / "market-toml.md").read_text(encoding="utf-8")
    assert script["reference"](text) == text, "run that script"
