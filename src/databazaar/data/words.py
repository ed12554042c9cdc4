"""Free text by its words and pairs of words, each a bucket by the rule of hashed categories: no vocabulary is kept.

Words are runs of letters and digits without regard to capitals, and a Chinese or Japanese character each, as these are
written without spaces. A gram is a word, or two that follow one another. The bucket of a gram is salted with the
column's name, so that a word in a title is another than the same word in a description.
"""

from __future__ import annotations

import hashlib
import re
from itertools import chain, pairwise
from unicodedata import normalize

from databazaar.models import GRAM_BUCKETS

REMEMBERED = 2**20
"""So many grams are remembered while a table is read."""
SEVERAL, LONE = 3, 8
"""A text has so many words separated by spaces, or so many characters that are words by themselves."""
_LONE = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_LONE}]|[^\W_{_LONE}]+")
_LETTERS = re.compile(r"[^\W\d_]{2}")


def words_of(text: str) -> list[str]:
    """
    >>> words_of("Don't WAIT: 中文 n_1")
    ['don', 't', 'wait', '中', '文', 'n', '1']
    """
    return _WORD.findall(normalize("NFKC", text).casefold())


def grams_of(text: str) -> list[str]:
    """Each gram once, in the order of the text.

    >>> grams_of("to be or not to be")
    ['to', 'to be', 'be', 'be or', 'or', 'or not', 'not', 'not to']
    """
    words = words_of(text)
    pairs = ((one, f"{one} {other}") for one, other in pairwise(words))
    return list(dict.fromkeys(chain(chain.from_iterable(pairs), words[-1:])))


def bucket_of(text: str, buckets: int) -> int:
    """The BLAKE2b digest of 8 bytes of the text in UTF-8, as a little-endian number, modulo `buckets`.

    >>> bucket_of("N14228", 64)
    22
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") % buckets


class GramBuckets(dict[str, int]):
    """The buckets of grams of one column, computed once for most while a table is read."""

    def __init__(self, column: str) -> None:
        super().__init__()
        self.column = column

    def __missing__(self, gram: str) -> int:
        if len(self) >= REMEMBERED:
            self.clear()
        self[gram] = bucket_of(f"{self.column}\0{gram}", GRAM_BUCKETS)
        return self[gram]

    def of(self, text: str) -> list[int]:
        """The buckets of a text, each once, in the order of its grams."""
        return list(dict.fromkeys(map(self.__getitem__, grams_of(text))))


def is_free_text(text: str) -> bool:
    """Whether these are several words, and no name, code or address of a page.

    >>> [is_free_text(text) for text in ("it broke on day one", "New York", "9f-ab 12 c4 77", "这个产品真的非常好")]
    [True, False, False, True]
    """
    spaced = sum(1 for word in text.split() if _LETTERS.search(word))
    return spaced >= SEVERAL or len(re.findall(f"[{_LONE}]", text)) >= LONE
