"""Folders of files as people have them: German semicolons, carriers, Parquet; nothing is prepared for a market."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def customers(rows: int, seed: int) -> pd.DataFrame:
    """Customers who gave notice or not, with a number of their own, gaps, dates, prices and text labels."""
    rng = np.random.default_rng(seed)
    since = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), unit="D")
    price, age = rng.lognormal(5, 1, rows), rng.integers(18, 80, rows).astype(float)
    city = rng.choice(["Berlin", "München", "Köln"], rows)
    leaves = np.log(price) - 5 + 0.03 * (age - 45) + (city == "Berlin") + rng.normal(0, 0.5, rows) > 0.3
    age[rng.random(rows) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "Kundennummer": [f"K{seed}-{place}" for place in range(rows)],
            "Preis": [german(value) for value in price],
            "Alter": age,
            "Vertrag seit": since.strftime("%d.%m.%Y"),
            "Ort": city,
            "gekündigt": np.where(leaves, "ja", "nein"),
        }
    )


def german(value: float) -> str:
    """
    >>> german(1234.5)
    '1.234,50 €'
    """
    return f"{value:,.2f} €".replace(",", "X").replace(".", ",").replace("X", ".")


def write_customers(folder: Path) -> Path:
    """Semicolons, decimal commas and Windows' letters: an own file, three providers' and one for testing."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, rows) in enumerate({"own": 120, "nord": 60, "süd": 80, "ost": 70, "test": 50}.items()):
        customers(rows, seed).to_csv(folder / f"{name}.csv", sep=";", decimal=",", index=False, encoding="cp1252")
    return folder


def flights(rows: int, seed: int, carrier: str = "") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    delay, distance = np.round(rng.exponential(20, rows) - 8), rng.integers(90, 4000, rows)
    return pd.DataFrame(
        {
            "carrier": carrier or rng.choice(["AA", "UA", "US"], rows),
            "time_hour": pd.Timestamp("2013-01-01") + pd.to_timedelta(rng.integers(0, 8000, rows), unit="h"),
            "dep_delay": delay,
            "distance": distance,
            "late": (delay + rng.normal(0, 8, rows) > 15).astype(int),
        }
    )


CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")


def write_flights(folder: Path, suffix: str = ".csv") -> Path:
    """Sixteen carriers, one of which is called US."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {"own": flights(150, 0)} | {f"carrier_{c}": flights(40, s, c) for s, c in enumerate(CARRIERS, 1)}
    for name, frame in tables.items():
        write = frame.to_parquet if suffix == ".parquet" else frame.to_csv
        write(folder / f"{name}{suffix}", index=False)
    return folder
