"""A run that is played against, on the command line: while it is open, when it is closed, and in an audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attacked_market import attacked_market
from databazaar import Progress
from databazaar.cli.app import app
from databazaar.cli.play import Output
from databazaar.money import Currency

ENOUGH = 14


class EnoughError(Exception):
    """The consumer has seen enough."""


def bazaar(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "100"})
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Progress]:
    """A run that was broken off after a flag, and its last round."""
    told: list[Progress] = []

    def tell(progress: Progress) -> None:
        told.append(progress)
        if progress.round == ENOUGH:
            raise EnoughError

    path = tmp_path_factory.mktemp("defended") / "run"
    with pytest.raises(EnoughError):
        attacked_market(market="Trade winds", buyer="Harbour & Sons").run(path, tell=tell)
    return path, told[-1]


def test_open_closed_and_audited(run: tuple[Path, Progress]) -> None:
    path, last = run
    assert last.flagged == ("spy",)
    bazaar("show", path, "report")
    page = (path / "report.html").read_text()
    assert "is held back." in page and ">Held back<" in page
    own = json.loads(bazaar("show", path, "statement", "--provider", "hum", "--json"))
    assert own["defence"]["standing"] == "open" and own["defence"]["held_back"] > 0 and not own["closed"]
    closed = bazaar("close", path)
    assert "flagged: spy (leak)" in closed and "returned" in closed
    bazaar("audit", path)
    assert ">Held back<" not in (path / "report.html").read_text()
    spy = json.loads(bazaar("show", path, "statement", "--provider", "spy", "--json"))["defence"]
    assert spy["held_back"] == 0 and spy["returned"] > 0
    assert (
        "To object, write to Harbour & Sons, who buys in the market Trade winds," in spy["verdicts"][0]["how_to_object"]
    )
    assert (path / "figures" / "defence.png").is_file()


def test_progress_names_who_is_flagged(run: tuple[Path, Progress], capsys: pytest.CaptureFixture[str]) -> None:
    with Output(quiet=False, as_json=False).progress("a market", Currency("EUR", 2)) as show:
        assert show is not None
        show(run[1])
    assert "flagged" in capsys.readouterr().err
