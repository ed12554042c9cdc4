"""A provider that lets several schemas come: how many it takes by itself, of which task, and what that tells."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from databazaar.cli import enrolment as joining
from databazaar.cli.app import app
from databazaar.data.schema_message import SchemaMessage
from databazaar.errors import BazaarError
from databazaar.federation.accepted_schemas import (
    ACCEPTED,
    LARGEST_SCHEMA,
    MOST_OFFERS,
    OFFERS,
    AcceptedSchemas,
    Asker,
    fingerprint,
)
from databazaar.federation.table import Table
from databazaar.federation.worker import ProviderWorker
from questions import HONEST, a_kit, asked


def variant(number: int, target: str = "fraud", task: str = "classification") -> SchemaMessage:
    """What another consumer's hold-out makes of the same columns."""
    classes = HONEST.classes if task == "classification" else ()
    return HONEST.model_copy(update={"target_mean": float(number), "target": target, "task": task, "classes": classes})


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    path = tmp_path / "bank.csv"
    columns = {
        "amount": [1.0, 2.0, 5.0, 3.0] * 8,
        "income": [3, 4, 9, 1] * 8,
        "fraud": ["no", "yes"] * 16,
        "salary": [1, 2, 3, 4] * 8,
    }
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_the_first_few_of_one_task_are_answered_and_the_kit_knows_who_asked(bank: Path, tmp_path: Path) -> None:
    kit = a_kit(tmp_path / "kit")
    worker = ProviderWorker("bank", Table(bank, AcceptedSchemas(kit, most=2)))

    def code(schema: SchemaMessage, consumer: str) -> str:
        return asked(worker, schema, consumer=consumer, contract=f"job of {consumer}")[1]

    assert code(variant(1), "north") == ""
    assert code(variant(9, "salary", "regression"), "east") == "task-not-allowed", "another target"
    assert code(variant(9, "fraud", "regression"), "east") == "task-not-allowed", "another kind of task"
    assert code(variant(2), "south") == ""
    assert code(variant(3), "west") == "task-not-allowed", "one more than two"
    assert [code(variant(number), "north") for number in (1, 2)] == ["", ""]
    kept = json.loads((kit / ACCEPTED).read_text())
    assert {known["consumer"]: known["contract"] for known in kept.values()} == {
        "north": "job of north",
        "south": "job of south",
    }
    assert [known["how"] for known in sorted(kept.values(), key=lambda known: known["consumer"])] == [
        "first asked",
        "same target",
    ]
    assert [(one.consumer, one.schema_) for one in AcceptedSchemas(kit).offers()] == [
        ("east", variant(9, "fraud", "regression")),
        ("west", variant(3)),
    ]
    again = ProviderWorker("bank", Table(bank, AcceptedSchemas(kit, most=3)))
    assert asked(again, variant(3), consumer="west")[0] == "ok", "joined again with room for a third"
    assert [one.consumer for one in AcceptedSchemas(kit).offers()] == ["east"]


def test_what_is_dropped_is_not_pinned_again_and_leaves_no_room(bank: Path, tmp_path: Path) -> None:
    kit = a_kit(tmp_path / "kit")
    worker = ProviderWorker("bank", Table(bank, AcceptedSchemas(kit, most=2)))
    assert [asked(worker, variant(number))[1] for number in (1, 2)] == ["", ""]
    AcceptedSchemas(kit).drop(fingerprint(variant(2)))
    assert [asked(worker, variant(number))[1] for number in (2, 3, 1)] == ["task-not-allowed", "task-not-allowed", ""]
    AcceptedSchemas(kit).accept(variant(2), "accepted")
    assert asked(worker, variant(2))[1] == ""
    for number in (1, 2):
        AcceptedSchemas(kit).drop(fingerprint(variant(number)))
    assert asked(ProviderWorker("bank", Table(bank, AcceptedSchemas(kit, most=9))), variant(4))[1] == "task-not-allowed"


numbers = st.tuples(st.integers(0, 6), st.sampled_from(["fraud", "salary"]), st.booleans())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.lists(numbers, max_size=25))
def test_never_more_than_so_many_and_never_of_two_tasks(most: int, steps: list[tuple[int, str, bool]]) -> None:
    """Whatever the market asks and the provider drops. `came` counts all that were ever pinned as they came."""
    pins, came, dropped = AcceptedSchemas(most=most), dict[str, str](), set[str]()
    for number, target, drops in steps:
        schema = variant(number, target)
        name = fingerprint(schema)
        if drops:
            if name in pins.accepted():
                pins.drop(name)
                dropped.add(name)
        elif pins.admits(schema) is None:
            assert name not in dropped
            pins.accept(schema, "came")
            came[name] = target
        assert len(came) <= most and len(set(came.values())) <= 1
        assert set(pins.accepted()) == set(came) - dropped


