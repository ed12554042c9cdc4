"""The statement: sums that hold, for programs and for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from report_samples import sample_report

from databazaar.cli import statements
from databazaar.reports.statement import owner_totals, statement_csv, statement_dict


@given(n=st.integers(1, 12), seed=st.integers(0, 999), owners=st.integers(1, 12))
def test_every_sum_is_what_was_spent(n: int, seed: int, owners: int) -> None:
    names = [f"p{i}" for i in range(n)]
    report = sample_report(
        names, owners=[f"o{i % owners}" for i in range(n)], rounds=3, prices=range(1, n + 1), seed=seed
    )
    statement = json.loads(json.dumps(statement_dict(report)))
    assert statement["spent"] + statement["refunded"] == statement["budget"]
    assert sum(line["pay"] for line in statement["providers"]) == statement["spent"]
    assert sum(line["pay"] for line in statement["owners"]) == statement["spent"]
    assert {line["provider"] for line in statement["providers"]} == set(names)
    for lines in (statement["providers"], statement["owners"]):
        pays = [line["pay"] for line in lines]
        assert pays == sorted(pays, reverse=True)
        assert all(line["pay_text"] == f"{line['pay_amount']} EUR" for line in lines)
    lines = csv.DictReader(io.StringIO(statement_csv(report)))
    assert sum(int(line["pay"]) for line in lines) == report.spent


def test_amounts_for_people() -> None:
    statement = statement_dict(sample_report(["only"], rounds=2, per_round=1, failure_rate=0))
    assert (statement["currency"], statement["spent"], statement["spent_text"]) == ("EUR", 200, "2.00 EUR")
    assert statement["providers"][0]["pay_text"] == "2.00 EUR"
    assert statement["rounds"] == 2 and statement["status"] == "settled"


def test_an_unfinished_run_says_so_in_every_form() -> None:
    settled = sample_report(["=north", "so\x1b[31muth"])
    report = replace(settled, status="open", refunded=0, held=250)
    for run, closed in ((settled, True), (report, False)):
        for found in (statement_dict(run), statements.provider_dict(run, "=north")):
            assert (found["status"], found["closed"]) == (run.status, closed)
    assert (statement_dict(report)["held"], statement_dict(report)["held_text"]) == (250, "2.50 EUR")
    *_, money, last = statements.everyone(report, as_json=False, as_csv=False).splitlines()
    assert money.endswith("held 2.50 EUR") and "refunded" not in money
    assert "not finished" in last and "final" in last
    *lines, last = statements.everyone(settled, as_json=False, as_csv=False).splitlines()
    assert last.endswith(f"refunded {settled.currency.format(settled.refunded)}")
    assert any(line.startswith("so�[31muth") for line in lines), "nothing reaches a terminal but what it may print"
    assert statement_csv(report) == statement_csv(settled)


def test_one_owner_of_several_providers() -> None:
    report = sample_report(owners=["acme", "solo", "acme"])
    totals = {line["owner"]: line for line in owner_totals(report)}
    assert totals["acme"]["providers"] == 2
    assert totals["acme"]["pay"] == report.payouts[0].pay + report.payouts[2].pay


def test_a_spreadsheet_sees_no_formula() -> None:
    names = ["=1+1", "+49", "-x", "@cmd", " =1", "\t=2", "plain", "a=b", 'quo"te,', "line\nbreak", "\ud800"]
    text = statement_csv(sample_report(names))
    text.encode("utf-8")
    written = [line["provider"] for line in csv.DictReader(io.StringIO(text, newline=""))]
    assert sorted(written) == sorted([
        "'=1+1", "'+49", "'-x", "'@cmd", "' =1", "'\t=2", "plain", "a=b", 'quo"te,', "line\nbreak", "?",
    ])  # fmt: skip
    failing = sample_report(["north"], reasons=["=1+1", "\r@x"], failure_rate=1.0)
    items = csv.DictReader(io.StringIO(statements.one(failing, "north", as_csv=True), newline=""))
    assert {item["failure_text"] for item in items} == {"'=1+1", "'\n@x"}, "a lone return ends no row"


def test_every_form_says_which_run_it_is_for() -> None:
    about = {
        "market": "Fraud",
        "consumer": "Harbour Bank",
        "run": "0af3",
        "began": "2026-01-02T03:04:05+00:00",
        "settled": "2026-01-02T03:05:00+00:00",
    }
    report = replace(sample_report(["north", "south"]), **about)  # type: ignore[arg-type]
    money = {"currency": "EUR", "decimals": "2"}
    for found in (statement_dict(report), statements.provider_dict(report, "north")):
        assert about.items() <= found.items()
    for text in (statement_csv(report), statements.one(report, "north", as_csv=True)):
        for line in csv.DictReader(io.StringIO(text)):
            assert {**about, **money}.items() <= line.items()
    first, second, *_ = statements.everyone(report, as_json=False, as_csv=False).splitlines()
    assert first == "Fraud, bought by Harbour Bank"
    assert second == "run 0af3, began 2026-01-02T03:04:05+00:00, settled 2026-01-02T03:05:00+00:00"
