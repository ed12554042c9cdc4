"""Columns of free text: found in a table, and read by the hashes of their words and pairs of words."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import BazaarError
from databazaar.config.discover import unused_columns
from databazaar.data import words
from databazaar.data.encoders import TextColumn
from databazaar.data.profiler import column_uses
from databazaar.data.rowwise import encode_rowwise
from databazaar.data.schema import Schema
from databazaar.data.tree_features import TreeFeatures
from databazaar.data.words import GramBuckets, bucket_of, grams_of, words_of
from databazaar.models import GRAM_BUCKETS

WORDS = ["fine", "awful", "screen", "the", "battery", "Straße", "ćevapi", "it's", "n°5", "中文", "10", "😀"]
texts = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
ROWS = 60


def notes(rows: int = ROWS, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 12))) + f" row {row}" for row in range(rows)]


def frame(note: list[Any], **more: Any) -> pd.DataFrame:
    return pd.DataFrame({"note": note, **more, "sold": ["no", "yes"] * (len(note) // 2)})


def fitted(table: pd.DataFrame, **settings: Any) -> Schema:
    return Schema.fit(table, target="sold", task="classification", **settings)


def text_of(schema: Schema) -> TextColumn:
    (found,) = schema.texts
    return found


SCHEMA = fitted(frame(notes()))


@pytest.mark.parametrize(
    ("column", "is_text"),
    [
        (notes(), True),
        ([None if row % 3 else text for row, text in enumerate(notes())], True),
        ([f"{row}这个产品真的非常好用" for row in range(ROWS)], True),
        ([f"customer-{row}" for row in range(ROWS)], False),
        ([f"Ann Miller{row}" for row in range(ROWS)], False),
        ([f"9f{row:02}-ab12-c4d7-{row}" for row in range(ROWS)], False),
        ([f"https://shop.example/a-long-page/{row}" for row in range(ROWS)], False),
        ([f"2024-05-01 10:{row:02}" for row in range(ROWS)], False),
        ([f"$ {row},000.50" for row in range(ROWS)], False),
        (["never was married", "married and living apart", "widowed since long ago"] * 20, False),
    ],
)
def test_text_is_many_different_cells_of_several_words(column: list[Any], is_text: bool) -> None:
    table = frame(column, amount=range(ROWS))
    assert [text.name for text in fitted(table).texts] == ["note"] * is_text
    assert not is_text or unused_columns(table, "sold") == {}


def test_market_toml_says_what_is_text() -> None:
    short = frame([f"Ann Miller{row}" for row in range(ROWS)])
    assert fitted(short, text=["note"]).columns == ("note",) == fitted(frame(notes()), categorical=["note"]).columns
    assert fitted(frame(notes()), categorical=["note"]).texts == ()
    assert fitted(frame(list(range(ROWS))), text=["note"]).texts != ()
    for said, sentence in (
        ({"text": ["nota"]}, "`text` names the column 'nota', which is not there; did you mean 'note'?"),
        ({"text": ["sold"]}, "`text` names the target"),
        ({"text": ["note"], "features": ["amount"]}, "`text` names the column 'note', which is not among `features`"),
        ({"text": ["note"], "categorical": ["note"]}, "`text` and `categorical` both name the column 'note'"),
    ):
        with pytest.raises(BazaarError) as refused:
            fitted(frame(notes(), amount=range(ROWS)), **said)
        assert sentence in str(refused.value)


@given(note=texts, others=st.lists(texts, min_size=1, max_size=4))
def test_a_text_has_the_same_features_in_any_table(note: str, others: list[str]) -> None:
    """And whatever the rows are that the schema was learned from, for the buckets of grams."""
    alone, among = (pd.DataFrame({"note": rows}) for rows in ([note], [*others, note]))
    for encoding in (SCHEMA, TreeFeatures(SCHEMA, with_grams=True)):
        one, many = (encoding.encode_features(table, "a table") for table in (alone, among))
        np.testing.assert_array_equal(one[0], many[-1])
    ours, theirs = (TreeFeatures(one, with_grams=True) for one in (SCHEMA, fitted(frame(notes(seed=7)))))
    grams = [one.encode_features(alone, "a table")[0][-one.grams :] for one in (ours, theirs)]
    fewer = min(map(len, grams))
    np.testing.assert_array_equal(grams[0][:fewer], grams[1][:fewer])


@given(note=texts)
def test_features_are_what_they_are_said_to_be(note: str) -> None:
    """Against a slow reading of each word."""
    column, table = text_of(SCHEMA), pd.DataFrame({"note": [note, "x"]})
    spoken = words_of(note)
    expected = np.zeros(column.buckets)
    places = {bucket_of(word, column.buckets) for word in spoken}
    expected[list(places)] = 1 / max(1, len(places)) ** 0.5
    np.testing.assert_allclose(SCHEMA.encode_features(table, "a table")[0], expected, rtol=1e-6)
    assert places == set() or np.isclose((expected**2).sum(), 1)
    pairs = [f"{one} {other}" for one, other in pairwise(spoken)]
    grams = {bucket_of(f"note\0{gram}", GRAM_BUCKETS) for gram in [*spoken, *pairs]}
    features = TreeFeatures(SCHEMA, with_grams=True)
    row = features.encode_features(table, "a table")[0].astype(float)
    slots = row[len(features.names) :]
    if not spoken:
        assert np.isnan(slots).all()
        return
    assert row[: len(features.names)].tolist() == [len(spoken), *(bucket in grams for bucket in column.common)]
    assert set(slots[~np.isnan(slots)]) == set(list(GramBuckets("note").of(note))[: len(slots)]) <= grams


@given(text=st.text(max_size=40))
def test_any_unicode_is_words(text: str) -> None:
    assert words_of(text) == words_of(text.strip())
    assert len(grams_of(text)) <= max(0, 2 * len(words_of(text)) - 1)
    assert all(0 <= bucket < GRAM_BUCKETS for bucket in GramBuckets("a").of(text))


def test_a_table_of_many_grams_takes_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = GramBuckets("note").of("one two three four")
    monkeypatch.setattr(words, "REMEMBERED", 2)
    bounded = GramBuckets("note")
    assert bounded.of("one two three four") == usual and len(bounded) <= 2


def test_capitals_and_ways_to_write_a_letter_make_no_difference() -> None:
    composed, apart = "Café ﬁne", "cafe\u0301 FINE"
    assert words_of(composed) == words_of(apart) == ["café", "fine"]
    assert GramBuckets("note").of("fine") != GramBuckets("title").of("fine")


def test_missing_texts_have_no_words() -> None:
    schema = fitted(frame([None if row % 3 == 0 else text for row, text in enumerate(notes())]))
    table = pd.DataFrame({"note": [None, "fine screen", "  "]})
    x = schema.encode_features(table, "a table")
    assert schema.feature_names[-1] == "note (missing)" and x[:, -1].tolist() == [1, 0, 1]
    assert not x[[0, 2], :-1].any() and x[1, :-1].any()
    trees = TreeFeatures(schema, with_grams=True).encode_features(table, "a table")
    assert np.isnan(trees[[0, 2]]).all() and not np.isnan(trees[1]).all()
    rowwise = encode_rowwise(schema, table.assign(sold="no"))[0]
    np.testing.assert_array_equal(rowwise, x)
    assert not SCHEMA.encode_features(table, "a table")[0].any()


def test_a_schema_holds_no_words() -> None:
    """Only numbers of buckets that are common in the consumer's rows."""
    message = json.dumps(SCHEMA.to_dict())
    assert not [word for word in WORDS if word in message.replace("note", "") and not word.isdigit()]
    assert Schema.from_dict(json.loads(message)) == SCHEMA
    rare = [*notes(200), "unheardof wording nobody else has written"]
    common = set(text_of(fitted(frame([*rare, "x"] * 1))).common)
    assert not common & set(GramBuckets("note").of(rare[-1])) and common
    assert "texts" not in fitted(frame([1.0, 2.0])).to_dict()


def test_grams_have_room_for_most_rows_of_the_holdout() -> None:
    features = TreeFeatures(SCHEMA, with_grams=True)
    sizes = [len(GramBuckets("note").of(text)) for text in notes()]
    assert features.grams == text_of(SCHEMA).slots <= max(sizes) and np.mean(np.array(sizes) <= features.grams) >= 0.95
    long = pd.DataFrame({"note": [" ".join(f"w{place}" for place in range(5000))]})
    x = features.encode_features(long, "a table")[0]
    assert x.shape == (features.width,) and not np.isnan(x).any() and x[0] == 5000
    assert TreeFeatures(SCHEMA).width == features.width - features.grams


def test_check_says_how_texts_are_read(tmp_path: Path) -> None:
    (use,) = column_uses(SCHEMA, frame(notes()), None)
    assert use.understood == "text" and "words in a usual row" in use.why
