"""All that is reserved or settled in a round at once: what `apply` makes of them one by one, or nothing at all."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from databazaar import LedgerError
from databazaar.ledger import Book, Entry
from databazaar.ledger.chain import Kind

SETTLING: tuple[Kind, ...] = ("post", "void")
PRICES = {"a": 1, "b": 3, "c": 7}


def applied(book: Book, kinds: Sequence[Kind], whom: Sequence[str], amounts: Sequence[int]) -> bool:
    """Whether all were taken, one by one."""
    with contextlib.suppress(LedgerError):
        for draw, (kind, who, amount) in enumerate(zip(kinds, whom, amounts, strict=False)):
            book.apply(Entry(1, kind, book.rounds, draw, who, amount, {}))
        return True
    return False


@given(
    budget=st.integers(0, 40),
    whom=st.lists(st.sampled_from(["a", "b", "c", "c"]), min_size=1, max_size=3),
    off=st.sampled_from([(0, 0, 0), (0, 0, 0), (0, 1, 0), (-1, 0, 0)]),
    caps=st.sampled_from([{}, {}, {"a": 1}]),
    closed=st.booleans(),
)
def test_reserves(budget: int, whom: list[str], off: tuple[int, ...], caps: dict[str, int], closed: bool) -> None:
    at_once, one_by_one = (Book(budget, dict(PRICES), caps=dict(caps), closed=closed) for _ in range(2))
    before = at_once.copied()
    quotes = [PRICES[who] for who in whom]
    amounts = [quote + more for quote, more in zip(quotes, off, strict=False)]
    reserved = at_once.reserve_all(0, whom, amounts, quotes)
    assert reserved == (
        applied(one_by_one, ["reserve"] * 3, whom, amounts) and not caps
    )  # a cap is looked at one by one
    assert at_once == (one_by_one if reserved else before)


@given(
    whom=st.lists(st.sampled_from(sorted(PRICES)), min_size=1, max_size=3),
    less=st.lists(st.integers(0, 4) | st.just(0), min_size=3, max_size=3),
    kinds=st.lists(st.sampled_from(SETTLING), min_size=3, max_size=3),
    reverse=st.sampled_from([False, False, True]),
    closed=st.sampled_from([False, False, True]),
)
def test_posts_and_voids(whom: list[str], less: list[int], kinds: list[Kind], reverse: bool, closed: bool) -> None:
    """Posts of less than was reserved, too; of less than nothing, for somebody else, or after the close they are
    refused, and voids of anything but what was reserved."""
    at_once, one_by_one = (Book(40, dict(PRICES)) for _ in range(2))
    quotes = [PRICES[who] for who in whom]
    assert at_once.reserve_all(0, whom, quotes, quotes)
    assert applied(one_by_one, ["reserve"] * 3, whom, quotes)
    at_once.closed = one_by_one.closed = closed
    before = at_once.copied()
    whose = whom[::-1] if reverse else whom
    amounts = [PRICES[who] - off for who, off in zip(whom, less, strict=False)]
    settled = at_once.settle_all(0, whose, amounts, [kind == "void" for kind in kinds[: len(whom)]])
    assert settled == applied(one_by_one, kinds, whose, amounts)
    assert at_once == (one_by_one if settled else before)
