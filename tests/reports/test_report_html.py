"""The HTML report: well-formed, self-contained, reproducible, and deaf to hostile names."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from html_pages import Page
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import sample_report, sample_worth

from databazaar.codes import Code
from databazaar.ledger import Audit
from databazaar.money import Currency
from databazaar.reports.run_page import failures, render
from databazaar.runs.payouts import MOST_LISTED, MOST_NAMED
from databazaar.runs.report import Report

HOSTILE = (
    "<script>alert(1)</script>",
    "$x^2$ $\\frac{$",
    '"><img src=x onerror=alert(1)>',
    "emoji 🦊👩‍🚀",
    "n" * 200,
    "W" * 200,
    "nul\x00 bell\x07 line\nbreak",
    "lone \ud800 surrogate",
    "\u202eoverride",
    "_underscore",
    "-->]]></svg>",
    "",
)


def full_page(report: Report, **changes: object) -> str:
    return render(
        replace(report, worth=sample_worth(f"{report.payouts[-1].provider}, of the 3 paid most")),
        title=str(changes.get("title", "A run")),
        audit=Audit(37),
    )


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(full_page(sample_report(notes=["One note."])))


def test_the_page_holds_what_a_reader_looks_for(page: Page) -> None:
    report, text = sample_report(), " ".join(page.text)
    for wanted in (
        report.currency.amount(report.budget),
        report.currency.amount(report.spent),
        report.currency.amount(report.refunded),
        f"{report.final_utility:.4g}",
        f"{report.final_loss:.4g}",
        report.model_hash,
        report.ledger_head,
        "Settled",
        "Audit passed",
        "37 entries checked",
        "Was it worth it?",
        "Theorem 1",
        "41.7",
        "0.0123457",
        "One note.",
    ):
        assert wanted in text, wanted
    assert page.elements["svg"] == page.elements["figure"] == 3


def test_accessible(page: Page) -> None:
    assert ("html", "lang", "en") in page.attributes
    assert page.attributes.count(("svg", "role", "img")) == 3
    assert sum(tag == "svg" and name == "aria-label" and value != "" for tag, name, value in page.attributes) == 3
    scopes = [value for tag, name, value in page.attributes if tag == "th" and name == "scope"]
    assert len(scopes) == page.elements["th"]
    assert page.elements["h1"] == 1


def test_ids_are_unique_and_references_resolve(page: Page) -> None:
    assert max(page.ids.values()) == 1
    for _tag, name, value in page.attributes:
        for target in re.findall(r"url\(#([^)]+)\)", value) + ([value[1:]] if name.endswith("href") else []):
            assert target in page.ids or value.startswith("data:image/png;base64,")


@pytest.mark.parametrize("names", [("north", "south"), HOSTILE], ids=["plain", "hostile"])
def test_nothing_outside_the_file_is_referred_to(names: tuple[str, ...]) -> None:
    text = full_page(sample_report(names))
    namespaces = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    assert not re.search(r"https?://|@import|//cdn|\burl\((?!#)", namespaces)
    for tag, name, value in Page(text).attributes:
        if name in {"src", "srcset", "action", "data", "poster"}:
            pytest.fail(f"<{tag} {name}={value!r}>")
        if name.endswith("href"):
            assert value.startswith(("#", "data:image/png;base64,"))


def test_hostile_names_stay_text() -> None:
    report = sample_report(
        HOSTILE,
        owners=[HOSTILE[i // 2] for i in range(len(HOSTILE))],
        reasons=HOSTILE,
        failure_rate=0.6,
        rounds=20,
        notes=HOSTILE,
        currency=Currency('<b>"€$', 3),
    )
    report = replace(report, message=HOSTILE[2], rules={"sampler": {"kind": "<i>", "<i>": {"x": HOSTILE[0]}, "p": 0.1}})
    text = full_page(report, title=HOSTILE[0])
    page = Page(text)
    assert page.elements["script"] == 1
    assert page.elements["img"] == page.elements["b"] == page.elements["i"] == 0
    assert not any(name.startswith("on") for _tag, name, _value in page.attributes)
    heads = page.row_heads
    for name in ("<script>alert(1)</script>", "$x^2$ $\\frac{$", "emoji 🦊👩‍🚀", "n" * 200):
        assert name in heads
    text.encode("utf-8")


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("providers", [1, 9, 100])
def test_every_provider_is_in_the_table(providers: int) -> None:
    names = [f"provider {i}" for i in range(providers)]
    page = Page(render(sample_report(names), title="A run"))
    assert sorted(set(page.row_heads) & set(names)) == sorted(names)


@pytest.mark.slow
@pytest.mark.parametrize(("providers", "rounds"), [(1, 0), (1000, 3), (2, 2000), (400, 50)])
def test_extreme_sizes(providers: int, rounds: int) -> None:
    names = [f"provider {i}" for i in range(providers)]
    report = sample_report(names, rounds=rounds, per_round=1)
    heads = set(Page(render(report, title="A run")).row_heads)
    paid = [report.lines.ids[place] for place in report.lines.best_paid()]
    assert heads & set(names) == set(names if providers <= MOST_LISTED else paid[:MOST_NAMED])


def test_without_loss_audit_worth_bound_or_anybody_paid() -> None:
    report = sample_report(failure_rate=1.0, with_loss=False, learns=False)
    report = replace(report, status="nobody-answered", distributions=np.eye(3)[[0] * 13])
    text = " ".join(Page(render(report, title="A run")).text)
    assert "Nobody answered" in text and "Not audited" in text
    assert "Final loss" not in text and "Theorem" not in text and "worth it" not in text


@pytest.mark.usefixtures("no_figures")
def test_a_failed_audit_shows() -> None:
    text = render(sample_report(), title="A run", audit=Audit(3, first_broken="Entry 4 <broken>."))
    assert "Audit failed" in text and "Entry 4 &lt;broken&gt;." in text


def test_same_run_same_bytes() -> None:
    assert full_page(sample_report()) == full_page(sample_report())


@pytest.mark.usefixtures("no_figures")
def test_every_rule_is_shown_whoever_wrote_it() -> None:
    theirs = {
        "sampler": {"kind": "greedy", "look_ahead": 3, "from": "acme-rules"},
        "aggregator": {"kind": "median", "from": "module home.rules"},
        "payment": {"kind": "by-gain", "share": 0.25, "from": "acme-rules"},
        "stops": [{"kind": "target-utility", "utility": 0.9}, {"kind": "moon", "from": "lunar"}],
    }
    page = Page(render(replace(sample_report(), rules=theirs), title="A run"))
    assert page.pairs["sampler"] == ["greedy look ahead = 3; from the package acme-rules"]
    assert page.pairs["aggregator"] == ["median from the module home.rules"]
    assert page.pairs["payment"] == ["by-gain share = 0.25; from the package acme-rules"]
    assert page.pairs["stop"] == ["target-utility utility = 0.9", "moon from the package lunar"]
    assert "Valid accesses are paid by the rule by-gain" in page.words
    ours = Page(render(sample_report(), title="A run"))
    assert ours.pairs["sampler"] == ["osmd eta = 0.0123457, alpha = 0.1"]
    assert (ours.pairs["aggregator"], ours.pairs["payment"]) == (["mean"], ["price-per-access"])
    assert ours.pairs["ended because"] == ["the budget is spent"]
    old = Page(render(replace(sample_report(), rules={"sampler": {"kind": "uniform"}}, stopped_by=None), title="A run"))
    assert old.pairs["sampler"] == ["uniform"]
    assert not {"aggregator", "payment", "stop", "ended because"} & old.pairs.keys()


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("rounds", [0, 12])
def test_an_open_run_says_first_that_nothing_is_final(rounds: int) -> None:
    report = sample_report(rounds=rounds)
    report = replace(report, status="open", message="", stopped_by=None, model_hash="")
    report = replace(report, budget=report.spent + 1000, refunded=0, held=300)
    page = Page(full_page(report))
    assert page.words.index("This run is not finished, and nothing on this page is final.") < page.words.index("Budget")
    assert "Not finished" in page.words and "3.00 EUR is held for the round under way" in page.words
    assert ("span", "class", "badge open") in page.attributes
    for settled in ("Refunded", "went back", "Final", "Settled"):
        assert settled not in page.words
    assert "Utility so far" in page.words and "model hash" not in page.pairs


def test_a_run_in_which_nobody_answered_is_a_bad_end() -> None:
    report = replace(sample_report(), status="nobody-answered", message="Nobody gave a valid reply.")
    for ended in (report, replace(report, final_utility=float("nan"), final_loss=float("inf"))):
        page = Page(full_page(ended))
        assert ("span", "class", "badge bad") in page.attributes and "Nobody answered" in page.words
        assert "Nobody gave a valid reply." in page.words and "Refunded" in page.words
        assert not re.search(r"\b(nan|inf)\b", page.words)
    assert "The model’s utility is no finite number." in page.words


@settings(max_examples=8, deadline=None)
@given(
    names=st.lists(st.text(max_size=30), min_size=1, max_size=5, unique=True),
    rounds=st.integers(0, 6),
    seed=st.integers(0, 99),
)
def test_any_names_make_a_well_formed_page(names: list[str], rounds: int, seed: int) -> None:
    report = sample_report(names, rounds=rounds, seed=seed, failure_rate=0.4, reasons=names)
    text = render(report, title=names[0])
    assert len(Page(text).row_heads) >= len(names)
    assert text.encode("utf-8").decode("utf-8") == text


def test_failures_are_grouped_without_the_round_that_they_name() -> None:
    """What a provider's own oracle raises may name the round."""
    report = sample_report(["north", "south"], failure_rate=0.5)
    rounds = tuple(
        replace(
            round_,
            accesses=tuple(
                access
                if access.failure is None
                else replace(
                    access,
                    failure=Code.of("oracle-raised", type="ValueError", text=f"no rows in round {round_.number}"),
                )
                for access in round_.accesses
            ),
        )
        for round_ in report.rounds
    )
    (found,) = failures(replace(report, rounds=rounds))
    assert found["reason"] == "ValueError: no rows in this round" and set(found["providers"]) == {"north", "south"}
    assert found["accesses"] == sum(payout.failures for payout in report.payouts)


@pytest.mark.usefixtures("no_figures")
def test_the_page_says_when_the_run_was_and_what_its_utility_is() -> None:
    report = sample_report()
    dated = replace(report, run="0af3", consumer="<Bank>", began="2026-01-02T03:04:05+00:00", settled="2026-01-03")
    words = Page(render(dated, title="A run")).words
    assert "Run 0af3, began 2026-01-02 03:04:05 UTC, settled 2026-01-03. Bought by <Bank>." in words
    told = {
        "exp-loss": "Utility is exp(−loss)",
        "negative-loss": "Utility is the loss with its sign turned",
        "acme-lift": "Utility is the consumer’s own, acme-lift",
    }
    for kind, sentence in told.items():
        by_terms = replace(report, rules={**report.rules, "utility": {"kind": kind}})
        found = Page(render(by_terms, title="A run")).words
        assert sentence in found and "began" not in found
