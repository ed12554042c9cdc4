"""Profiles: measured the obvious way, row by row, they are the same; and no table breaks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar.data.columns import holds_written_dates, holds_written_numbers, is_identifier
from databazaar.data.profile import comparable, fingerprints, floats, names
from databazaar.data.profile_record import ColumnUse, MarketProfile, Understood
from databazaar.data.profiler import Profiler

KINDS: dict[str, Understood] = {"x": "number", "c": "category", "d": "date"}
COLUMNS = [ColumnUse(name=name, understood=kind) for name, kind in KINDS.items()]

rows = st.tuples(
    st.one_of(st.integers(0, 3), st.none()),
    st.sampled_from(["a", "b", "A", None]),
    st.sampled_from(["2024-01-01", "2024-01-02", None]),
    st.sampled_from(["yes", "no"]),
)


def frame_of(given_rows: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(given_rows, columns=["x", "c", "d", "y"])


def profiled(own: list[Any], theirs: list[Any]) -> MarketProfile:
    return profile_of(frame_of(own), frame_of(theirs))


def profile_of(own: pd.DataFrame, theirs: pd.DataFrame, columns: Sequence[ColumnUse] = COLUMNS) -> MarketProfile:
    profiler = Profiler(own, "y", "classification", columns)
    tables = {"own": (profiler.holdout,), "providers": (profiler.table(theirs),)}
    return MarketProfile(target="y", task="classification", columns=profiler.columns, **tables)


@settings(max_examples=50)
@given(st.lists(rows, min_size=1, max_size=12), st.lists(rows, min_size=1, max_size=12))
def test_against_the_obvious_way(own: list[Any], theirs: list[Any]) -> None:
    profile = profiled(own, theirs)
    north = profile.providers[0]
    cells = [value for row in theirs for value in row]
    assert north.rows == len(theirs)
    assert north.missing == pytest.approx(sum(value is None for value in cells) / len(cells))
    assert north.copied == sum(row in theirs for row in own)
    assert north.repeated == len(theirs) - len(set(theirs))
    known = {row[1] for row in own}
    categories = [row[1] for row in theirs if row[1] is not None]
    assert north.unseen == pytest.approx(sum(c not in known for c in categories) / max(len(categories), 1))
    outside = values = 0
    for place in (0, 2):
        span = [row[place] for row in own if row[place] is not None]
        there = [row[place] for row in theirs if row[place] is not None]
        values += len(there)
        outside += sum(not min(span) <= value <= max(span) for value in there) if span else 0
    assert north.outside == pytest.approx(outside / max(values, 1))
    assert MarketProfile.model_validate_json(profile.model_dump_json()) == profile


@settings(max_examples=30)
@given(st.lists(rows, min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(own: list[Any], random: Any) -> None:
    mixed = list(own)
    random.shuffle(mixed)
    one, other = profiled(own, own).providers[0], profiled(own, mixed).providers[0]
    assert other.model_dump(exclude={"shift", "balance"}) == one.model_dump(exclude={"shift", "balance"})
    assert other.shift == pytest.approx(one.shift) == 0 and other.balance == pytest.approx(one.balance)
    assert one.copied == len(own) and one.unseen == one.outside == 0


anything = st.one_of(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=6, max_size=6),
    st.lists(st.integers(-(10**30), 10**30), min_size=6, max_size=6),
    st.lists(st.one_of(st.text(max_size=8), st.none()), min_size=6, max_size=6),
    st.lists(st.one_of(st.booleans(), st.none()), min_size=6, max_size=6),
    st.lists(st.one_of(st.integers(0, 5), st.text(max_size=3)), min_size=6, max_size=6),
    st.lists(st.datetimes(), min_size=6, max_size=6),
    st.lists(st.lists(st.integers(), max_size=2), min_size=6, max_size=6),
)


@settings(max_examples=60)
@given(
    anything.filter(lambda values: not isinstance(values[0], list)),
    anything,
    st.sampled_from(["number", "category", "hashed", "date"]),
)
def test_no_column_breaks_a_profile(own: list[Any], theirs: list[Any], kind: Understood) -> None:
    first, other = (
        pd.DataFrame({"x": pd.Series(values, dtype=object if mixed(values) else None), "y": [0, 1] * 3})
        for values in (own, theirs)
    )
    profile = profile_of(first, other, [ColumnUse(name="x", understood=kind)])
    assert MarketProfile.model_validate_json(profile.model_dump_json()) == profile


def mixed(values: list[Any]) -> bool:
    return len({type(value) for value in values}) > 1 or isinstance(values[0], list | int)


def test_the_same_rows_whoever_wrote_them() -> None:
    """As text with a currency and a point, and as numbers, categories and dates of pandas."""
    written = pd.DataFrame({"x": ["$1,200.50", "$3"], "c": ["web", "3"], "d": ["2024-02-01", "01.03.2024"]})
    typed = pd.DataFrame({"x": [1200.5, 3.0], "c": ["web", "3"], "d": pd.to_datetime(["2024-02-01", "2024-03-01"])})
    typed["c"] = typed["c"].astype("category")
    one, other = (fingerprints(comparable(frame, KINDS)).tolist() for frame in (written, typed))
    assert one == other and one[0] != one[1]
    assert names(pd.Series([3.0, 4.0])).tolist() == names(pd.Series(["3", "4"])).tolist()


def test_what_a_column_cannot_be_is_missing() -> None:
    assert np.isnan(floats(pd.Series([[1], [2]]), "number")).all()
    assert np.isnan(floats(pd.Series(pd.to_datetime(["2024-01-01"])), "number")).all()
    assert names(pd.Series([[1], [2]])).tolist() == [None, None]
    assert np.isnan(floats(pd.Series([np.inf, 1.0]), "number")).tolist() == [True, False]


def test_labels_are_counted_by_the_hold_outs_names() -> None:
    own = frame_of([(1, "a", None, "yes"), (2, "b", None, "no"), (2, "b", None, "no")])
    theirs = own.assign(y=["Yes", "NO", "yes "])
    profile = profile_of(own, theirs)
    assert profile.classes == ("no", "yes")
    assert profile.providers[0].balance == pytest.approx({"no": 1 / 3, "yes": 2 / 3})


def test_a_strange_label_is_said_with_its_twin() -> None:
    own = frame_of([(1, "a", None, "no show"), (2, "b", None, "came")] * 10)
    warnings = profile_of(own, own.assign(y=["No-Show", "ill"] * 10))
    (said,) = [line for line in warnings.providers[0].warnings if "labels" in line]
    assert "labels that your rows do not have, 'No-Show', 'ill'" in said and "'No-Show' (yours: 'no show')" in said
    warnings = profile_of(own, own.assign(y=["ill", "came"] * 10))
    assert any("correct them, or add such rows" in line for line in warnings.providers[0].warnings)


def test_warnings_that_tables_share_are_remarked_once() -> None:
    table = profiled([(1, "a", None, "yes")], [(1, "a", None, "yes")]).providers[0]
    tables = [table.model_copy(update={"id": id, "warnings": said}) for id, said in (("n", ("a", "b")), ("s", ("b",)))]
    profile = MarketProfile(target="y", task="classification", columns=(), own=(), providers=tuple(tables))
    assert profile.remarks == [(("n",), ("a",)), (("n", "s"), ("b",))] and profile.classes == ()


def test_signs_of_columns() -> None:
    many = [f"2024-{1 + i // 28:02}-{1 + i % 28:02}" for i in range(60)]
    assert holds_written_dates(pd.Series(many)) and not is_identifier(pd.Series(many))
    assert not is_identifier(pd.Series([f"{i},50 €" for i in range(60)]))
    assert is_identifier(pd.Series(range(60), name="order_id")) and not is_identifier(pd.Series(range(60), name="paid"))
    assert not is_identifier(pd.Series(["a", "b"])) and not holds_written_numbers(pd.Series(["yes", "no"]))
    assert not holds_written_numbers(pd.Series([1, 2])) and not holds_written_dates(pd.Series([], dtype=str))
