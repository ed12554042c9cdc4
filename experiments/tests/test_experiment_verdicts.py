"""Verdicts on made-up results whose truth is known, and the page that tells them."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from databazaar_experiments.command import _print_verdicts
from databazaar_experiments.figures import write_figures
from databazaar_experiments.page import render
from databazaar_experiments.plan import ReproductionPlan
from databazaar_experiments.results import gather, write_raw
from databazaar_experiments.settings_tables import settings_tables
from databazaar_experiments.tables import Cell, accuracy_table
from databazaar_experiments.verdicts import REVENUE, UNKNOWN, Verdict, judge, why
from small_runs import pretended
from test_experiment_settings import DIFFERS
from undrawn import BLANK

pytestmark = pytest.mark.slow

PLAN = ReproductionPlan(whats=("revenue", "accuracy", "runtime", "mixture"), datasets=("mnist", "cifar10"))
MNIST = {  # published: 227.0, 117.5, 34.3, 17.3 for OSMD; 168.8, 135.3, 87.7, 15.5 for FedSV-PS
    ("mnist", "osmd"): ([240.0, 110.0, 39.0, 13.0], 0.8960),
    ("mnist", "uniform"): ([50.0] * 4, 0.8710),
    ("mnist", "fedsv"): ([168.8, 135.3, 87.7, 18.5], 0.5),
    ("cifar10", "g-shapley"): ([110.0, 112.0, 109.0, 95.0], 0.5),
    ("mixture", "osmd"): ([356.4, 138.3, 67.4, 48.5], 4.6),
    ("mixture", "uniform"): ([150.0] * 4, 26.2),
    ("mixture", "g-shapley"): ([35.5, 115.0, 186.0, 254.9], 4.6),
}


@pytest.fixture
def only_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their drawings, which take nearly all the time: for tests that read the words beside them."""
    for name in ("revenue", "accuracy", "runtime", "mixture"):
        monkeypatch.setattr(f"databazaar_experiments.figures.{name}", lambda *_: None)
    monkeypatch.setattr("databazaar_experiments.page.inline_svg", lambda figure, name: BLANK)


def one(verdicts: list[Verdict], target: str, dataset: str, method: str) -> Verdict:
    (found,) = [v for v in verdicts if (v.dataset, v.method) == (dataset, method) and target in v.target]
    return found


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    return judge(pretended(tmp_path_factory.mktemp("parts"), MNIST, PLAN))


@pytest.mark.parametrize(
    ("target", "dataset", "method", "holds"),
    [
        ("accuracy", "mnist", "osmd", True),  # off by 0.0084
        ("accuracy", "mnist", "uniform", False),  # off by 0.0105
        ("revenue of each", "mnist", "osmd", True),  # small groups are within 5 units
        ("revenue of each", "mnist", "fedsv", False),  # one group is off by 19 %
        ("revenue of each", "mnist", "g-shapley", None),
        ("estimation error", "mixture", "osmd", True),
        ("estimation error", "mixture", "uniform", False),  # off by 5.9 %
        ("by quality", "mnist", "osmd", True),
        ("by quality", "cifar10", "osmd", None),
        ("wrong way round", "mixture", "g-shapley", True),
        ("does not tell", "cifar10", "g-shapley", True),
        ("beats uniform", "mnist", "osmd", True),
        ("beats uniform", "mixture", "osmd", True),
        ("beats uniform", "cifar10", "osmd", None),
    ],
)
def test_a_verdict(verdicts: list[Verdict], target: str, dataset: str, method: str, holds: bool | None) -> None:
    found = one(verdicts, target, dataset, method)
    assert found.holds is holds, found
    assert bool(found.reason) == (found.holds is False), "what fails has a reason, and nothing else has"


def test_what_is_far_off_is_said_with_its_group(verdicts: list[Verdict]) -> None:
    far = one(verdicts, "revenue of each", "mnist", "fedsv")
    assert far.difference == "+19.4 % (β = 90 %)" and "3.0 units" in far.reason


MISSED = Verdict(REVENUE, "mnist", "fedsv", "", "", "", "", False, "10", units=3.0, least=True)


@pytest.mark.parametrize(
    ("verdict", "plan", "words"),
    [
        (MISSED, PLAN, "SV − min(SV)"),
        (replace(MISSED, units=20.0), PLAN, UNKNOWN),  # the data are the authors'
        (replace(MISSED, least=False), PLAN, UNKNOWN),
        (replace(MISSED, method="osmd"), PLAN, UNKNOWN),  # whose pay is not SV − min(SV)
        (replace(MISSED, target="final test accuracy"), PLAN, UNKNOWN),
        (replace(MISSED, target="beats uniform sampling at the end", method="osmd"), PLAN, UNKNOWN),
        (MISSED, replace(PLAN, protocol="text"), "other settings than the paper’s text"),
        (MISSED, replace(PLAN, protocol="quick"), "small synthetic market"),
        (MISSED, replace(PLAN, changes={"eta": "{9}"}), "command line: eta = {9}."),
    ],
)
def test_a_reason(verdict: Verdict, plan: ReproductionPlan, words: str) -> None:
    assert words in why(verdict, plan)


@pytest.mark.usefixtures("only_words")
def test_the_page_and_the_terminal_say_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = pretended(tmp_path, MNIST, PLAN)
    page = render(results)
    failing = [v for v in judge(results) if v.holds is False]
    assert failing and page.count("Why: ") == len(failing)
    _print_verdicts(failing)
    printed = capsys.readouterr().out
    assert printed.count("does not hold. ") == len(failing) and "3.0 units" in printed


