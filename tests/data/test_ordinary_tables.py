"""Tables that nobody prepared: what the encoding makes of gaps, names, dates and labels."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from databazaar.data.encoders import LIMIT
from databazaar.data.holdout import BUCKETS, MOST_CATEGORIES
from databazaar.data.tables import Schema, labelled, read_table
from databazaar.data.words import bucket_of
from databazaar.errors import BazaarError

CUSTOMERS = """\
Kunde;Umsatz;Kanal;Vertrag;Beginn;PLZ;Aktiv;Leer;Gekündigt
A-1;1.234,50 €;Laden;neu;31.12.2023;01067;ja;;ja
A-2;99,00 €;Netz ;;05.01.2024;80331;nein;;nein
A-3;;Laden;alt;;01067;ja;;nein
A-4;12,30 €;Netz;alt;17.03.2024;80331;nein;;ja
A-5;7,00 €;Laden;neu;02.02.2024;01067;ja;;
"""


def fit(frame: pd.DataFrame, target: str = "y", **changes: Any) -> Schema:
    return Schema.fit(frame, **{"target": target, "task": "classification", **changes})


def column(frame: pd.DataFrame, schema: Schema, name: str) -> list[float]:
    x = schema.encode_features(frame, "t.csv")
    return [round(float(value), 4) for value in x[:, schema.feature_names.index(name)]]


def test_a_german_spreadsheet_goes_in_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "kunden.csv"
    path.write_bytes(CUSTOMERS.encode("cp1252"))
    frame = read_table(path).labelled("Gekündigt", "classification").frame
    assert len(frame) == 4
    schema = fit(frame, "Gekündigt")
    assert schema.class_names == ("ja", "nein")
    assert [(column.name, column.why) for column in schema.left_out] == [("Leer", "empty")]
    assert schema.feature_names == (
        *("Umsatz", "Umsatz (missing)", "Aktiv"),
        *("Kunde=A-1", "Kunde=A-2", "Kunde=A-3", "Kunde=A-4"),
        *("Kanal=Laden", "Kanal=Netz", "Vertrag=alt", "Vertrag=neu", "Vertrag (missing)", "PLZ=01067", "PLZ=80331"),
        *("Beginn (days)", "Beginn (time of year, sine)", "Beginn (time of year, cosine)"),
        *("Beginn (time of week, sine)", "Beginn (time of week, cosine)", "Beginn (missing)"),
    )
    _, y = schema.encode(frame, "kunden.csv")
    assert y.tolist() == [0, 1, 1, 0]
    assert column(frame, schema, "Umsatz (missing)") == [0, 0, 1, 0]
    assert column(frame, schema, "Aktiv") == [1, -1, 1, -1]
    assert column(frame, schema, "Kanal=Netz") == [0, 1, 0, 1]
    assert column(frame, schema, "Vertrag (missing)") == [0, 1, 0, 0]
    assert column(frame, schema, "PLZ=01067") == [1, 0, 1, 0]
    assert column(frame, schema, "Beginn (missing)") == [0, 0, 1, 0]
    assert column(frame, schema, "Beginn (time of year, sine)")[2] == 0
    other = frame.assign(Umsatz=["$1,234.50", "99", "", "12.30"], Beginn=["2023-12-31", "2024-01-05", "", "2024-03-17"])
    other = other.assign(Gekündigt=[True, False, False, True], Aktiv=["yes", "no", "yes", "no"])
    for own, theirs in zip(schema.encode(frame, "kunden.csv"), schema.encode(other, "other.csv"), strict=True):
        np.testing.assert_array_equal(own, theirs)


def test_numbers_and_names_are_encoded_as_scikit_learn_does() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(5, 2, 300), "b": rng.integers(0, 9, 300).astype(float)})
    frame["c"] = rng.choice(["x", "y", "z"], 300)
    frame["y"] = [0, 1] * 150
    frame.loc[rng.choice(300, 60, replace=False), "a"] = np.nan
    schema = fit(frame)
    x = schema.encode_features(frame, "t.csv")
    whole = frame["a"].notna()
    scaler = StandardScaler().fit(frame.loc[whole, ["a"]])
    filled = SimpleImputer(strategy="median", add_indicator=True).fit_transform(frame[["a"]])
    np.testing.assert_allclose(x[:, [0]], scaler.transform(pd.DataFrame({"a": filled[:, 0]})), atol=1e-5)
    np.testing.assert_array_equal(x[:, 1], filled[:, 1])
    peer = ColumnTransformer([("b", make_pipeline(StandardScaler()), ["b"]), ("c", OneHotEncoder(), ["c"])])
    np.testing.assert_allclose(x[:, 2:], peer.fit_transform(frame), atol=1e-5)


def test_a_provider_may_miss_what_the_consumer_never_does() -> None:
    own = pd.DataFrame({"a": [1.0, 2.0, 9.0], "c": ["x", "y", "y"], "d": ["2024-01-01", "2024-01-05", "2024-02-01"]})
    own["y"] = [0, 1, 0]
    schema = fit(own)
    gaps = own.assign(a=[np.nan, 2.0, "n/a"], c=["", "y", "  "], d=["-", "2024-01-05", ""])
    x = schema.encode_features(gaps, "bank.csv")
    assert x.shape == (3, schema.width) and np.isfinite(x).all()
    np.testing.assert_array_equal(x[0], x[2])
    assert x[0, 0] == schema.encode_features(own, "t.csv")[1, 0], "the median"
    assert not x[0, 1:3].any(), "no category"
    empty = own.assign(a=np.nan, c=None, d=np.nan)
    np.testing.assert_array_equal(schema.encode_features(empty, "bank.csv"), np.tile(x[0], (3, 1)))


def test_rare_categories_are_grouped_and_unseen_ones_with_them() -> None:
    frame = pd.DataFrame({"c": ["a"] * 500 + ["b"] * 490 + ["c"] * 9 + ["d"], "y": [0, 1] * 500})
    schema = fit(frame)
    assert schema.feature_names == ("c=a", "c=b", "c (other)")
    bank = pd.DataFrame({"c": ["a", " b ", "c", "d", "B", "new", None], "y": 0})
    assert schema.encode_features(bank, "bank.csv").tolist() == [
        *([1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0])
    ]
    assert fit(frame[frame["c"].isin(["a", "b"])]).feature_names == ("c=a", "c=b")


@pytest.mark.parametrize("names", ["many", "rare", "long"])
def test_many_rare_or_long_names_are_hashed(names: str) -> None:
    texts = {
        "many": [f"t{place % (MOST_CATEGORIES + 1)}" for place in range(2000)],
        "rare": [f"t{place % 120}" for place in range(1000)],
        "long": ["x" * (place % 2 + 200) for place in range(100)],
    }[names]
    frame = pd.DataFrame({"c": [None, *texts], "y": [1, *(0 for _ in texts)]})
    schema = fit(frame)
    x = schema.encode_features(frame, "t.csv")
    assert (schema.width, schema.feature_names[0]) == (BUCKETS + 1, "c (bucket 0)")
    assert (x.sum(axis=1) == 1).all() and x[0, BUCKETS] == 1
    assert x[1:].argmax(axis=1).tolist() == [bucket_of(text, BUCKETS) for text in texts]
    new = pd.DataFrame({"c": ["never seen", " never seen"]})
    assert schema.encode_features(new, "new.csv").argmax(axis=1).tolist() == [bucket_of("never seen", BUCKETS)] * 2


def test_dates_are_days_and_places_in_year_week_and_day() -> None:
    when = pd.Series(["2024-01-01 00:00", "2024-01-02 06:00", "2024-07-01 18:00"])
    frame = pd.DataFrame({"when": when, "same": "2024-01-01", "clock": ["00:00", "06:00", "12:00"], "y": [0, 1, 0]})
    schema = fit(frame)
    assert [(column.name, column.why) for column in schema.left_out] == [("same", "constant")]
    assert column(frame, schema, "when (time of week, cosine)") == [1, round(np.cos(2 * np.pi / 7), 4), 1]
    assert column(frame, schema, "when (time of day, sine)") == [0, 1, -1]
    assert column(frame, schema, "clock (time of day, cosine)") == [1, 0, -1]
    assert column(frame, schema, "when (time of year, cosine)")[0] == 1
    days = column(frame, schema, "when (days)")
    assert np.mean(days) == pytest.approx(0, abs=1e-4) and np.std(days) == pytest.approx(1, abs=1e-4)
    held = frame.assign(when=pd.to_datetime(when).dt.tz_localize("America/New_York"))
    np.testing.assert_array_equal(schema.encode_features(held, "a.parquet"), schema.encode_features(frame, "b.csv"))
    assert fit(held, features=["when"]).dates == fit(frame, features=["when"]).dates
    with pytest.raises(BazaarError, match="'when' holds int64 values and the hold-out has dates"):
        schema.encode_features(frame.assign(when=[1, 2, 3]), "bank.csv")
    with pytest.raises(BazaarError, match="'when' holds the text 'soon' in data row 2 and the hold-out has dates"):
        schema.encode_features(frame.assign(when=["2024-01-01", "soon", ""]), "bank.csv")


def test_the_order_of_day_and_month_is_the_holdouts_where_a_file_does_not_show_it() -> None:
    own = pd.DataFrame({"d": ["25/12/2024", "03/04/2024"], "y": [0, 1]})
    theirs = own.assign(d=["12/25/2024", "04/03/2024"])
    schema = fit(own)
    np.testing.assert_array_equal(schema.encode_features(own, "a"), schema.encode_features(theirs, "b"))
    np.testing.assert_array_equal(schema.encode_features(own, "a")[1:], schema.encode_features(own[1:], "c"))
    doubtful = own.assign(d=["01/02/2024", "03/04/2024"])
    assert fit(doubtful, day_first=True).dates[0].day_first
    assert not fit(doubtful).dates[0].day_first


def test_durations_are_numbers_of_days() -> None:
    frame = pd.DataFrame({"took": pd.to_timedelta([1, 2, 6], unit="h"), "y": [0, 1, 0]})
    assert fit(frame).numeric[0].median == pytest.approx(2 / 24)


@pytest.mark.parametrize(
    ("own", "theirs", "names"),
    [
        (["yes", "no", "no"], ["Yes", " no", "NO"], ("no", "yes")),
        (["yes", "no", "no"], [True, False, False], ("no", "yes")),
        (["yes", "no", "no"], [1, 0, 0], ("no", "yes")),
        ([True, False, False], ["true", "no", "0"], ("False", "True")),
        ([1, -1, -1], ["1", "-1.0", "-1"], ("-1", "1")),
        ([1, 0, 0], ["yes", "no", "no"], ("0", "1")),
        (["1", "0", "0"], [1.0, 0.0, 0.0], ("0", "1")),
        (["setosa", "Virginica", "Virginica"], ["setosa", "virginica", "Virginica "], ("Virginica", "setosa")),
        (["b", "B", "B"], ["b", "B", "B"], ("B", "b")),
        (["02", "01", "01"], ["02", "01", "01"], ("01", "02")),
    ],
)
def test_labels_keep_their_names(own: list[Any], theirs: list[Any], names: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"n": [1.0, 2.0, 3.0], "y": own})
    schema = fit(frame)
    assert schema.class_names == names and schema.outputs == 2
    expected = schema.encode_target(frame, "t.csv")
    assert expected.tolist() == [names.index(str(label)) for label in own]
    np.testing.assert_array_equal(schema.encode_target(frame.assign(y=theirs), "bank.csv"), expected)
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_more_than_two_classes_have_no_yes_and_no() -> None:
    frame = pd.DataFrame({"n": [1.0, 2.0, 3.0], "y": [0, 1, 2]})
    with pytest.raises(BazaarError, match="the class yes in data row 2"):
        fit(frame).encode_target(frame.assign(y=["0", "yes", "2"]), "bank.csv")


def test_a_regression_takes_money_and_gives_it_back() -> None:
    frame = pd.DataFrame({"n": [1.0, 2.0, 3.0, 4.0], "y": ["$1,000.00", "$2,000.00", "$4,500.50", "n/a"]})
    known = labelled(frame, "y", "regression", "t.csv")
    schema = fit(known, task="regression")
    np.testing.assert_allclose(schema.in_units(schema.encode_target(known, "t.csv")), [1000, 2000, 4500.5], rtol=1e-6)
    assert (schema.class_names, schema.outputs) == ((), 1)
    with pytest.raises(BazaarError, match="'y' has no value in data row 4"):
        schema.encode(frame, "t.csv")
    with pytest.raises(BazaarError, match="'y' is empty in every row"):
        labelled(frame[3:], "y", "regression", "t.csv")
    with pytest.raises(BazaarError, match="the target column 'z' is missing"):
        labelled(frame, "z", "regression", "t.csv")


def test_features_need_no_target() -> None:
    frame = pd.DataFrame({"n": [1.0, 2.0, 3.0], "y": ["a", "b", "a"]})
    schema = fit(frame)
    np.testing.assert_array_equal(schema.encode_features(frame[["n"]], "new.csv"), schema.encode(frame, "t.csv")[0])
    with pytest.raises(BazaarError, match=r"new.csv: the target column 'y' of the hold-out is missing"):
        schema.encode(frame[["n"]], "new.csv")


def test_a_table_may_be_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = pd.DataFrame({f"c{place}": [f"{place}a", f"{place}b"] for place in range(30)} | {"y": [0, 1]})
    assert fit(wide).width == 60
    monkeypatch.setattr("databazaar.data.schema.MAX_WIDTH", 59)
    with pytest.raises(BazaarError, match="make 60 features, more than 59: list the columns"):
        fit(wide)


def test_names_among_numbers_are_names() -> None:
    tickets = [f"A/5 {place}" if place % 4 == 0 else f"{place}113" for place in range(1, 41)]
    frame = pd.DataFrame({"ticket": tickets, "y": [0, 1] * 20})
    assert fit(frame).columns == ("ticket",) and len(fit(frame).categorical) == 1


def test_dates_and_pandas_categories_can_be_listed_as_names() -> None:
    frame = pd.DataFrame(
        {"d": pd.to_datetime(["2024-01-01", "2024-01-02"]), "c": pd.Categorical([1, None]), "y": [0, 1]}
    )
    schema = fit(frame, categorical=["d"])
    assert schema.feature_names == ("d=2024-01-01 00:00:00", "d=2024-01-02 00:00:00", "c=1", "c (missing)")


gap = st.none()
values: dict[str, st.SearchStrategy[Any]] = {
    "number": gap | st.floats(allow_nan=False, allow_infinity=False),
    "money": gap | st.floats(-1e6, 1e6).map("${:,.2f}".format),
    "name": gap | st.sampled_from(["a", "b ", "B", "ä", "(other)", "(missing)", "1", ""]),
    "anything": gap | st.text(st.characters(codec="utf-8"), max_size=5),
    "date": gap | st.dates().map(lambda day: day.strftime("%d.%m.%Y").zfill(10)),
    "moment": gap | st.datetimes(),
    "flag": gap | st.booleans(),
    "code": gap | st.integers(0, 99).map("{:04d}".format),
}


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    rows = draw(st.integers(3, 12))
    columns = {
        name: pd.Series(draw(st.lists(kind, min_size=rows, max_size=rows)), dtype=float if name == "number" else object)
        for name, kind in values.items()
    }
    pairs: list[list[Any]] = [["no", "yes"], [0, 1], [-1, 1], [True, False], ["x", "Y"]]
    chosen = draw(st.sampled_from(pairs))
    return pd.DataFrame({**columns, "y": pd.Series([chosen[place % 2] for place in range(rows)])})


def accepted(frame: pd.DataFrame) -> Schema | None:
    try:
        return fit(frame)
    except BazaarError as error:
        assert "list the column as `categorical`" in str(error) or "no feature column tells" in str(error), error
        return None


@settings(max_examples=80, deadline=None)
@given(tables(), st.randoms(use_true_random=False))
def test_what_fit_accepts_is_encoded(frame: pd.DataFrame, random: Random) -> None:
    schema = accepted(frame)
    if schema is None:
        return
    x, y = schema.encode(frame, "t.csv")
    assert x.shape == (len(frame), schema.width) and x.dtype == np.float32
    assert np.isfinite(x).all() and np.abs(x).max() <= LIMIT
    assert set(y.tolist()) == {0, 1}
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict(), allow_nan=False)))
    assert again == schema and again.feature_names == schema.feature_names
    order = random.sample(range(len(frame)), len(frame))
    names = random.sample(list(frame.columns), frame.shape[1])
    moved = frame.iloc[order][names]
    np.testing.assert_array_equal(again.encode(moved, "t.csv")[0], x[order])
    np.testing.assert_array_equal(again.encode(moved, "t.csv")[1], y[order])
    assert fit(frame.iloc[order].reset_index(drop=True)).to_dict() == schema.to_dict()
