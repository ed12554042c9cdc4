"""A page as its reader sees it: elements, attributes, text, and lists of terms and values."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Checks that tags balance, and keeps what the tests ask about.

    `text` is what stands outside scripts and styles; `loose` the part of it that no `<bdi>` isolates, but for titles.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.row_heads: list[str] = []
        self.pairs: dict[str, list[str]] = {}
        self.loose: list[str] = []
        self._term = ""
        self._heads_row = False
        self.feed(text)
        self.close()
        assert self.open == []
        self.pairs = {term: [" ".join(value.split()) for value in values] for term, values in self.pairs.items()}

    @property
    def words(self) -> str:
        """All that a reader reads, in one line."""
        return " ".join("".join(self.text).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._keep(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "dt":
            self._term = ""
        if tag == "dd":
            self.pairs.setdefault(self._term, []).append("")
        if tag == "span" and "dd" in self.open:
            self.pairs[self._term][-1] += " "
        if tag == "th":
            self._heads_row = ("scope", "row") in attrs
            self.row_heads += [""] if self._heads_row else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._keep(tag, attrs)

    def _keep(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids[value or ""] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"script", "style"}:
            self.text.append(data)
            if not {"bdi", "title", "desc"} & set(self.open):
                self.loose.append(data)
        if "dt" in self.open:
            self._term += data
        if "dd" in self.open and self.pairs:
            self.pairs[self._term][-1] += data
        if "th" in self.open and self._heads_row:
            self.row_heads[-1] += data