@pytest.mark.usefixtures("only_words")
def test_the_page_says_where_osmd_draws_without_replacement(tmp_path: Path) -> None:
    without = "draws the providers of a round without replacement here"
    for plan, said in [
        (PLAN, True),
        (replace(PLAN, changes={"images.repeats": "count"}), False),
        (replace(PLAN, changes={"mixture.repeats": "never"}), True),
        (replace(PLAN, methods=("uniform",)), False),
        (replace(PLAN, protocol="text"), False),
    ]:
        assert (without in render(gather(plan, tmp_path))) is said, plan


@pytest.mark.usefixtures("only_words")
def test_no_published_numbers_is_said_and_not_left_blank(tmp_path: Path) -> None:
    results = pretended(tmp_path, MNIST, replace(PLAN, datasets=("mnist", "kmnist", "cifar10")))
    page = render(results)
    assert "KMNIST and CIFAR-10: no published numbers. The paper draws them" in page
    assert "KMNIST: no published numbers. The paper draws it" in page and "MNIST: not compared" not in page
    shown = {row.head.partition(",")[0]: row.cells[2].text for row in accuracy_table(results).rows}
    assert shown["KMNIST"] == shown["CIFAR-10"] == "not published" and shown["MNIST"] == "0.8605"


@pytest.mark.usefixtures("only_words")
@pytest.mark.parametrize(
    ("protocol", "cell"), [("figures", Cell("0.1", "text: 0.0")), ("text", Cell("0.0", "figures: 0.1"))]
)
def test_settings_show_where_the_other_protocol_differs(tmp_path: Path, protocol: str, cell: Cell) -> None:
    results = gather(replace(PLAN, protocol=protocol, datasets=("mnist",)), tmp_path)
    tables = settings_tables(results)
    rows = {row.head: row for row in tables[0].rows}
    assert rows["momentum"].cells == (cell,)
    assert rows["rounds"].cells == (Cell("500"),) and not rows["rounds"].marked, "what is alike is not marked"
    marked = [row.head for table in tables for row in table.rows if row.marked]
    assert len(marked) == 15, "eleven of the images, four of the mixture"
    assert set(marked) == set(DIFFERS.split())
    page = render(results)
    assert "15 settings of these differ" in page and page.count('<tr class="differs">') == 15


def test_few_seeds_make_a_preliminary_verdict(tmp_path: Path) -> None:
    pretended(tmp_path, MNIST, replace(PLAN, seeds=2, mixture_seeds=2))
    verdicts = judge(pretended(tmp_path, {}, PLAN))
    found = one(verdicts, "accuracy", "mnist", "osmd")
    assert (found.seeds, found.word) == ("2 of 10", "holds so far")


@pytest.mark.usefixtures("only_words")
def test_a_market_of_another_size_is_not_compared(tmp_path: Path) -> None:
    plan = replace(PLAN, changes={"providers": "50", "runtime.providers": "10"})
    results = pretended(tmp_path, MNIST, plan)
    assert not [v for v in judge(results) if "accuracy" in v.target or "revenue" in v.target]
    assert "published 227.0" not in render(results)


class Outside(HTMLParser):
    """Collects what a page would load and text that nothing isolates, and checks that its elements close."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []
        self.loose: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(v) for k, v in attrs if k in ("src", "href", "xlink:href") and not str(v).startswith("#")]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [str(v) for k, v in attrs if k in ("src", "href", "xlink:href") and not str(v).startswith("#")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "bdi" not in self.open:
            self.loose.append(data)


def test_the_page_is_whole_offline_and_escaped(tmp_path: Path) -> None:
    results = pretended(tmp_path, MNIST, replace(PLAN, changes={"momentum": "0.1"}))
    page = render(results)
    outside = Outside()
    outside.feed(page)
    assert outside.loads == [] and outside.open == []
    assert "url(http" not in page and "@import" not in page
    assert "a &lt;machine&gt; &amp; more" in page and "<machine>" not in page
    assert not any("<machine>" in text or "momentum = " in text for text in outside.loose), "a name is not isolated"
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert page.index("What came out") < page.index("What is missing") < page.index("Figure 1")
    for words in ("Does not hold", "0 of 10 seeds computed", "Runtime study: 0 of 32", "momentum = 0.1", "published"):
        assert words in page, words
    assert page == render(results)


def test_raw_tables_and_figures_come_out_whole(tmp_path: Path) -> None:
    results = pretended(tmp_path / "parts", MNIST, PLAN)
    names = {path.name for path in write_raw(results, tmp_path / "raw")}
    assert names == {f"{n}.parquet" for n in ("revenue", "accuracy", "mixture_error", "runtime", "cases")}
    revenue = pd.read_parquet(tmp_path / "raw" / "revenue.parquet")
    assert list(revenue.columns) == ["dataset", "method", "seed", "provider", "group", "pay"]
    mine = revenue[(revenue.dataset == "mnist") & (revenue.method == "osmd")]
    assert len(mine) == 1000 and mine[mine.group == 1].pay.unique().tolist() == [110.0]
    paths = write_figures(results, tmp_path / "figures")
    assert {path.name for path in paths} == {
        f"{name}.{kind}" for name in ("revenue", "accuracy", "runtime", "mixture") for kind in ("png", "svg")
    }
    assert all(path.stat().st_size > 5_000 for path in paths)
