"""The report's section on what the purchase was worth: what it says, and that it is honest about chance."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from html_pages import Page
from report_samples import sample_report, sample_worth

from databazaar.ledger.audit import BestModel
from databazaar.reports.run_page import render
from databazaar.runs.purchase import OWN, EvaluatedModel, PurchaseEvaluation
from databazaar.runs.report import Report

pytestmark = pytest.mark.usefixtures("no_figures_here")


def page_with(worth: PurchaseEvaluation | None, report: Report | None = None) -> Page:
    return Page(render(replace(report or sample_report(), worth=worth), title="A run"))


def test_every_model_is_set_beside_the_bought_one() -> None:
    page = page_with(sample_worth(notes=["One thing was not tried."]))
    assert page.row_heads[:4] == [
        "the bought model",
        "your own rows alone",
        "everybody asked alike",
        "the best single provider (north, of the 3 paid most)",
    ]
    for wanted in (
        "Was it worth it?",
        "0.35",  # own rows' log loss
        "+0.05 ± 0.01",
        "−0.05 ± 0.02",
        "All on the same 1,234 audit rows",
        "95 % intervals of the bought model: accuracy 0.88 to 0.92.",
        "One thing was not tried.",
    ):
        assert wanted in page.words, wanted


def test_without_a_judgement_there_is_no_section() -> None:
    assert "worth it" not in page_with(None).words


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [
        (0.05, "It was worth it: the bought model beats your own rows alone by 0.05 ± 0.01 in log loss"),
        (-0.05, "It was not worth it: your own rows alone beat the bought model by 0.05 ± 0.01 in log loss"),
        (0.015, "It cannot be told whether it was worth it: the bought model may be ahead, by 0.015 ± 0.01"),
        (-0.015, "It cannot be told whether it was worth it: your own rows alone may be ahead, by 0.015 ± 0.01"),
        (math.nan, "On 1,234 audit rows there is nothing to compare the bought model with."),
    ],
)
def test_the_verdict_is_honest_about_chance(ahead: float, verdict: str) -> None:
    assert verdict in page_with(sample_worth(ahead=ahead)).words


def test_one_audit_row_tells_nothing() -> None:
    worth = sample_worth()
    worth = replace(worth, rows=1, others=(replace(worth.others[0], error=math.nan),))
    kept = PurchaseEvaluation.from_dict(json.loads(json.dumps(worth.to_dict())))
    assert kept.verdict == "One audit row is too few to tell whether it was worth it."
    assert "+0.05 ± –" in page_with(kept).words


def test_what_is_kept_comes_back_whole_and_what_is_undefined_as_a_dash() -> None:
    worth = sample_worth(notes=["A note."])
    assert PurchaseEvaluation.from_dict(json.loads(json.dumps(worth.to_dict()))) == worth
    undefined = replace(worth, bought=replace(worth.bought, metrics={**worth.bought.metrics, "auc": math.nan}))
    kept = json.loads(json.dumps(undefined.to_dict(), allow_nan=False))
    assert kept["bought"]["metrics"]["auc"] is None
    assert math.isnan(PurchaseEvaluation.from_dict(kept).bought.metrics["auc"])
    assert "–" in page_with(PurchaseEvaluation.from_dict(kept)).words


def test_what_was_not_kept_by_us_is_refused() -> None:
    kept = sample_worth().to_dict()
    strange = {**kept, "others": [{**kept["others"][0], "kind": "<b>"}]}
    unlike = {**kept, "others": [{**kept["others"][0], "metrics": {"rmse": 1.0}}]}
    for changed in (strange, unlike, {**kept, "rows": "many"}, {}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            PurchaseEvaluation.from_dict(changed)


def test_a_regression_is_told_in_squared_error() -> None:
    def measured(rmse: float) -> dict[str, float]:
        return {"rmse": rmse, "mae": rmse / 2, "r2": 0.5}

    bought = EvaluatedModel("bought", measured(2.0))
    worth = PurchaseEvaluation("regression", 50, bought, (EvaluatedModel(OWN, measured(3.0), 5.0, 1.0),))
    assert "by 5 ± 1 in squared error on 50 audit rows" in page_with(worth).words


def test_the_page_says_which_model_was_delivered_where_it_is_not_the_last() -> None:
    report = sample_report()
    best = BestModel(3, 0.7531, 0.28, report.model_hash)
    told = "The best model, of utility 0.7531 after 3 rounds, is the one that was delivered."
    earlier = replace(report, best=best, last_model_hash="cd" * 32)
    assert told in page_with(None, earlier).words
    last = replace(report, best=best, last_model_hash=report.model_hash)
    assert "was delivered" not in page_with(None, last).words
