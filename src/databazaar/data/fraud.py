"""The paper's story as data: a bank with a new card and too few examples buys from nine other banks.

All transactions are synthetic and follow from the seed. The consumer's fraud follows the *new card* pattern:
large amounts, far away, at night, soon after the last payment, at risky merchants, online. Two of the banks
know the fraud of *another product* instead: small test payments, near home, by day. Banks also differ in the
share of their labels that are wrong, and in size. `BANKS` says who sells what; the tables do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from databazaar.errors import BazaarError

TARGET = "fraud"
HOLDOUT_ROWS = 600
TEST_ROWS = 2000
_CHANNELS = ("chip", "contactless", "online", "phone")
_COUNTRY_GROUPS = ("home", "neighbour", "overseas")


@dataclass(frozen=True)
class BankKind:
    """How a bank's data comes about; `relevance` is the share of rows that follow the new card's pattern."""

    id: str
    rows: int
    relevance: float
    wrong_labels: float
    note: str


BANKS = (
    BankKind("harbour-bank", 620, 1.0, 0.0, "clean, same product"),
    BankKind("northern-trust-savings", 480, 1.0, 0.02, "clean, same product"),
    BankKind("meadow-credit-union", 350, 0.95, 0.0, "clean, nearly the same product"),
    BankKind("riverside-bank", 700, 1.0, 0.2, "same product, 20 % of the labels wrong"),
    BankKind("old-town-savings", 520, 0.9, 0.2, "nearly the same product, 20 % of the labels wrong"),
    BankKind("alpine-business-bank", 900, 0.0, 0.0, "clean, another product's fraud"),
    BankKind("lakeland-mortgage", 760, 0.2, 0.0, "clean, mostly another product's fraud"),
    BankKind("metro-express-bank", 660, 1.0, 0.5, "same product, half of the labels wrong"),
    BankKind("coastal-direct", 560, 1.0, 0.9, "same product, 90 % of the labels wrong"),
)


@dataclass(frozen=True)
class Bank(BankKind):
    """One provider's transactions and what is true about them."""

    frame: pd.DataFrame


@dataclass(frozen=True)
class FraudBanks:
    """The consumer's hold-out, a test set of the same kind that the market never sees, and the providers."""

    holdout: pd.DataFrame
    test: pd.DataFrame
    banks: list[Bank]


def fraud_banks(seed: int = 0) -> FraudBanks:
    """The whole story for a seed; each table has its own stream, so none depends on another's size.

    >>> story = fraud_banks()
    >>> len(story.holdout), len(story.test), [bank.id for bank in story.banks][:2]
    (600, 2000, ['harbour-bank', 'northern-trust-savings'])
    """
    streams = [np.random.default_rng([seed, place]) for place in range(len(BANKS) + 2)]
    return FraudBanks(
        holdout=_transactions(streams[0], HOLDOUT_ROWS),
        test=_transactions(streams[1], TEST_ROWS),
        banks=[
            Bank(**vars(kind), frame=_transactions(stream, kind.rows, kind.relevance, 0.15, kind.wrong_labels))
            for kind, stream in zip(BANKS, streams[2:], strict=True)
        ],
    )


def write_fraud_files(folder: Path, seed: int = 0) -> Path:
    """Write holdout.csv, test.csv, one CSV a bank, and a market.toml that names them; gives its path."""
    story = fraud_banks(seed)
    tables = {"holdout.csv": story.holdout, "test.csv": story.test}
    tables |= {f"{bank.id}.csv": bank.frame for bank in story.banks}
    for name in ("market.toml", *tables):
        if (folder / name).exists():
            raise BazaarError(f"{folder / name}: the file exists already: remove it or choose another folder")
    market = folder / "market.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in tables.items():
            frame.to_csv(folder / name, index=False)
        market.write_text(_market_toml(story, seed), encoding="utf-8")
    except OSError as reason:
        raise BazaarError(f"{folder} cannot be written ({reason.strerror}): choose another folder") from None
    return market


def _transactions(
    rng: np.random.Generator, rows: int, relevance: float = 1.0, region: float = 0.0, wrong_labels: float = 0.0
) -> pd.DataFrame:
    """Transactions whose columns shift a little by `region`, labelled by one pattern or the other, or wrongly."""
    shift = rng.normal(0.0, region, 4) if region else np.zeros(4)
    size, far, pause, risk = (rng.normal(mean, 1.0, rows) for mean in shift)
    hour = (14.0 + 5.5 * rng.normal(size=rows)) % 24.0
    age = rng.normal(size=rows)
    channel = rng.choice(len(_CHANNELS), rows, p=[0.35, 0.3, 0.25, 0.1])
    country = rng.choice(len(_COUNTRY_GROUPS), rows, p=[0.7, 0.2, 0.1])
    night = ((hour < 6.0) | (hour > 22.0)).astype(float)
    online = (channel == 2).astype(float)
    abroad = (country == 2).astype(float)

    new_card = 1.5 * size + 1.2 * far - 1.3 * pause + 1.2 * risk - 0.5 * age
    new_card += 1.5 * night + 1.2 * online + 1.0 * abroad - 2.5
    other_product = -1.6 * size - 1.2 * far + 0.6 * pause + 0.4 * risk + 0.9 * age
    other_product += -1.0 * night - 0.8 * online + 0.3 * abroad - 1.4
    follows = rng.random(rows) < relevance
    logit = np.where(follows, new_card, other_product)
    fraud = rng.random(rows) < 1.0 / (1.0 + np.exp(-2.0 * logit))
    wrong = rng.random(rows) < wrong_labels
    return pd.DataFrame(
        {
            "amount": np.round(60.0 * np.exp(0.5 * size), 2),
            "hour": np.floor(hour).astype(np.int64),
            "distance_km": np.round(25.0 * np.exp(0.5 * far), 1),
            "seconds_since_last": np.round(7200.0 * np.exp(0.5 * pause)).astype(np.int64),
            "account_age_days": np.round(1500.0 * np.exp(0.4 * age)).astype(np.int64),
            "merchant_risk": np.round(100.0 / (1.0 + np.exp(-risk)), 1),
            "channel": [_CHANNELS[place] for place in channel],
            "country_group": [_COUNTRY_GROUPS[place] for place in country],
            TARGET: (fraud ^ wrong).astype(np.int64),
        }
    )


def _market_toml(story: FraudBanks, seed: int) -> str:
    providers = "\n".join(
        f'[[providers]]\nid = "{bank.id}"\nfile = "{bank.id}.csv"  # {bank.note}\n' for bank in story.banks
    )
    return f"""\
# A bank with a new credit card buys a fraud model from nine other banks. Run it: bazaar run market.toml
# All data is synthetic. test.csv is for you: nothing in the market reads it.

[market]
name = "fraud"
budget = 1000              # credits; every access costs one
per_round = 5
seed = {seed}

[consumer]
train = 0.5                # half of your own rows are where the market starts from

[data]
holdout = "holdout.csv"    # your own rows; they never reach a bank
target = "{TARGET}"
task = "classification"

[model]
kind = "mlp"
hidden = [16]              # the size of its hidden layer

{providers}"""
