"""A kind of ledger entry is known in few places: a new one touches at most five files."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import databazaar
from databazaar.ledger.chain import KINDS, Entry

ROOT = Path(databazaar.__file__).parent
WHERE = {"chain", "book", "accounts", "ledger", "replay"}
"""Declared, booked, written by a run, opened and closed, and checked by an audit."""


def kinds_named_in(path: Path) -> set[str]:
    """The kinds that a module names: in comparisons with a `kind`, and in the tuples and mappings that entries and
    their groups are made of."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text())):
        about_kinds = isinstance(node, ast.Compare) and any(
            getattr(part, "attr", getattr(part, "id", "")) == "kind" for part in ast.walk(node)
        )
        words = [getattr(one, "value", None) for one in node.elts] if isinstance(node, ast.Tuple) else []
        grouped = words and words[0] in KINDS and (len(words) >= 5 or set(words) <= set(KINDS))
        mapped = isinstance(node, ast.Call) and ast.unparse(node.func) == "dict.fromkeys"
        if about_kinds or grouped or mapped:
            named |= {str(one.value) for one in ast.walk(node) if isinstance(one, ast.Constant)} & set(KINDS)
    return named


def knows_ledgers(path: Path) -> bool:
    return path.parent.name == "ledger" or "from databazaar.ledger" in path.read_text()


def test_a_kind_of_entry_is_named_in_five_files_of_the_ledger_and_nowhere_else() -> None:
    found = {path: kinds_named_in(path) for path in ROOT.rglob("*.py") if knows_ledgers(path)}
    for kind in KINDS:
        files = {path for path, kinds in found.items() if kind in kinds}
        assert {path.stem for path in files} <= WHERE and all(path.parent.name == "ledger" for path in files), kind
        assert 2 <= len(files) <= 5
    assert set().union(*found.values()) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_has_the_fields_of_its_kind(kind: str) -> None:
    shapes = {
        (round, draw, who, amount)
        for round in (None, 0)
        for draw in (None, 0)
        for who in (None, "north")
        for amount in (None, 5)
        if Entry(1, kind, round, draw, who, amount, {}).well_formed  # type: ignore[arg-type]
    }
    expected = {
        "round": {(0, None, None, None)},
        **{kind: {(None, None, None, None)} for kind in ("open", "close")},
        **{kind: {(0, None, "north", 5), (None, None, "north", 5)} for kind in ("release", "return")},
    }
    assert shapes == expected.get(kind, {(0, 0, "north", 5)})
