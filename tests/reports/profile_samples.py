"""Profiles made up for the tests of pages."""

from __future__ import annotations

from collections.abc import Sequence

from databazaar.data.profile_record import ColumnUse, MarketProfile, TableProfile


def sample_profile(names: Sequence[str] = ("north", "south"), task: str = "classification") -> MarketProfile:
    balance = {"no": 0.75, "yes": 0.25} if task == "classification" else {}
    own = TableProfile(id="hold-out", file="own.csv", rows=1200, missing=0.125, balance=balance)
    providers = [
        own.model_copy(
            update={
                "id": name,
                "unseen": 0.5,
                "shift": 1.5,
                "copied": 7,
                "warnings": (f"{name} is odd: ask.", "shared"),
            }
        )
        for name in names
    ]
    columns = (
        ColumnUse(name="amount", understood="number", example="$12.30"),
        ColumnUse(name="id", understood="left out", why="different in every row", example="<b>K-1</b>"),
    )
    return MarketProfile.model_validate(
        {"target": "churn", "task": task, "columns": columns, "own": (own,), "providers": providers}
    )
