"""Whatever is in it, an object shows itself on one screen, without data and without harm; and as pandas sees it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from databazaar import Arbiter, BazaarError, Consumer, Progress, Provider, Report
from databazaar.display import MOST_ROWS, Displayed, shown, size_of
from databazaar.money import Currency
from databazaar.reports.figures import FIGURES
from databazaar.roster import Roster
from databazaar.runs.attribution import NUMBERS
from databazaar.runs.report import Payout
from small_markets import torch_market, vector_market

EUROS = Currency("EUR", 2)


def run(providers: int = 40, **more: Any) -> tuple[Arbiter, Report, list[Progress]]:
    consumer, sellers = torch_market(flips=[i / providers for i in range(providers)], budget=400, **more)
    arbiter, told = Arbiter(consumer, sellers, device="cpu"), list[Progress]()
    return arbiter, arbiter.run(callbacks=[told.append]), told


MARKET = run(currency=EUROS)


class Markup(HTMLParser):
    """The tags in their order, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        assert self.opened == [], "every tag is closed"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.opened.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def everything() -> list[Displayed]:
    arbiter, report, told = MARKET
    terms = arbiter.terms()
    opened = replace(report, status="open", rounds=(), final_utility=float("nan"), final_loss=None)
    plain, oracles = vector_market()
    return [
        *(arbiter, arbiter.consumer, arbiter.providers[0], terms, terms.roster, report, opened, told[-1]),
        *(plain, *oracles[:1], Provider("far-away"), Provider("b", oracle=lambda w: w, owner="Bank B")),
    ]


@pytest.mark.parametrize("one", everything(), ids=lambda one: type(one).__name__)
def test_one_screen_in_a_terminal_and_in_a_notebook(one: Displayed) -> None:
    text, page = repr(one), one._repr_html_()
    assert text.startswith(type(one).__name__)
    assert len(text.splitlines()) <= 24
    assert len(text) < 2000 and len(page) < 5000
    assert "tensor(" not in text and "object at 0x" not in text
    markup = Markup(page)
    assert set(markup.tags) <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}
    for fact in one._facts().values():
        assert fact in " ".join(markup.words) and fact in text


def test_a_report_lists_the_best_paid_and_counts_the_rest() -> None:
    _, report, _ = MARKET
    lines = repr(report).splitlines()
    pay = [float(line.split()[-1]) for line in lines[-MOST_ROWS - 1 : -1]]
    assert pay == sorted((line.pay / 100 for line in report.payouts), reverse=True)[:MOST_ROWS]
    assert lines[-1].strip() == f"… and {len(report.payouts) - MOST_ROWS} more" in report._repr_html_()


@given(name=st.text(min_size=1, max_size=400), other=st.text(max_size=50))
def test_names_of_others_can_neither_break_nor_bend_it(name: str, other: str) -> None:
    _, report, _ = MARKET
    hostile = replace(report, payouts=(Payout(name, other, 1, 1, 1, 0), *report.payouts[:2]), message=name)
    text = repr(hostile)
    assert len(text.splitlines()) == len(repr(replace(report, payouts=report.payouts[:3])).splitlines())
    assert all(character.isprintable() or character == "\n" for character in text)
    assert max(map(len, text.splitlines())) < 300
    expected = Markup(replace(report, payouts=report.payouts[:3])._repr_html_()).tags
    assert Markup(hostile._repr_html_()).tags == expected


@given(st.text(max_size=300), st.integers(1, 100))
def test_words_are_cut_to_their_room(text: str, most: int) -> None:
    found = shown(text, most)
    assert len(found) <= most and found.isprintable()
    if text.isprintable() and len(text) <= most:
        assert found == text


def test_data_are_told_by_their_size() -> None:
    assert size_of((np.zeros((1200, 3, 8, 8)), np.zeros(1200))) == "1,200 rows of 3×8×8"
    assert size_of({"text": np.zeros((5, 7)), "age": np.zeros(5)}) == "text: 5 rows of 7; age: 5 rows"
    assert size_of(object()) == "object"


def test_a_base_without_facts_is_not_shown() -> None:
    with pytest.raises(NotImplementedError):
        repr(Displayed())


def test_a_frame_of_providers_holds_the_statement() -> None:
    _, report, _ = MARKET
    frame = report.to_frame()
    assert list(frame)[:6] == ["provider", "owner", "price", "accesses", "failures", "pay"]
    assert list(frame)[6:] == [*NUMBERS, "why"]
    assert np.allclose(frame["gain_per_coin"] * frame["pay"], frame["mean_gain"] * frame["accesses"])
    assert frame["why"].tolist() == [str(one.why) for one in report.brought]
    assert frame.attrs["currency"] == "EUR"
    for row, line in zip(frame.to_dict("records"), report.payouts, strict=True):
        assert (row["provider"], row["owner"], row["accesses"], row["failures"]) == (
            line.provider,
            line.owner,
            line.accesses,
            line.failures,
        )
        assert round(100 * row["pay"]) == line.pay and row["price"] == 0.01
    whole = replace(report, currency=Currency()).to_frame()
    assert whole["pay"].dtype == np.int64 and whole["pay"].sum() == report.spent
    private = replace(report, payouts=(replace(report.payouts[0], epsilon=1.5), *report.payouts[1:])).to_frame()
    assert private["epsilon"].tolist()[0] == 1.5 and private["epsilon"].isna().sum() == len(report.payouts) - 1


def test_a_frame_of_rounds_holds_the_curves() -> None:
    _, report, told = MARKET
    frame = report.to_frame("rounds")
    assert frame["round"].tolist() == list(range(len(report.rounds) + 1))
    assert frame["utility"].tolist()[1:] == [one.utility for one in told]
    assert (100 * frame["spent"]).round().tolist()[1:] == [one.spent for one in told]
    assert np.allclose(frame["paid"].cumsum(), frame["spent"])
    consumer, providers = vector_market(oracles={0: lambda w: w * np.nan})
    failing = Arbiter(consumer, providers, engine="loop").run()
    assert failing.to_frame("rounds")["loss"].isna().all()
    counted = failing.to_frame()[["accesses", "failures"]].sum()
    assert failing.to_frame("rounds")["accesses"].sum() == counted.sum()
    assert failing.to_frame("rounds")["failures"].sum() == failing.to_frame()["failures"].sum() > 0


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_of_the_report_can_be_had(name: str) -> None:
    assert isinstance(MARKET[1].plot(name), Figure)


def test_unknown_frames_and_figures_are_refused() -> None:
    with pytest.raises(BazaarError, match='use "providers" or "rounds"'):
        MARKET[1].to_frame("owners")  # type: ignore[arg-type]
    with pytest.raises(BazaarError, match="use one of learning, distribution"):
        MARKET[1].plot("pie")


def test_a_large_roster_stays_short() -> None:
    assert len(repr(Roster.equal(5_000))) < 200
    assert "5,000 (p0, p1" in repr(Roster.equal(5_000))


def test_a_utility_of_ones_own_is_told_by_its_name() -> None:
    def recall(w: Any) -> float:
        return 0.0

    assert "utility: recall" in repr(Consumer(np.zeros(2), budget=4, utility=recall))
