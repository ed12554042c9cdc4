"""One `bazaar run` builds one engine, replays its ledger once and draws each figure once; and what it is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_markets import bazaar, write_market

from databazaar import Arbiter
from databazaar.engines import VectorizedEngine
from databazaar.reports import figures
from small_markets import vector_market


def counted(calls: Counter[str], name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return inner(*args, **kwargs)

    return call


def test_each_thing_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import databazaar.ledger.notary as notary

    calls: Counter[str] = Counter()
    write_market(tmp_path)
    monkeypatch.setattr(VectorizedEngine, "__init__", counted(calls, "engines", VectorizedEngine.__init__))
    monkeypatch.setattr("databazaar.runs.folder.audit_entries", counted(calls, "replays", notary.audit_entries))
    for name, draw in list(figures.FIGURES.items()):
        monkeypatch.setitem(figures.FIGURES, name, counted(calls, f"figure {name}", draw))
    done = bazaar("run", "market.toml", "--out", "run", "--quiet", cwd=tmp_path)
    assert done.code == 0, done
    assert calls == {"engines": 1, "replays": 1, **{f"figure {name}": 1 for name in figures.FIGURES}}


def test_a_run_from_python_is_called_by_its_folder_and_not_by_the_demos_title(tmp_path: Path) -> None:
    consumer, providers = vector_market(budget=9)
    Arbiter(consumer, providers, engine="loop").run(tmp_path / "harbour-2027")
    assert bazaar("show", "harbour-2027", "report", cwd=tmp_path).code == 0
    page = (tmp_path / "harbour-2027" / "report.html").read_text(encoding="utf-8")
    assert "<title>harbour-2027</title>" in page and "Fraud" not in page


def test_a_statement_is_refused_where_the_chain_is_broken(tmp_path: Path) -> None:
    import sqlite3

    consumer, providers = vector_market(budget=9)
    Arbiter(consumer, providers, engine="loop").run(tmp_path / "run")
    connection = sqlite3.connect(tmp_path / "run" / "ledger.sqlite")
    connection.execute("DROP TRIGGER bazaar_no_UPDATE")
    connection.execute("UPDATE bazaar_entries SET amount = 0 WHERE kind = 'post' AND round = 1 AND draw = 0")
    connection.commit()
    connection.close()
    for command in (["show", "run", "statement"], ["show", "run", "statement", "--json"], ["show", "run", "report"]):
        done = bazaar(*command, cwd=tmp_path)
        assert (done.code, done.out) == (1, ""), command
        assert "its hash does not follow" in done.err
    assert not list((tmp_path / "run").glob("report*"))
