"""Who cannot be asked in a round, found without looking at everybody: of a million providers a few are too dear or used
up. A slow, obvious version is `Purse.available`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from databazaar.ledger.book import Book
from databazaar.roster import Amounts, Places, Purse

NOBODY: Places = np.zeros(0, dtype=np.int64)


class ByPrice:
    """Quotes in the order of their amounts, for whoever asks who is dearer than that."""

    def __init__(self, quotes: Amounts) -> None:
        self._order = np.argsort(quotes, kind="stable")
        self._sorted = quotes[self._order]

    def dearer_than(self, amount: int) -> Places:
        """The places of those, in rising order."""
        return np.sort(self._order[self._sorted.searchsorted(amount, side="right") :])


class AccessesLeft:
    """How often each provider with a cap may still be drawn, counted on from round to round.

    `note` is told whom a round draws. Where a book comes that has not gone on from there, all is counted anew.
    """

    def __init__(self, caps: Amounts, ids: Sequence[str], places: Mapping[str, int]) -> None:
        self._caps, self._ids, self._places = caps, ids, places
        self._book: Book | None = None
        self._round, self._noted = -1, (-1, NOBODY)
        self.left, self.used_up = self._caps, NOBODY

    def note(self, round: int, draws: Places) -> None:
        """These are drawn in this round of the book that was looked at last."""
        self._noted = round, draws

    def before(self, book: Book) -> None:
        """Brings `left` and `used_up` to where they stand before the round under way."""
        if book is self._book and book.rounds == self._round:
            return
        noted, draws = self._noted
        if not (book is self._book and noted == self._round == book.rounds - 1 and self._goes_on(book, draws)):
            self._count_anew(book)
        self._book, self._round = book, book.rounds

    def _goes_on(self, book: Book, draws: Places) -> bool:
        """Counts those drawn, and says whether the book has done so too."""
        left = self.left.copy()  # earlier purses keep theirs
        np.subtract.at(left, draws, 1)
        drawn = np.array([book.drawn.get(self._ids[place], 0) for place in draws.tolist()])
        if (self._caps[draws] - left[draws] != drawn).any():
            return False
        self.left = left
        self.used_up = np.union1d(self.used_up, draws[left[draws] <= 0])
        return True

    def _count_anew(self, book: Book) -> None:
        self.left = self._caps.copy()
        for provider, times in book.drawn_before().items():
            self.left[self._places[provider]] -= times
        self.used_up = np.flatnonzero(self.left <= 0)


def barred(purse: Purse, prices: ByPrice | None, left: AccessesLeft | None) -> Places:
    """Who cannot be asked from this purse. `prices` may be left out where nobody is too dear."""
    dear = NOBODY if prices is None else prices.dearer_than(purse.dearest)
    used = NOBODY if left is None else left.used_up
    return np.union1d(dear, used) if len(used) else dear
