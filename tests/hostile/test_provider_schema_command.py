"""What a provider sees and says of the schemas that a market asks with."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from databazaar.cli import enrolment as joining
from databazaar.cli.app import app
from databazaar.data.schema import Schema
from databazaar.data.schema_message import SchemaMessage
from databazaar.errors import BazaarError
from databazaar.federation.accepted_schemas import ACCEPTED, AcceptedSchemas, fingerprint
from databazaar.federation.table import Table
from opened_files import in_fork, tell_opens
from questions import a_kit


def a_schema(target: str = "fraud") -> SchemaMessage:
    day = ["2024-01-01", "2024-02-03", "2024-03-01"]
    frame = pd.DataFrame({"amount": [1.0, 2.0, 4.0], "day": day, "shop": ["a", "b", "a"], target: ["no", "yes", "no"]})
    return SchemaMessage.model_validate(Schema.fit(frame, target=target, task="classification").to_dict())


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    return a_kit(tmp_path / "kit")


def said(kit: Path, *options: str) -> str:
    done = CliRunner().invoke(app, ["provider", "schema", str(kit), *options])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_the_provider_sees_what_it_answers_by_and_accepts_what_it_has_looked_at(kit: Path) -> None:
    assert said(kit) == "accepted  none yet: the first that the market asks with is pinned\n"
    with pytest.raises(BazaarError, match="nothing is offered"):
        said(kit, "--accept", "0123456789ab")
    pins, first, other = AcceptedSchemas(kit), a_schema(), a_schema("salary\x1b[2J")
    pins.accept(first, "first asked")
    assert pins.keep_offer(other) and not pins.keep_offer(other)
    short = fingerprint(other)[:12]
    shown = said(kit)
    assert f"accepted  {fingerprint(first)[:12]} predicts 'fraud' (no, yes) from numbers: amount; " in shown
    assert f"offered   {short} predicts 'salary�[2J' (no, yes) from numbers: amount; " in shown
    assert f"--accept {short}" in shown
    for wrong in ("0123456789ab", short[:4]):
        with pytest.raises(BazaarError, match="is none of"):
            said(kit, "--accept", wrong)
    shown = said(kit, "--accept", short)
    assert "offered" not in shown and shown.count("accepted  ") == 2
    assert AcceptedSchemas(kit).admits(other) and AcceptedSchemas(kit).admits(first)
    assert said(kit, "--drop", fingerprint(first)[:12]).count("accepted  ") == 1
    assert AcceptedSchemas(kit).admits(first) is False
    said(kit, "--drop", short)
    assert pins.admits(other) is False, "what was dropped is not pinned again, also by a provider that is connected"
    assert said(kit) == "accepted  none: another is accepted when it is offered\n"


def test_a_schema_given_beforehand_is_the_only_one(
    kit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, given = tmp_path / "bank.csv", tmp_path / "schema.json"
    data.write_text("amount,day,shop,fraud\n" + "1,2024-01-01,a,no\n" * 32)
    given.write_text(a_schema().model_dump_json(indent=1))
    joining.source(data, None, kit)
    assert "schema none yet: the first that the market asks with is pinned" in capsys.readouterr().err
    for _ in range(2):
        joining.source(data, None, kit, given)
        assert "predicts 'fraud'" in capsys.readouterr().err
    assert AcceptedSchemas(kit).admits(a_schema()) and AcceptedSchemas(kit).admits(a_schema("salary")) is False
    with pytest.raises(BazaarError, match="--oracle has none: leave --schema out"):
        joining.source(None, "math:sqrt", kit, given)
    given.write_text("{}")
    with pytest.raises(BazaarError, match=r"schema\.json holds no schema: ask the operator"):
        joining.source(data, None, kit, given)
    given.write_text(" " * (2**20 + 1))
    with pytest.raises(BazaarError, match="holds no schema"):
        joining.source(data, None, kit, given)


def test_what_holds_no_accepted_schemas_is_refused(kit: Path) -> None:
    (kit / ACCEPTED).write_text("[]")
    with pytest.raises(BazaarError, match=r"schemas\.json cannot be read: remove it"):
        AcceptedSchemas(kit).admits(a_schema())


def test_an_account_goes_with_a_cap(kit: Path, tmp_path: Path) -> None:
    with pytest.raises(BazaarError, match="give --epsilon-cap too"):
        joining.privacy(lambda w: w, None, 1.0, 1.0, 1e-5, "bank")


@pytest.mark.process
def test_what_is_charged_is_what_was_read(kit: Path, tmp_path: Path) -> None:
    """An account knows a file by its digest: that of the rows which answer, whatever the file becomes."""
    data, rows = tmp_path / "bank.csv", "amount,fraud\n" + 32 * "1,no\n"
    data.write_text(rows)

    def joined() -> tuple[int, str, list[int]]:
        opened: list[str] = []

        def tell(name: str) -> None:
            if opened:
                data.write_text("amount,fraud\n" + 32 * "2,yes\n")
            opened.append(name)

        tell_opens(tmp_path, ".csv", tell)
        source = joining.source(data, None, kit)
        assert isinstance(source, Table)
        return len(opened), source.file.digest, source.frame["amount"].tolist()

    assert in_fork(joined) == (1, hashlib.sha256(rows.encode()).hexdigest(), 32 * [1])
