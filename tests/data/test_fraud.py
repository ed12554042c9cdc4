"""The demo's banks: deterministic, learnable, and worth choosing between."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from databazaar.config.market_data import load_data
from databazaar.config.market_file import load_market
from databazaar.data.fraud import TARGET, FraudBanks, fraud_banks, write_fraud_files
from databazaar.data.tables import Schema
from databazaar.errors import BazaarError


def accuracy(story: FraudBanks, chosen: list[str]) -> float:
    schema = Schema.fit(story.holdout, target=TARGET, task="classification")
    rows = pd.concat([bank.frame for bank in story.banks if bank.id in chosen])
    model = LogisticRegression(max_iter=500).fit(*schema.encode(rows, "banks"))
    return float(model.score(*schema.encode(story.test, "test")))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_good_banks_beat_all_banks_and_bad_ones_mislead(seed: int) -> None:
    story = fraud_banks(seed)
    good = [bank.id for bank in story.banks if bank.wrong_labels < 0.1 and bank.relevance > 0.9]
    majority = max(story.test[TARGET].mean(), 1 - story.test[TARGET].mean())
    assert len(good) == 3
    assert accuracy(story, good) > accuracy(story, [bank.id for bank in story.banks]) + 0.04
    assert accuracy(story, good) > majority + 0.08
    for bank in story.banks:
        if bank.wrong_labels >= 0.5 or bank.relevance < 0.5:
            assert accuracy(story, [bank.id]) < majority, bank.id


@pytest.mark.parametrize("seed", range(5))
def test_the_holdout_has_enough_fraud_to_be_informative(seed: int) -> None:
    story = fraud_banks(seed)
    assert (len(story.holdout), len(story.test)) == (600, 2000)
    for frame in (story.holdout, story.test):
        assert 0.15 <= frame[TARGET].mean() <= 0.30


def test_banks_differ_in_size_and_share_the_columns() -> None:
    story = fraud_banks()
    sizes = [len(bank.frame) for bank in story.banks]
    assert len(set(sizes)) == len(story.banks) == 9
    assert min(sizes) >= 300 and max(sizes) <= 900
    for bank in story.banks:
        assert list(bank.frame.columns) == list(story.holdout.columns)
        assert bank.note


def test_the_seed_decides_everything() -> None:
    first, again, other = fraud_banks(3), fraud_banks(3), fraud_banks(4)
    pd.testing.assert_frame_equal(first.holdout, again.holdout)
    for one, same, different in zip(first.banks, again.banks, other.banks, strict=True):
        pd.testing.assert_frame_equal(one.frame, same.frame)
        assert not one.frame.equals(different.frame)


def test_the_example_files_are_a_complete_market(tmp_path: Path) -> None:
    market = load_market(write_fraud_files(tmp_path / "example", seed=5))
    data = load_data(market, tmp_path / "example")
    story = fraud_banks(5)
    assert list(data.providers) == [bank.id for bank in story.banks]
    schema = Schema.fit(story.holdout, target=TARGET, task="classification")
    assert data.schema == schema
    for table, bank in zip(data.providers.values(), story.banks, strict=True):
        x, y = schema.encode(bank.frame, bank.id)
        np.testing.assert_array_equal(table.x, x)
        np.testing.assert_array_equal(table.y, y)


def test_existing_files_are_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "old-town-savings.csv"
    mine.write_text("precious")
    with pytest.raises(BazaarError, match="exists already: remove it"):
        write_fraud_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [mine.name]
    assert mine.read_text() == "precious"
