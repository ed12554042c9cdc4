"""Users' tables: what is read, how it becomes numbers, and the sentence for each thing that is wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from databazaar.data.encoders import LIMIT
from databazaar.data.tables import Schema, read_table
from databazaar.errors import BazaarError

Change = Callable[[pd.DataFrame], pd.DataFrame]
finite = st.floats(allow_nan=False, allow_infinity=False)
NUMBER = {"name": "a", "mean": 0.0, "scale": 1.0, "median": 0.0, "missing": False}
NAMES = {"name": "a", "categories": ["b"], "other": False, "missing": False}
TEXT = {"name": "note", "buckets": 8, "slots": 4, "common": [3, 200_000], "missing": False}
DATE = {
    **{"name": "when", "parts": ["days"], "mean": 0.0, "scale": 1.0, "median": 0.0},
    **{"missing": False, "day_first": True},
}
word = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)


@st.composite
def frames(draw: st.DrawFn, task: str = "classification") -> pd.DataFrame:
    rows = draw(st.integers(2, 12))

    def column(values: st.SearchStrategy[Any], count: int = rows) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    labels = task == "classification"
    return pd.DataFrame(
        {
            "amount": column(finite),
            "count": column(st.integers(-(2**63), 2**63 - 1)),
            "flag": column(st.booleans()),
            "channel": column(st.sampled_from(["web", "shop", "phone", "ä"])),
            "y": [0, 1, *column(st.integers(-3, 3), rows - 2)] if labels else column(finite),
        }
    )


def holdout() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "amount": [10.0, 20.0, 30.0, 40.0],
            "hour": [1, 5, 9, 13],
            "new": [True, False, True, True],
            "channel": ["web", "shop", "web", "phone"],
            "fraud": [0, 1, 1, 0],
        }
    )


def fitted(**changes: Any) -> Schema:
    return Schema.fit(holdout(), **{"target": "fraud", "task": "classification", **changes})


def sentence_of(call: Callable[..., object], *args: object, **kwargs: object) -> str:
    with pytest.raises(BazaarError) as caught:
        call(*args, **kwargs)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet", "T.CSV"])
def test_every_file_type_gives_the_same_table(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        holdout().to_parquet(path)
    else:
        holdout().to_csv(path, index=False, sep="\t" if name.endswith("tsv") else ",")
    pd.testing.assert_frame_equal(read_table(path).frame, holdout())


def test_a_byte_order_mark_is_not_part_of_a_column_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8-sig")
    assert list(read_table(path).frame.columns) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("t.csv", None, ["does not exist", "correct the path"]),
        ("t.xlsx", b"x", ["'.xlsx' is not known", "save the table as .csv"]),
        ("t.csv", b"", ["is empty", "write a header line"]),
        ("t.csv", b"\n\n", ["is empty", "write a header line"]),
        ("t.csv", b"a,b\n", ["'a', 'b'", "no rows", "add data"]),
        ("t.csv", b"a,b,a\n1,2,3\n", ["column 'a'", "more than once", "rename"]),
        ("t.csv", b"a,b\n1,2\n3,4,5\n", ["line 3", "correct it"]),
        ("t.csv", b"a,b\n1,2,3\n4,5,6\n", ["cannot be read", "correct it"]),
        ("t.csv", b"a,b\n\0\0\0,2\n", ["zero bytes", "correct it"]),
        ("t.csv", b"\xff\xfea", ["cannot be read", "correct it"]),
        ("t.csv.gz", b"not gzip", ["cannot be read", "correct it"]),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n" * 50, mtime=0)[:-12], ["cannot be read", "correct it"]),
        ("t.parquet", b"not parquet", ["cannot be read", "correct it"]),
        ("t.parquet", b"", ["cannot be read", "correct it"]),
    ],
)
def test_a_bad_file_gets_one_sentence(tmp_path: Path, name: str, content: bytes | None, expected: list[str]) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    text = sentence_of(read_table, path)
    for part in (str(path), *expected):
        assert part in text


def test_repeated_columns_in_parquet_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "t.parquet")
    assert "column 'a' appears more than once" in sentence_of(read_table, tmp_path / "t.parquet")


def test_encoding_of_a_small_table() -> None:
    schema = fitted()
    x, y = schema.encode(holdout(), "holdout.csv")
    assert schema.feature_names == ("amount", "hour", "new", "channel=phone", "channel=shop", "channel=web")
    assert (x.dtype, y.dtype, x.shape) == (np.dtype(np.float32), np.dtype(np.int64), (4, schema.width))
    np.testing.assert_allclose(x[:, :3].mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(x[:, :3].std(axis=0), 1.0, atol=1e-6)
    assert x[:, 3:].tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert y.tolist() == [0, 1, 1, 0]


def test_columns_are_found_by_name_and_unseen_categories_are_zeros() -> None:
    bank = holdout()[["fraud", "channel", "new", "hour", "amount"]].assign(channel="carrier pigeon")
    x, _ = fitted().encode(bank, "bank.csv")
    assert not x[:, 3:].any()
    np.testing.assert_array_equal(x[:, :3], fitted().encode(holdout(), "holdout.csv")[0][:, :3])


def test_a_constant_column_has_scale_one() -> None:
    schema = Schema.fit(holdout().assign(hour=0.1), target="fraud", task="classification")
    assert {column.name: column.scale for column in schema.numeric}["hour"] == 1.0


def test_numbers_named_categorical_are_categories_of_any_type() -> None:
    schema = fitted(categorical=["hour"])
    as_floats, _ = schema.encode(holdout().astype({"hour": float}), "bank.csv")
    as_texts, _ = schema.encode(holdout().astype({"hour": str}), "bank.csv")
    as_integers, _ = schema.encode(holdout(), "bank.csv")
    assert "hour=13" in schema.feature_names
    np.testing.assert_array_equal(as_floats, as_integers)
    np.testing.assert_array_equal(as_texts, as_integers)


def test_pandas_types_of_other_libraries_are_numbers_and_categories() -> None:
    frame = holdout().astype({"hour": "Int64", "new": "boolean", "channel": "category"})
    frame["amount"] = pd.Series([Decimal("10"), Decimal("20"), Decimal("30"), Decimal("40")])
    assert Schema.fit(frame, target="fraud", task="classification") == fitted()


def test_regression_standardises_the_target() -> None:
    schema = fitted(target="amount", task="regression")
    _, y = schema.encode(holdout(), "holdout.csv")
    assert (schema.outputs, y.dtype) == (1, np.dtype(np.float32))
    np.testing.assert_allclose(y * schema.target_scale + schema.target_mean, holdout()["amount"], rtol=1e-6)


def test_labels_become_places_in_sorted_order() -> None:
    frame = holdout().assign(fraud=[7, -2, 30, 7])
    schema = Schema.fit(frame, target="fraud", task="classification")
    assert (schema.classes, schema.outputs) == ((-2, 7, 30), 3)
    assert schema.encode(frame, "holdout.csv")[1].tolist() == [1, 0, 2, 1]


@settings(max_examples=50)
@given(frames(), st.randoms(use_true_random=False))
def test_the_order_of_the_holdouts_rows_does_not_matter(frame: pd.DataFrame, random: Random) -> None:
    order = list(range(len(frame)))
    random.shuffle(order)
    shuffled = frame.iloc[order].reset_index(drop=True)
    fit: dict[str, Any] = {"target": "y", "task": "classification"}
    assert Schema.fit(shuffled, **fit).to_dict() == Schema.fit(frame, **fit).to_dict()


@settings(max_examples=50)
@given(frames("regression"), frames("regression"))
def test_no_finite_table_encodes_to_anything_but_bounded_numbers(own: pd.DataFrame, other: pd.DataFrame) -> None:
    schema = Schema.fit(own, target="y", task="regression")
    for frame in (own, other):
        x, y = schema.encode(frame, "bank.csv")
        for values in (x, y):
            assert np.isfinite(values).all()
            assert np.abs(values).max() <= LIMIT


@settings(max_examples=50)
@given(frames(), frames())
def test_a_providers_table_leaves_no_trace(own: pd.DataFrame, other: pd.DataFrame) -> None:
    schema = Schema.fit(own, target="y", task="classification")
    before, (x_before, y_before) = schema.to_dict(), schema.encode(own, "holdout.csv")
    known = other.assign(y=[schema.classes[0]] * len(other))
    schema.encode(known, "bank.csv")
    x, y = schema.encode(own, "holdout.csv")
    assert schema.to_dict() == before
    np.testing.assert_array_equal(x, x_before)
    np.testing.assert_array_equal(y, y_before)
    with pytest.raises(ValidationError, match="frozen"):
        schema.classes = ()


@settings(max_examples=50)
@given(st.sampled_from(["classification", "regression"]), st.data())
def test_a_schema_survives_json(task: str, data: st.DataObject) -> None:
    schema = Schema.fit(data.draw(frames(task)), target="y", task=task)  # type: ignore[arg-type]
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict(), allow_nan=False))) == schema


@given(st.lists(word, min_size=2, max_size=8))
def test_any_text_can_be_a_category(words: list[str]) -> None:
    frame = pd.DataFrame({"word": pd.Series(words, dtype="str"), "n": 1, "y": [0, 1, *[0] * (len(words) - 2)]})
    schema = Schema.fit(frame, target="y", task="classification", categorical=["word"])
    x, _ = schema.encode(frame, "holdout.csv")
    assert (x[:, 1:].sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("changes", "field", "remedy"),
    [
        ({"extra": 1}, "extra", "Schema.to_dict"),
        ({"target": 3}, "target", "Schema.to_dict"),
        ({"task": "ranking"}, "task", "Schema.to_dict"),
        ({"numeric": [{**NUMBER, "scale": 0.0}]}, "numeric.0.scale", "greater than 0"),
        ({"numeric": [{**NUMBER, "mean": float("nan")}]}, "numeric.0.mean", "finite"),
        ({"numeric": [{**NUMBER, "mean": "0"}]}, "numeric.0.mean", "Schema.to_dict"),
        ({"numeric": [{**NUMBER, "median": float("inf")}]}, "numeric.0.median", "finite"),
        ({"numeric": [{**NUMBER, "missing": 1}]}, "numeric.0.missing", "Schema.to_dict"),
        ({"numeric": [{**NUMBER, "name": "fraud"}]}, "twice", "Schema.to_dict"),
        ({"left_out": [{"name": "hour", "why": "empty"}]}, "twice", "Schema.to_dict"),
        ({"left_out": [{"name": "a", "why": "dull"}]}, "left_out.0.why", "Schema.to_dict"),
        ({"categorical": [{**NAMES, "categories": ["b", "a"]}]}, "categorical", "sorted"),
        ({"categorical": [{**NAMES, "categories": []}]}, "categorical.0.categories", "Schema.to_dict"),
        ({"hashed": [{"name": "a", "buckets": 0, "missing": False}]}, "hashed.0.buckets", "Schema.to_dict"),
        ({"hashed": [{"name": "a", "buckets": 10**6, "missing": False}]}, "hashed.0.buckets", "Schema.to_dict"),
        (
            {"hashed": [{"name": f"a{place}", "buckets": 1000, "missing": False} for place in range(101)]},
            "features, more than 100000",
            "Schema.to_dict",
        ),
        ({"texts": [{**TEXT, "slots": 0}]}, "texts.0.slots", "Schema.to_dict"),
        ({"texts": [{**TEXT, "slots": 10**6}]}, "texts.0.slots", "Schema.to_dict"),
        ({"texts": [{**TEXT, "buckets": 10**6}]}, "texts.0.buckets", "Schema.to_dict"),
        ({"texts": [{**TEXT, "common": [2**18]}]}, "texts.0.common.0", "Schema.to_dict"),
        ({"texts": [{**TEXT, "common": [-1]}]}, "texts.0.common.0", "Schema.to_dict"),
        ({"texts": [{**TEXT, "common": list(range(65))}]}, "texts.0.common", "Schema.to_dict"),
        ({"texts": [{**TEXT, "common": [7, 7]}]}, "texts: the common grams of 'note'", "distinct"),
        ({"texts": [{**TEXT, "words": ["a"]}]}, "texts.0.words", "Schema.to_dict"),
        ({"texts": [{**TEXT, "name": "fraud"}]}, "twice", "Schema.to_dict"),
        (
            {"texts": [{**TEXT, "name": f"a{place}", "slots": 1024, "buckets": 1} for place in range(98)]},
            "texts have more than 100000 slots",
            "Schema.to_dict",
        ),
        ({"dates": [{**DATE, "parts": ["century"]}]}, "dates.0.parts.0", "Schema.to_dict"),
        ({"dates": [{**DATE, "parts": ["day", "day"]}]}, "dates: the parts of 'when'", "distinct"),
        ({"dates": [{**DATE, "median": float("nan")}]}, "dates.0.median", "Schema.to_dict"),
        ({"numeric": [], "categorical": []}, "name no column", "Schema.to_dict"),
        ({"classes": [1, 0]}, "classes", "sorted"),
        ({"classes": ["b", "a"]}, "classes", "sorted"),
        ({"classes": [0, "a"]}, "classes", "of one type"),
        ({"classes": ["", "a"]}, "classes.0", "Schema.to_dict"),
        ({"classes": [0]}, "classes", "does not fit"),
        ({"classes": []}, "classes", "does not fit"),
        ({"classes": [0.0, 1.0]}, "classes.0", "Schema.to_dict"),
        ({"classes": [0, 10**30]}, "classes.1", "Schema.to_dict"),
        ({"task": "regression"}, "classes", "does not fit"),
        ({"target_scale": -1.0}, "target_scale", "greater than 0"),
    ],
)
def test_a_schema_from_another_party_is_checked(changes: dict[str, object], field: str, remedy: str) -> None:
    text = sentence_of(Schema.from_dict, {**fitted().to_dict(), **changes}, "message")
    assert text.startswith("message: ")
    assert field in text and remedy in text


@pytest.mark.parametrize("message", [None, [], "x", {}])
def test_a_schema_that_is_no_schema_is_refused(message: object) -> None:
    assert "Schema.to_dict" in sentence_of(Schema.from_dict, message)


@pytest.mark.parametrize(
    ("change", "arguments", "field", "remedy"),
    [
        (lambda f: f, {"target": "fruad"}, "'fruad'", "did you mean 'fraud'?"),
        (lambda f: f, {"target": "zzz"}, "'zzz'", "the columns are 'amount', 'hour'"),
        (lambda f: f, {"features": ["amuont"]}, "'amuont'", "did you mean 'amount'?"),
        (lambda f: f, {"features": ["amount", "amount"]}, "'amount' twice", "name it once"),
        (lambda f: f, {"features": ["fraud"]}, "target column 'fraud'", "take it out"),
        (lambda f: f, {"features": []}, "no feature column", "add columns"),
        (lambda f: f, {"features": ["hour"], "categorical": ["amount"]}, "'amount'", "add it there"),
        (lambda f: f, {"categorical": ["chanel"]}, "'chanel'", "did you mean 'channel'?"),
        (lambda f: f[["fraud"]], {}, "target 'fraud'", "add columns"),
        (lambda f: f.iloc[:0], {}, "no rows", "add data"),
        (lambda f: f.assign(fraud=1), {}, "'fraud' has the single class 1", "add hold-out rows"),
        (
            lambda f: f.assign(fraud=["0", "0.5", "1", "1"]),
            {},
            "'fraud' has 0.5 in data row 2",
            "names or whole numbers",
        ),
        (lambda f: f.assign(fraud=pd.Timestamp(0)), {}, "'fraud' holds datetime64", "a name or a whole number"),
        (lambda f: f.assign(amount=["", None, " ", ""])[["amount", "fraud"]], {}, "'amount' is empty", "add columns"),
        (
            lambda f: f.assign(amount=["dear", "cheap", "free", "1"]),
            {"target": "amount", "task": "regression"},
            "'amount' holds the text 'dear' in data row 1 and a regression's target must be numbers",
            "write a number",
        ),
        (
            lambda f: f.assign(fraud=[0, 1, 0.5, 1]),
            {},
            "'fraud' has 0.5 in data row 3",
            'task = "regression"',
        ),
        (lambda f: f.assign(fraud=[0, 1, None, 1]), {}, "'fraud' has no value in data row 3", "drop the row"),
        (
            lambda f: f.assign(amount=[1.0, np.inf, 1.0, 1.0]),
            {},
            "'amount' is not a finite number in data row 2",
            "correct it",
        ),
        (
            lambda f: f.assign(amount=[1, 10**400, 1, 1]),
            {},
            "'amount' is not a finite number in data row 2",
            "correct it",
        ),
        (
            lambda f: f.assign(amount=["1", "2", "3O", "4"]),
            {},
            "'amount' holds the text '3O' in data row 3",
            "list the column as `categorical`",
        ),
        (
            lambda f: f.assign(amount=["2024-01-02", "2024-01-03", "2024-13-01", "2024-01-04"]),
            {},
            "'amount' holds the text '2024-13-01' in data row 3 and the rest is dates",
            "list it as `missing`",
        ),
        (lambda f: f.assign(amount=[[1], [2], [3], [4]]), {}, "'amount' holds object values", "leave the column out"),
        (lambda f: f.assign(amount=1j), {}, "'amount' holds complex128", "leave the column out"),
        (lambda f: f.rename(columns={"hour": 5}), {}, "name 5 is not text", "rename"),
        (lambda f: f.rename(columns={"hour": "amount"}), {}, "'amount' appears more than once", "rename"),
    ],
)
def test_a_bad_holdout_gets_one_sentence(change: Change, arguments: dict[str, Any], field: str, remedy: str) -> None:
    asked = {"target": "fraud", "task": "classification", "where": "mine.csv", **arguments}
    text = sentence_of(Schema.fit, change(holdout()), **asked)
    assert text.startswith("mine.csv: ")
    assert field in text and remedy in text


def test_an_identifier_is_left_out_unless_it_is_asked_for() -> None:
    rows = 1001
    frame = pd.DataFrame({"id": [f"t{max(place, 20)}" for place in range(rows)], "n": 1.0, "y": np.arange(rows) % 2})
    fit: dict[str, Any] = {"target": "y", "task": "classification", "where": "mine.csv"}
    schema = Schema.fit(frame, **fit)
    assert [(column.name, column.why) for column in schema.left_out] == [("id", "identifier")]
    assert schema.columns == ("n",)
    assert Schema.fit(frame, features=["id"], **fit).width == Schema.fit(frame, categorical=["id"], **fit).width - 1
    text = sentence_of(Schema.fit, frame[["id", "y"]], **fit)
    assert "mine.csv: no feature column tells anything ('id' is different in nearly every row)" in text


def test_too_many_classes_are_a_number_to_predict() -> None:
    frame = pd.DataFrame({"x": np.arange(1001.0), "y": np.arange(1001)})
    text = sentence_of(Schema.fit, frame, target="y", task="classification", where="mine.csv")
    assert "mine.csv: column 'y' has 1001 classes, more than 1000" in text and 'set task = "regression"' in text


def test_numbers_written_as_text_are_numbers() -> None:
    written = holdout().assign(hour=["1", "5", "9", "13"])
    for plain, text in zip(fitted().encode(holdout(), "a.csv"), fitted().encode(written, "b.csv"), strict=True):
        np.testing.assert_array_equal(plain, text)


@pytest.mark.parametrize(
    ("change", "field", "remedy"),
    [
        (lambda f: f.drop(columns="hour"), "feature column 'hour'", "add or rename"),
        (
            lambda f: f.rename(columns={"amount": "Amount"}),
            "'amount' of the hold-out is missing; did you mean 'Amount'?",
            "rename",
        ),
        (lambda f: f.drop(columns="fraud"), "target column 'fraud'", "add or rename"),
        (
            lambda f: f.assign(hour=["1", "noon", "2", "3"]),
            "'hour' holds the text 'noon' in data row 2 and the hold-out has numbers",
            "write a number",
        ),
        (
            lambda f: f.assign(channel=[1, 2, 3, 4]),
            "'channel' holds numbers (1, for one)",
            "same categories",
        ),
        (
            lambda f: f.assign(fraud=[0, 1, 2, 0]),
            "'fraud' has the class 2 in data row 3",
            "add the class to the hold-out",
        ),
        (
            lambda f: f.assign(fraud="perhaps"),
            "'fraud' has the class perhaps in data row 1, which the hold-out does not have (its classes: 0, 1)",
            "correct the label",
        ),
        (
            lambda f: f.assign(amount=[1.0, -np.inf, 1.0, 1.0]),
            "'amount' is not a finite number in data row 2",
            "drop the row",
        ),
        (lambda f: f.assign(fraud=[0, 1, None, 1]), "'fraud' has no value in data row 3", "drop the row"),
        (lambda f: f.assign(fraud=pd.Timestamp(0)), "'fraud' holds datetime64", "write the same classes"),
        (lambda f: f.iloc[:0], "no rows", "add data"),
        (
            lambda f: f.assign(hour=pd.Timestamp("2024-01-01")),
            "values and the hold-out has numbers",
            "leave the column out",
        ),
    ],
)
def test_a_bad_provider_table_gets_one_sentence(change: Change, field: str, remedy: str) -> None:
    text = sentence_of(fitted().encode, change(holdout()), "bank.csv")
    assert text.startswith("bank.csv: ")
    assert field in text and remedy in text


def test_other_columns_are_ignored() -> None:
    bank = holdout().assign(colour="red")
    x, _ = fitted(features=["amount", "channel"]).encode(bank, "bank.csv")
    assert x.shape == (4, 4)
    np.testing.assert_array_equal(fitted().encode(bank, "bank.csv")[0], fitted().encode(holdout(), "mine.csv")[0])
