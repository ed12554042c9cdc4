"""What a defence came to, on the page, in statements and on the screen: by made-up findings, and by real attacks."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from html_pages import Page
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from attacked_market import attacked_market
from browsing import DESK, NEEDS_CHROMIUM, PHONE, assert_fits, laid_out
from databazaar import BazaarError, Progress, Report
from databazaar.cli import statements
from databazaar.cli.play import payout_table
from databazaar.defence import Defence, Findings
from databazaar.defence.words import rules_of
from databazaar.ledger import Drawn, audit_entries
from databazaar.ledger.ledger import Ledger
from databazaar.reports.defence_figures import own_evidence
from databazaar.reports.run_page import render
from databazaar.reports.statement import statement_csv, statement_dict
from databazaar.roster import ProviderTerms
from databazaar.runs.report import report_from
from defended_markets import EVERY_RULE, Measured, play, random_measures, rules_with

NAMES = ["alder", "birch", "cedar", "dogwood", "el<i>m"]


def reported(defence: Defence, measure: Measured, budget: int = 6000, **terms: Any) -> Report:
    """The report of a market whose findings are made up."""
    rules = rules_with(defence, [ProviderTerms(name, name, 20) for name in NAMES], budget=budget, **terms)
    accounts = play(rules, measure)
    assert isinstance(accounts, Ledger)
    audit = audit_entries(list(accounts.store.entries()))
    assert audit.ok, audit.message
    return report_from(audit)


def told(round: int, drawn: Drawn) -> tuple[dict[int, float | None], Findings | None]:
    """Alder leaks, birch has no data, cedar is cleared and the last like it, dogwood is in doubt and does harm."""
    asked = drawn.asked
    leak = [9.0 if i == 0 else -0.5 for i in asked]
    signal, error = [{1: 0.0, 3: 0.3}.get(i, 1.0) for i in asked], [{1: 0.02, 3: 0.4}.get(i, 0.1) for i in asked]
    harm = [5.0 if i == 3 else -1.0 for i in asked]
    pairs = [(2, 4, 0.93)] if {2, 4} <= set(asked) and round > 9 else []
    return dict.fromkeys(asked, 0.01), Findings(harm=harm, leak=leak, signal=signal, error=error, alike=pairs)


def silent(round: int, drawn: Drawn) -> tuple[dict[int, float | None], Findings | None]:
    """All answer, and nothing is measured."""
    return dict.fromkeys(drawn.asked, 0.01), None


@cache
def made_up() -> Report:
    return replace(reported(EVERY_RULE, told, market="Trade winds", consumer="Harbour & Sons"), run="ab" * 16)


@cache
def made_up_page() -> str:
    return render(made_up(), title="Defended")


@cache
def strict() -> Report:
    return reported(replace(EVERY_RULE, pay_left_out=False, doubt=False), told)


def test_every_kind_of_verdict_is_told() -> None:
    defended = made_up().defended
    assert defended is not None
    found = {(one.provider, one.what) for one in defended.rulings}
    assert found >= {("alder", "leak"), ("birch", "no-data"), ("cedar", "cleared"), ("dogwood", "in-doubt")}
    assert {(one.provider, one.other) for one in defended.merged} == {("el<i>m", "cedar")}
    assert [one.provider for one in defended.flagged] == ["alder", "birch"]
    assert defended.summary == "flagged: alder (leak), birch (no data); merged: el<i>m with cedar; not cleared: dogwood"
    stands = {one.provider: one for one in defended.stands}
    assert {name: stand.standing for name, stand in stands.items()} == {
        "alder": "flagged", "birch": "flagged", "cedar": "cleared", "dogwood": "open", "el<i>m": "cleared",
    }  # fmt: skip
    assert stands["dogwood"].left_out == stands["dogwood"].answers > 8 and stands["cedar"].left_out == 0
    assert stands["cedar"].shares_with == ("el<i>m",)
    assert stands["alder"].returned and stands["birch"].returned and stands["dogwood"].returned


def test_what_verdicts_cost_is_what_was_asked_for_and_not_paid() -> None:
    """Where every access has one price and nothing fails, money that was asked for is paid, or lost by a verdict."""
    for report in (made_up(), strict()):
        defended = report.defended
        assert defended is not None
        asked = sum(access.quoted for round in report.rounds for access in round.accesses)
        assert asked - report.spent == sum(one.lost for one in defended.stands) > 0


def test_it_is_said_where_too_few_answer_to_be_compared() -> None:
    report = reported(EVERY_RULE, silent, per_round=2)
    assert report.defended is not None
    rounds = sum(bool(round.accesses) for round in report.rounds)
    assert report.defended.blind.startswith(f"leak, data and alike saw little: 0 of {rounds} rounds had the 3 ")
    assert report.defended.blind in render(report, title="thin")
    assert report.defended.blind in statements.everyone(report, as_json=False, as_csv=False)
    several = reported(EVERY_RULE, silent, per_round=12).defended
    assert several is not None and not several.blind
    alone = reported(Defence(owners=True, screen=3.0), silent, per_round=2).defended
    assert alone is not None and not alone.blind, "these rules compare nobody"


def test_the_page_shows_verdicts_evidence_rules_and_how_all_stand() -> None:
    report = made_up()
    assert report.defended is not None
    page = Page(made_up_page())
    text = page.words
    assert "2 providers were flagged: alder, birch." in text and "1 provider was merged" in text
    for one in report.defended.rulings:
        assert (one.sentence() in text) == (one.what != "cleared")
        assert one.what == "cleared" or f"Entry {one.entry} of the ledger, {one.hash[:16]}" in text
    assert all(words in text for _, words in rules_of(report.defended.defence))
    assert "The evidence." in text and "it is the arbiter’s word" not in text and "the arbiter’s word" in text
    plain = render(reported(Defence(), random_measures(0)), title="Plain")
    assert "Defence" not in plain and "The evidence" not in plain


@NEEDS_CHROMIUM[0]
@NEEDS_CHROMIUM[1]
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_section_fits_a_screen(tmp_path: Path, width: int) -> None:
    shown = laid_out(made_up_page(), width, tmp_path)
    assert "Gains" not in shown["text"] and "Rules of the defence" in shown["text"]
    assert {"Verdicts", "How providers stand"} <= set(shown["heads"])
    assert_fits(shown, width)


def test_a_provider_reads_its_own_verdicts_and_how_to_object() -> None:
    report = made_up()
    own = statements.provider_dict(report, "alder")["defence"]
    (verdict,) = own["verdicts"]
    assert own["standing"] == "flagged" and own["returned"] == verdict["returned"] > 0
    assert (verdict["rule"], verdict["figure"], verdict["answers"]) == ("leak", 9.0, 2)
    assert verdict["evidence"]["leak"] == [9.0, 9.0] and len(verdict["evidence"]["rounds"]) == 2
    objection = verdict["how_to_object"]
    assert objection.startswith(
        "To object, write to Harbour & Sons, who buys in the market Trade winds, quoting run abab"
    )
    assert f"round {verdict['round']}, and entry {verdict['entry']} of the ledger" in objection
    assert verdict["hash"] in objection and "bazaar audit" in objection and "the arbiter's word" in objection
    doubted = statements.provider_dict(report, "dogwood")["defence"]["verdicts"][-1]
    assert doubted["round"] is None and "quoting run abab" in doubted["how_to_object"]
    assert "the close, and entry" in doubted["how_to_object"]
    cleared = statements.provider_dict(report, "el<i>m")["defence"]
    assert cleared["verdicts"][0]["how_to_object"] == "" and cleared["settlements"][0]["released"]
    assert "defence" not in statements.provider_dict(reported(Defence(), told), "alder")


def test_no_statement_names_another_provider_or_its_figures() -> None:
    report = made_up()
    for name in NAMES:
        written = json.dumps(statements.provider_dict(report, name)) + statements.one(report, name, True)
        assert not [other for other in NAMES if other != name and other in written]
    cedar, last = (statements.provider_dict(report, name)["defence"] for name in ("cedar", "el<i>m"))
    for one in (cedar, last):
        (alike,) = [verdict for verdict in one["verdicts"] if verdict["rule"] == "alike"]
        assert "like those of another provider" in alike["why"] and alike["figure"] == 0.93 and one["shares_an_arm"]
        assert "evidence" not in alike
    both = [next(v for v in one["verdicts"] if v["rule"] == "alike")["answers"] for one in (cedar, last)]
    curves = report.defended.curves if report.defended is not None else ()
    rounds = next(one.round for one in (report.defended.rulings if report.defended else ()) if one.what == "alike")
    assert both == [int((curves[i].rounds <= (rounds or 0)).sum()) for i in (2, 4)]


def test_a_flagged_one_gets_its_own_evidence_drawn(tmp_path: Path) -> None:
    report = made_up()
    out = tmp_path / "statements"
    assert statements.write_all(report, out) == f"{2 + 2 * len(NAMES) + 3} files in {out}"
    assert {path.name for path in out.glob("*.png")} == {"alder.png", "birch.png", "dogwood.png"}
    figure = own_evidence(report, "alder")
    assert figure is not None and report.defended is not None
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["alder", "limit"]
    drawn, *limits = [np.asarray(line.get_ydata(), dtype=float).tolist() for line in figure.axes[0].lines]
    assert drawn == [9.0, 9.0] and max(max(limit) for limit in limits) == report.defended.flagged[0].limit
    few = reported(replace(EVERY_RULE, leak=None, alike=None, doubt=False), silent, budget=400)
    assert own_evidence(few, "alder") is None, "nothing was measured"


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_amounts_in_statements_add_up(seed: int, doubt: bool, pay_left_out: bool) -> None:
    defence = replace(EVERY_RULE, doubt=doubt, pay_left_out=pay_left_out)
    report = reported(defence, random_measures(seed, alike=0.5), budget=2000)
    given = statement_dict(report)
    valid = [access.quoted for round in report.rounds for access in round.accesses if access.failure is None]
    assert sum(valid) - report.spent == sum(line["returned"] + line["cut"] for line in given["providers"])
    assert sum(line["pay"] for line in given["providers"]) == report.spent
    for line in given["providers"]:
        rows = list(csv.DictReader(io.StringIO(statements.one(report, line["provider"], True))))
        assert sum(int(row["paid"]) for row in rows) == line["pay"]
        assert sum(int(row["held"]) for row in rows) == line["held_back"] == 0, "nothing is held after the close"
        settled = {
            what: sum(-int(row["held"]) for row in rows if row["what"] == what) for what in ("release", "return")
        }
        assert settled == {"release": line["released"], "return": line["returned"]}
    header, *_ = csv.reader(io.StringIO(statement_csv(report)))
    assert {"standing", "held_back", "released", "returned", "cut"} <= set(header)
    assert {verdict["provider"] for verdict in given["defence"]["verdicts"]} <= set(NAMES)


def test_who_is_found_to_be_anothers_name_is_told_why_it_lost_what_was_held_back() -> None:
    """Cedar and the last are alike before either is cleared: the one that has answered less has earned once already."""

    def alike(round: int, drawn: Drawn) -> tuple[dict[int, float | None], Findings | None]:
        return dict.fromkeys(drawn.asked, 0.01), Findings(alike=[(2, 4, 0.93)] if round == 30 else [])

    report = reported(EVERY_RULE, alike)
    assert report.defended is not None
    (one,) = report.defended.merged
    stands = {stand.provider: stand for stand in report.defended.stands}
    name = min(("cedar", "el<i>m"), key=lambda provider: stands[provider].released)
    (own,) = report.defended.of(name)
    assert own.returned == one.returned == stands[name].returned > 0
    told = statements.provider_dict(report, name)["defence"]
    (first, *_) = told["settlements"]
    assert first["amount"] == own.returned and not first["released"]
    assert first["why"].startswith("it shares an arm with another provider")
    (kept,) = report.defended.of(own.other)
    assert kept.returned == 0 and kept.other == name


def test_a_strict_market_says_what_it_did() -> None:
    defended = strict().defended
    assert defended is not None
    dogwood = next(one for one in defended.stands if one.provider == "dogwood")
    assert dogwood.cut > 0 and dogwood.left_out > 0, "those left out get the floor alone"
    words = dict(rules_of(defended.defence))
    assert words["pay_left_out"].endswith("the floor alone.") and words["doubt"].endswith("the floor alone.")
    few = reported(replace(EVERY_RULE, leak=None, alike=None, doubt=False), silent, budget=400)
    assert few.defended is not None
    assert few.defended.doubted and all(one.figure is None for one in few.defended.doubted)
    assert "nobody could tell" in few.defended.doubted[0].sentence()
    with pytest.raises(BazaarError, match="'defence'"):
        few.plot("defence")


def test_the_run_and_the_statement_say_who_was_flagged() -> None:
    report = made_up()
    assert "flagged: alder (leak)" in statements.everyone(report, False, False)
    plain = reported(Defence(), told)
    assert "flagged" not in statements.everyone(plain, False, False) and "standing" not in plain.to_frame().columns
    (alder, *_) = report.to_frame().to_dict("records")
    assert (alder["provider"], alder["standing"]) == ("alder", "flagged") and alder["returned"] > 0
    screen = Console(width=80, file=io.StringIO())
    screen.print(payout_table(report, None))
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "returned" in shown and "held" not in shown and " flagged" in shown
    reasons = {one.provider: one.why for one in report.brought}
    assert reasons["alder"].kind == "flagged" and reasons["alder"].sentence.startswith("It was flagged after ")


def test_real_attackers_are_shown_as_such() -> None:
    """Somebody who trains on a part of the hold-out, told live, on the page, in the figure and in its statement."""
    heard: list[Progress] = []
    report = attacked_market().run(tell=heard.append)
    defended = report.defended
    assert defended is not None
    flag = next(one for one in defended.flagged if one.provider == "spy")
    assert flag.what == "leak" and (flag.figure or 0.0) > flag.limit
    assert [one.flagged for one in heard][flag.round or 0] == ("spy",) and "flagged" in str(heard[flag.round or 0])
    assert heard[0].flagged == () and "spy was flagged after" in Page(render(report, title="Real")).words
    figure = report.plot("defence")
    assert [axes.get_title(loc="left") for axes in figure.axes][:2] == [
        "Gains on one part alone",
        "What persists in the answers",
    ]
    assert "spy" in [text.get_text() for text in figure.legends[0].get_texts()]
    own = statements.provider_dict(report, "spy")["defence"]
    assert own["standing"] == "flagged" and own["verdicts"][-1]["evidence"]["leak"][-1] == flag.figure
