"""The description of the interface: whole, unambiguous, and the same in the docs and in the client."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from databazaar.client import shapes
from web_rights import OWN_KEY

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "api_reference.py"))


@pytest.fixture(scope="module")
def operations() -> dict[tuple[str, str], dict[str, Any]]:
    paths = SCRIPT["specification"]()["paths"]
    return {(method, path): one for path, by_method in paths.items() for method, one in by_method.items()}


def test_every_operation_is_named_and_described(operations: dict[tuple[str, str], dict[str, Any]]) -> None:
    ids = [one["operationId"] for one in operations.values()]
    assert len(set(ids)) == len(ids)
    assert all(one["description"].endswith(".") and len(one["tags"]) == 1 for one in operations.values())


def test_whatever_changes_something_takes_a_key(operations: dict[tuple[str, str], dict[str, Any]]) -> None:
    for (method, path), operation in operations.items():
        keys = [one for one in operation.get("parameters", ()) if one["name"] == "Idempotency-Key"]
        assert len(keys) == (method != "get" and ("POST", path) not in OWN_KEY), path
        assert method in ("get", "post", "delete")


def test_the_page_is_what_the_hub_says_today() -> None:
    page = (ROOT / "docs" / "reference" / "http-api.md").read_text(encoding="utf-8")
    assert SCRIPT["reference"]() == page, "run scripts/api_reference.py"


def test_an_object_of_the_hub_is_defined_once() -> None:
    """In client/shapes.py: the API shows these, and nothing under the same name from elsewhere."""
    schemas, bases = SCRIPT["specification"]()["components"]["schemas"], (shapes.HubObject, shapes.Identified)
    for name, one in vars(shapes).items():
        if isinstance(one, type) and issubclass(one, shapes.HubObject) and one not in bases:
            assert list(one.model_fields) == list(schemas[name]["properties"]), name


def test_the_client_has_a_method_for_every_operation(operations: dict[tuple[str, str], dict[str, Any]]) -> None:
    """By the addresses in its source: those that it builds from parts begin with the same part."""
    source = "".join(path.read_text() for path in (ROOT / "src" / "databazaar" / "client").glob("*.py"))
    for _, path in operations:
        parts = [part for part in path.removeprefix("/v1/").split("/") if not part.startswith("{")]
        if path.startswith("/v1/"):
            assert all(part in source for part in parts), path