def test_each_schema_tells_one_bit_and_so_many_are_told(tmp_path: Path) -> None:
    """A hostile market halves a column by categories: five schemas come to five answers, and then it hears one word."""
    incomes = pd.Series(range(0, 160, 2))
    path = tmp_path / "bank.csv"
    frame = pd.DataFrame({"income": incomes.astype(str) + " k", "fraud": ["no", "yes"] * 40})
    frame.to_csv(path, index=False)
    worker = ProviderWorker("bank", Table(path, AcceptedSchemas(a_kit(tmp_path / "kit"), most=5)))
    wire = HONEST.model_dump() | {"numeric": (), "hashed": (), "dates": ()}
    heard = []
    for number in range(40):
        categories = tuple(sorted((f"{number} k", f"{number + 400} k")))
        column = {"name": "income", "categories": categories, "other": False, "missing": False}
        schema = SchemaMessage.model_validate({**wire, "categorical": (column,)})
        heard += [asked(worker, schema)[1] for _ in range(2)]
    told = heard[::2]
    assert heard[1::2] == told and "task-not-allowed" not in told[:5]
    assert set(told[5:]) == {"task-not-allowed"}


def test_offers_are_those_of_so_many_consumers_and_of_a_sensible_size(tmp_path: Path) -> None:
    kit = a_kit(tmp_path / "kit")
    pins = AcceptedSchemas(kit)
    pins.accept(variant(0), "given")
    for number in range(1, MOST_OFFERS + 4):
        assert pins.keep_offer(variant(number), Asker(f"consumer {number}"))
    assert [one.consumer for one in pins.offers()] == [f"consumer {n}" for n in range(4, MOST_OFFERS + 4)]
    assert pins.offers()[-1].schema_ == variant(MOST_OFFERS + 3)
    for consumer, classes in (("wide", 1000), ("wider", 1100)):
        names = tuple(f"{number:01000d}" for number in range(classes))
        pins.keep_offer(HONEST.model_copy(update={"classes": names}), Asker(consumer))
    assert pins.offers()[-1].consumer == "wide", "the other is larger than any schema that is taken"
    assert (kit / OFFERS).stat().st_size <= MOST_OFFERS * LARGEST_SCHEMA
    for content in ("{}", " " * (2 * MOST_OFFERS * LARGEST_SCHEMA + 1)):
        (kit / OFFERS).write_text(content)
        with pytest.raises(BazaarError, match=r"schema-offers\.json cannot be read: remove it"):
            pins.offers()


def test_join_and_schema_by_a_file(bank: Path, tmp_path: Path) -> None:
    kit, seen = a_kit(tmp_path / "kit"), tmp_path / "schema.json"
    table = joining.source(bank, None, kit, None, 20)
    assert isinstance(table, Table) and table.schemas == AcceptedSchemas(kit.resolve(), 20)
    with pytest.raises(BazaarError, match="--oracle has none: leave --schemas out"):
        joining.source(None, "math:sqrt", kit, None, 20)
    seen.write_text(variant(7).model_dump_json(indent=1))
    said = CliRunner().invoke(app, ["provider", "schema", str(kit), "--accept", str(seen)])
    assert said.exit_code == 0 and "predicts 'fraud'" in said.output
    assert asked(ProviderWorker("bank", table), variant(7))[0] == "ok", "before it was ever asked"
    said = CliRunner().invoke(app, ["provider", "schema", str(kit), "--accept", "elsewhere.json"])
    assert isinstance(said.exception, BazaarError) and "elsewhere.json holds no schema" in str(said.exception)
    assert asked(ProviderWorker("bank", table), variant(8), consumer="north\x1b[2J")[0] == "ok"
    shown = CliRunner().invoke(app, ["provider", "schema", str(kit)]).output
    short = f"accepted  {fingerprint(variant(7))[:12]} predicts 'fraud', accepted "
    assert short in shown and shown.count("accepted  ") == 2
    AcceptedSchemas(kit).accept(variant(9), "accepted")
    assert "same target by north�[2J " in CliRunner().invoke(app, ["provider", "schema", str(kit)]).output
