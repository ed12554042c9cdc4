"""Numbers on the command line that no machine can use: one sentence each, before anything begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_markets import bazaar, write_market


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(
            (option, value)
            for option in ("--noise", "--clip", "--epsilon-cap")
            for value in ("nan", "inf", "0", "-1", "1e30")
        ),
        *(("--delta", value) for value in ("0", "1", "nan", "-inf")),
    ],
)
def test_of_a_provider_that_joins(option: str, value: str, tmp_path: Path) -> None:
    """Before a kit or a table is looked for: here there is neither."""
    privacy = [] if option == "--epsilon-cap" else ["--epsilon-cap", "1"]
    done = bazaar("provider", "join", tmp_path / "kit", "--data", tmp_path / "none.csv", *privacy, option, value)
    assert done.code == 2 and option in done.err.splitlines()[-1] and "Traceback" not in done.err, done


@pytest.mark.parametrize(
    "command",
    [
        ["demo", "--budget", str(10**30)],
        ["demo", "--budget", "1e30"],
        ["demo", "--seed", str(10**30)],
        ["demo", "--federated", "--budget", str(10**30)],
        ["demo", "--federated", "--seed", str(2**63)],
        ["federation", "init", "new", "--name", "fraud", "--port", str(10**30)],
        ["federation", "init", "new", "--name", "fraud", "--port", "0"],
        ["run", "market.toml", "--seed", str(10**30)],
        ["compare", "market.toml", "--seeds", str(10**12)],
        ["compare", "market.toml", "--seed", str(10**30)],
        ["compare", "market.toml", "--max-seconds", "nan"],
        ["compare", "market.toml", "--max-seconds", "-inf"],
        ["provider", "join", "kit", "--threads", str(10**9)],
    ],
)
def test_nothing_is_begun_with_them(command: list[str], tmp_path: Path) -> None:
    write_market(tmp_path)
    before = set(tmp_path.rglob("*"))
    done = bazaar(*command, cwd=tmp_path)
    assert done.code == 2 and done.out == "" and "Traceback" not in done.err and done.err.count("\n") <= 4, done
    assert set(tmp_path.rglob("*")) == before
