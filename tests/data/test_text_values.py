"""Numbers and dates as people write them."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.data.columns import as_days, as_texts
from databazaar.data.text_values import MISSING_WORDS, days_in, days_of, numbers_in

nan = float("nan")


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["1", "2.5", "-3e2"], [1, 2.5, -300]),
        (["$12.30", "$1,234.50", "-$5", "($7.25)", "$ 8"], [12.3, 1234.5, -5, -7.25, 8]),
        (["1.234,50 €", "12,00 €", "3 €", "1.000.000 €"], [1234.5, 12, 3, 1_000_000]),
        (["12 %", "7%", "0.5 %"], [12, 7, 0.5]),
        (["1 234", "12 345 678", "1\u202f234,5", "7,25"], [1234, 12_345_678, 1234.5, 7.25]),
        (["1'234.50", "CHF 12.00", "12 CHF", "EUR 3"], [1234.5, 12, 12, 3]),
        (["1,234", "2,345"], [1234, 2345]),
        (["1,234", "2,34"], [1.234, 2.34]),
        (["0,125", "1,234"], [0.125, 1.234]),
        (["1.234", "2.345.678"], [1234, 2345678]),
        (["1.234", "$2"], [1.234, 2]),
        (["1.234.567", "$1.5", "$2.5"], [nan, 1.5, 2.5]),
        (["US$5", "+6", "7-", "\u22128"], [5, 6, -7, -8]),
        ([".5", ",5 €", "1.", "2 €"], [0.5, nan, 1, 2]),
        (["yes", "no", "n/a"], [1, 0, nan]),
        (["True", "FALSE"], [1, 0]),
        (["ja", "Nein"], [1, 0]),
        (["0", "1"], [0, 1]),
    ],
)
def test_numbers_as_people_write_them(texts: list[str], values: list[float]) -> None:
    np.testing.assert_allclose(numbers_in(texts).values, values, rtol=1e-15)


@pytest.mark.parametrize(
    "text",
    [
        "12 kg",
        "12 34",
        "1,23,4",
        "1.2.3",
        "a1",
        "(5",
        "5)",
        "ABC 12",
        "1,234,56",
        "1_000",
        "$",
        "12.5.2024",
        "€€5",
        "inf",
        "1e999",
        "$1e999",
    ],
)
def test_other_texts_are_no_numbers(text: str) -> None:
    read = numbers_in([text, "1.5", "yes"])
    assert read.unreadable.tolist() == [True, False, True]


def test_a_missing_value_has_many_names() -> None:
    read = numbers_in([*MISSING_WORDS, "N/A", "12"])
    assert np.isnan(read.values[:-1]).all() and not read.unreadable.any()
    days = days_in([*MISSING_WORDS, "2024-01-01"])
    assert np.isnan(days.values[:-1]).all() and not days.unreadable.any()


amounts = st.integers(-(10**9), 10**9)


@settings(max_examples=100)
@given(
    st.lists(amounts, min_size=1, max_size=8), st.sampled_from(["{:,.2f}", "${:,.2f}", "{:,.2f} USD"]), st.booleans()
)
def test_money_comes_back(cents: list[int], form: str, comma: bool) -> None:
    texts = [form.format(value / 100) for value in cents]
    if comma:
        texts = [text.translate(str.maketrans(",.", ".,")) for text in texts]
    np.testing.assert_allclose(numbers_in(texts).values, np.array(cents) / 100, rtol=1e-12)


NEW_YEARS_EVE = (dt.date(2024, 12, 31) - dt.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    "text",
    [
        *("2024-12-31", "2024/12/31", "2024.12.31", "31.12.2024", "31/12/2024", "12/31/2024", "31-12-2024", "31.12.24"),
        *("12/31/24", "31 Dec 2024", "31-Dec-2024", "31. December 2024", "Dec 31, 2024", "december 31 2024"),
    ],
)
@pytest.mark.parametrize(
    ("clock", "part"),
    [
        *(("", 0.0), (" 18:00", 0.75), (" 18:00:00", 0.75), ("T18:00:00Z", 0.75), ("T18:00:00.000+02:00", 0.75)),
        *((" 6:00 PM", 0.75), (", 12:00 am", 0.0), (" 18:00 UTC", 0.75), (" 12:00pm", 0.5)),
    ],
)
def test_dates_as_people_write_them(text: str, clock: str, part: float) -> None:
    assert days_in([text + clock]).values.tolist() == [NEW_YEARS_EVE + part]


@pytest.mark.parametrize(
    "text",
    [
        *("2024-13-01", "31.02.2024", "2024-12", "20241231", "1.2.10", "31.12-2024", "0000-01-01", "Mon 5", "soon"),
        *("2024-01-01 25:00", "2024-01-01 13:00 pm", "2024-01-01 10:61", "24:00", "12:60"),
    ],
)
def test_other_texts_are_no_dates(text: str) -> None:
    assert days_in([text, "2024-01-01"]).unreadable.tolist() == [True, False]


@pytest.mark.parametrize(
    ("texts", "day_first", "first_is_day"),
    [
        (["03/04/2024"], None, False),
        (["03.04.2024"], None, True),
        (["03-04-2024"], None, True),
        (["03/04/2024"], True, True),
        (["03.04.2024"], False, False),
        (["03/04/2024", "31/01/2024"], False, True),
        (["03/04/2024", "01/31/2024"], True, False),
        (["03/04/24", "31/01/24"], None, True),
    ],
)
def test_the_column_shows_which_number_is_the_day(texts: list[str], day_first: bool | None, first_is_day: bool) -> None:
    read = days_in(texts, day_first)
    expected = dt.date(2024, 4, 3) if first_is_day else dt.date(2024, 3, 4)
    assert read.values[0] == (expected - dt.date(1970, 1, 1)).days
    assert read.day_first == first_is_day and not read.unreadable.any()


def test_a_column_that_contradicts_itself_is_read_by_the_most() -> None:
    assert days_in(["31/01/2024", "30/01/2024", "01/31/2024"]).unreadable.tolist() == [False, False, True]


def test_times_are_parts_of_a_day() -> None:
    assert days_in(["06:00", "18:00:00", "6:00 pm"]).values.tolist() == [0.25, 0.75, 0.75]


@settings(max_examples=60)
@given(st.lists(st.datetimes(), min_size=1, max_size=6), st.sampled_from(["%Y-%m-%d %H:%M:%S", "%d %b %Y %H:%M:%S"]))
def test_every_way_to_hold_a_date_gives_the_same_days(moments: list[dt.datetime], form: str) -> None:
    moments = [moment.replace(microsecond=0, year=max(moment.year, 1000), day=1, fold=0) for moment in moments]
    expected = [(moment - dt.datetime(1970, 1, 1)) / dt.timedelta(days=1) for moment in moments]
    held = pd.Series(moments, dtype=object)
    for column in (held, held.astype("datetime64[us]"), held.astype("datetime64[us]").dt.tz_localize("UTC")):
        np.testing.assert_allclose(days_of(column), expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(days_in([moment.strftime(form) for moment in moments]).values, expected, atol=1e-9)


def test_dates_of_python_and_gaps() -> None:
    held = pd.Series([dt.date(1970, 1, 2), None], dtype=object)
    assert as_days(held, "t.csv", day_first=True).tolist() == pytest.approx([1.0, nan], nan_ok=True)
    missing = pd.Series([pd.NaT, pd.Timestamp("1970-01-02 12:00", tz="Europe/Zurich")])
    assert days_of(missing).tolist() == pytest.approx([nan, 1.5], nan_ok=True)
    assert np.isnan(as_days(pd.Series([nan, nan]), "t.csv", day_first=True)).all()


def test_an_accent_is_the_same_in_both_of_unicodes_ways() -> None:
    written = pd.Series(["K\u00f6ln", "Ko\u0308ln", "Bonn"])
    assert as_texts(written, "shop.csv").texts == ["K\u00f6ln", "Bonn"]
