"""Commands of other packages: one that cannot be loaded is named when it is called, and leaves the others in peace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from cli_markets import bazaar, edit, write_market
from typer.testing import CliRunner

from databazaar.cli.compare import DEFAULT
from databazaar.cli.plugins import add_commands
from databazaar.errors import BazaarError
from databazaar.samplers import SAMPLERS, Uniform


def test_a_command_that_cannot_be_loaded_says_so_and_the_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "acme_cli-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-cli\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[databazaar.commands]\nhaggle = acme_cli:add\n")
    (tmp_path / "acme_cli.py").write_text("import something_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    app = typer.Typer()
    add_commands(app)
    assert "haggle" in CliRunner().invoke(app, ["--help"]).output
    refused = CliRunner().invoke(app, ["haggle", "--at", "once"]).exception
    assert isinstance(refused, BazaarError)
    assert "of the package acme-cli cannot be loaded (ModuleNotFoundError" in str(refused)


def test_compare_plays_a_sampler_of_somebody_else_as_the_method_market(tmp_path: Path) -> None:
    write_market(tmp_path)

    class Elsewhere(Uniform):
        kind = "test-elsewhere"

    SAMPLERS.register(Elsewhere)
    path = tmp_path / "market.toml"
    text = path.read_text(encoding="utf-8")
    start = text.index("[sampler]")
    end = text.find("\n[", start + 1)
    path.write_text(text[:start] + '[sampler]\nkind = "test-elsewhere"\n' + text[end:], encoding="utf-8")
    edit(path, "per_round = 4", "per_round = 3")
    done = bazaar("compare", "market.toml", "--max-seconds", "1", "--json", "--out", "c", cwd=tmp_path)
    assert done.code == 0, done
    own, *others = json.loads(done.out)["methods"]
    assert own["method"] == "market" and own["results"][0]["settings"]["sampler"]["kind"] == "test-elsewhere"
    assert [told["method"] for told in others] == DEFAULT.split(",")
    ran = json.loads(bazaar("run", "market.toml", "--json", "--out", "run", cwd=tmp_path).out)
    assert sorted(own["payouts"][0]) == sorted(line["pay"] for line in ran["providers"])
    asked = bazaar("compare", "market.toml", "--methods", "osmd", "--json", "--out", "d", cwd=tmp_path)
    assert [told["method"] for told in json.loads(asked.out)["methods"]] == ["osmd"]
