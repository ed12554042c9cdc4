"""Words that others choose, put everywhere at once: they stay words, and reorder nothing around them."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from importlib import resources

import pytest
from comparison_samples import sample_comparison
from html_pages import Page
from jinja2 import UndefinedError
from report_samples import sample_report, sample_worth

from databazaar.codes import Code
from databazaar.ledger import Audit
from databazaar.money import Currency
from databazaar.reports.pages import page
from databazaar.reports.run_page import render
from databazaar.reports.valuation_page import render_comparison
from databazaar.runs.report import Report, Status

DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Characters that turn the direction of the text after them."""


class Words:
    """Makes a hostile word for each place, and keeps the places."""

    def __init__(self) -> None:
        self.places: list[str] = []

    def __call__(self, place: str) -> str:
        self.places.append(place)
        return f"_\u202e<i>evil {place}</i>\x07\u2069\ud800{{{{ 7 * 7 }}}}"


def assert_harmless(text: str, words: Words) -> None:
    shown = Page(text)
    assert shown.elements["i"] == 0 and shown.elements["script"] == 1
    for place in words.places:
        assert f"<i>evil {place}</i>" in shown.words, f"{place} is not on the page"
        assert not any(f"evil {place}<" in loose for loose in shown.loose), f"{place} is not isolated"
    for written in (*shown.text, *(value for _, _, value in shown.attributes)):
        for character in written:
            assert unicodedata.category(character) not in {"Cc", "Cs"} or character == "\n"
            assert unicodedata.bidirectional(character) not in DIRECTIONS
    text.encode("utf-8")


def hostile_report(words: Words) -> Report:
    names = [words(f"id {i}") for i in range(3)]
    report = sample_report(
        names,
        owners=[words("owner of one"), *[words("owner of two")] * 2],
        reasons=[words("reason")],
        failure_rate=0.5,
        notes=[words("note")],
        currency=Currency(words("currency"), 2),
    )
    rule = {"kind": words("kind"), words("setting"): words("value"), "list": [words("inner")], "from": words("package")}
    stop = {"kind": words("stop"), "from": f"module {words('module')}"}
    rules = {"sampler": rule, "payment": {"kind": words("payment")}, "stops": [stop]}
    return replace(
        report, message=words("message"), stopped_by=Code.of("own-words", text=words("stopped by")), rules=rules
    )


@pytest.mark.parametrize("status", ["settled", "open"])
def test_a_report(status: Status) -> None:
    words = Words()
    report = replace(hostile_report(words), status=status)
    report = replace(report, worth=sample_worth(words("single provider"), notes=[words("note on worth")]))
    audit = Audit(3, first_broken=words("audit"))
    assert_harmless(render(report, title=words("title"), audit=audit), words)


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_comparison(seeds: int) -> None:
    words = Words()
    comparison = sample_comparison([words("north"), words("south")], ["osmd", words("method")], seeds=seeds)
    stopped = [
        replace(outcome, results=tuple(replace(result, stopped=words(f"stop {i}")) for result in outcome.results[:1]))
        for i, outcome in enumerate(comparison.outcomes)
    ]
    comparison = replace(comparison, outcomes=tuple(stopped))
    text = render_comparison(comparison, title=words("title"), currency=Currency(words("currency"), 2))
    assert_harmless(text, words)


def test_no_template_opens_a_way_around() -> None:
    folder = resources.files("databazaar.reports").joinpath("templates")
    templates = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
    assert {"base.html.jinja", "macros.html.jinja", "run.html.jinja", "comparison.html.jinja"} <= templates.keys()
    for name, text in templates.items():
        assert not re.search(r"\|\s*(safe|forceescape)\b|autoescape|Markup", text), name


def test_what_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        page("databazaar/base.html.jinja", title="A page without a brand")
