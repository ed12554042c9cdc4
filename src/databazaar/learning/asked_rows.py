"""How many of a provider's rows one ask goes over, counted from settings alone.

`oracle` is a section [oracle] of market.toml or an oracle message, as a mapping: kind, batch_size, steps, epochs. For a
learner that trains on rows it is what `rows_asked` gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from databazaar.errors import BazaarError

LEAST_ROWS = 32
"""At a hub and in a federation an answer is computed from at least so many rows of its provider: an update that is
computed from one row is that row, in other numbers. A run from one's own files has no such bound."""


ROWS = "rows"
"""The kind of an ask that is answered by rows themselves."""


def rows_asked(rows: int, passes: int, outputs: int = 1) -> dict[str, Any]:
    """What a learner asks for that trains on rows: at most so many, which a round goes through so often, once for each
    of several classes.

    >>> [ask_cost(rows_asked(rows=500, passes=22, outputs=outputs), 300) for outputs in (1, 2, 3)]
    [6600, 6600, 19800]
    """
    return {"kind": ROWS, "rows": rows, "passes": passes * (outputs if outputs > 2 else 1)}


def distinct_rows(oracle: Mapping[str, Any], table: int) -> int:
    """How many different rows have an influence on one answer from a table of so many.

    A full gradient is over all rows, a stochastic gradient over one batch. Local SGD goes through the rows in a new
    order every epoch and repeats none within one: its answer depends on steps · batch_size rows, and on all of them
    once the first epoch is complete. How large each batch is makes no difference to that count.

    >>> distinct_rows({"kind": "stochastic-gradient", "batch_size": 1}, 300)
    1
    >>> distinct_rows({"kind": "local-sgd", "batch_size": 1, "steps": 64, "epochs": 1}, 300)
    64
    >>> distinct_rows({"kind": "local-sgd", "batch_size": 8, "steps": None, "epochs": 1}, 300)
    300
    """
    if oracle["kind"] == ROWS:
        return min(int(oracle["rows"]), table)
    if oracle["kind"] == "full-gradient" or (oracle["kind"] == "local-sgd" and oracle["steps"] is None):
        return table
    batches = oracle["steps"] if oracle["kind"] == "local-sgd" else 1
    return int(min(batches * oracle["batch_size"], table))


def visited_rows(oracle: Mapping[str, Any], table: int | None) -> int | None:
    """How many rows pass through the model in one ask, each as often as it does; None where that is not known before,
    because the size of the table is not. Of rows themselves it is how many are given.

    >>> visited_rows({"kind": "local-sgd", "batch_size": 32, "steps": 64, "epochs": 3}, 300)
    900
    """
    if oracle["kind"] == ROWS:
        return int(oracle["rows"]) if table is None else distinct_rows(oracle, table)
    if oracle["kind"] == "full-gradient":
        return table
    epochs = oracle["epochs"] if oracle["kind"] == "local-sgd" else 1
    steps = oracle["steps"] if oracle["kind"] == "local-sgd" else 1
    most = None if steps is None else steps * oracle["batch_size"]
    bounds = [bound for bound in (most, None if table is None else epochs * table) if bound is not None]
    return min(bounds, default=None)


def ask_cost(oracle: Mapping[str, Any], table: int | None) -> int | None:
    """What one ask costs, in row visits: a batch counts as full, and a step as at least `LEAST_ROWS` of them, because
    it takes that long however few rows it has. None where it is not known before.

    >>> ask_cost({"kind": "local-sgd", "batch_size": 1, "steps": 10**6, "epochs": 10**6}, 300)
    32000000
    """
    if oracle["kind"] == ROWS:
        return None if table is None else int(oracle["passes"]) * distinct_rows(oracle, table)
    if oracle["kind"] != "local-sgd":
        return visited_rows(oracle, table)
    steps, batch = oracle["steps"], oracle["batch_size"]
    if table is not None:
        epochs = oracle["epochs"] * -(-table // batch)
        steps = epochs if steps is None else min(steps, epochs)
    return None if steps is None else int(steps * max(batch, LEAST_ROWS))


def refuse_few_rows(oracle: Mapping[str, Any]) -> None:
    """Refuses settings by which an ask goes over fewer than `LEAST_ROWS` rows of any table.

    >>> refuse_few_rows({"kind": "stochastic-gradient", "batch_size": 1})
    Traceback (most recent call last):
    databazaar.errors.BazaarError: oracle: an ask goes over 1 of a provider's rows, and it must go over at least 32: \
raise oracle.batch_size to 32, or use oracle.kind = "full-gradient"
    """
    rows = distinct_rows(oracle, LEAST_ROWS)
    if rows >= LEAST_ROWS:
        return
    if oracle["kind"] == ROWS:
        place, remedy = "learner", f"raise learner.rows to {LEAST_ROWS}"
    else:
        place = "oracle"
        remedy = f'raise oracle.batch_size to {LEAST_ROWS}, or use oracle.kind = "full-gradient"'
    raise BazaarError(
        f"{place}: an ask goes over {rows} of a provider's rows, and it must go over at least {LEAST_ROWS}: {remedy}",
        place="learner.rows" if place == "learner" else "",
    )


def refuse_small_table(rows: int, whose: str) -> None:
    """Refuses a table from which no ask could be answered."""
    if rows < LEAST_ROWS:
        raise BazaarError(
            f"{whose} has {rows} rows to learn from, and an ask must go over at least {LEAST_ROWS}: add rows, or leave "
            "it out"
        )
