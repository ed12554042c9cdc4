"""`bazaar compare` on real files: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from cli_markets import ENVIRONMENT, PROVIDERS, bazaar, contents, edit, write_market

from databazaar.cli.compare import MARKETS
from databazaar.valuation import METHODS
from processes import BAZAAR, PATIENCE, Forked, wait_until

FILES = {"comparison.html", "comparison.png", "comparison.csv", "comparison.json"}


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three providers at unequal prices, three draws a round; tests only read it."""
    folder = tmp_path_factory.mktemp("market")
    path = write_market(folder, budget='"12.00"')
    edit(path, "per_round = 4", "per_round = 3")
    return path


@pytest.fixture(scope="module")
def all_methods(market: Path) -> dict[str, object]:
    done = bazaar("compare", market, "--methods", ",".join(METHODS), "--out", "all", "--max-seconds", "1", "--json")
    assert done.code == 0, done.err
    told: dict[str, object] = json.loads(done.out)
    return told


@pytest.fixture(scope="module", autouse=True)
def here(tmp_path_factory: pytest.TempPathFactory) -> object:
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("here"))
    yield
    os.chdir(before)


def test_help_has_examples_and_names_every_method() -> None:
    told = bazaar("compare", "--help")
    assert told.code == 0 and "  bazaar compare market.toml" in told.out.split("Examples:\n")[1]
    assert all(re.search(rf"\b{name}\b", told.out) for name in METHODS if METHODS.is_bundled(name))


def test_all_methods_run_and_every_payout_is_whole(all_methods: dict[str, object]) -> None:
    assert {path.name for path in Path("all").iterdir()} == FILES
    assert all_methods["providers"] == list(PROVIDERS) and all_methods["budget"] == 1200
    methods = {told["method"]: told for told in all_methods["methods"]}  # type: ignore[attr-defined]
    assert list(methods) == list(METHODS)
    for name, told in methods.items():
        (paid,) = told["payouts"]
        assert all(isinstance(amount, int) and amount >= 0 for amount in paid)
        assert sum(paid) <= 1200 if name in MARKETS else sum(paid) == 1200
        assert told["seconds"] > 0 and told["oracle_calls"] > 0
        assert (told["final_utility"] is None) == (name in ("g-shapley", "tmc", "loo", "exact"))
    assert json.loads(Path("all/comparison.json").read_text()) == {
        key: value for key, value in all_methods.items() if key != "folder"
    }


def test_osmd_pays_what_a_run_pays(market: Path, all_methods: dict[str, object]) -> None:
    """The market's own sampler and seed: the comparison is of the very run that `bazaar run` would make."""
    done = bazaar("run", market, "--out", "run", "--json")
    assert done.code == 0, done.err
    ran = {line["provider"]: line["pay"] for line in json.loads(done.out)["providers"]}
    methods = {told["method"]: told["payouts"] for told in all_methods["methods"]}  # type: ignore[attr-defined]
    assert methods["osmd"] == methods["market"] == [[ran[provider] for provider in PROVIDERS]]


def test_tables_intervals_and_a_line_of_progress_a_method(market: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = bazaar("compare", market, "--methods", "osmd, loo", "--seeds", "3")
    assert done.code == 0, done.err
    folder = Path("runs/small-market-compare-1")
    assert {path.name for path in folder.iterdir()} == FILES
    for text in (
        "Who is paid what, in EUR",
        "–",
        "Rank correlation of payouts",
        "What it cost, mean over seeds",
        "utility evaluations",
        "loo stopped: everybody, and each of 3 left out once",
        "a rank that would survive another seed",
        f"comparison  {folder / 'comparison.html'}",
    ):
        assert text in done.out
    assert all(re.search(rf"^ {name} +\d", done.out, flags=re.MULTILINE) for name in PROVIDERS)
    assert [line.split()[0] for line in done.err.splitlines() if line.strip()] == ["osmd", "loo"]
    rows = list(csv.DictReader((folder / "comparison.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 2 * len(PROVIDERS) and {row["rank_survives"] for row in rows} <= {"yes", "no"}
    assert all(0 <= float(row["low"]) <= float(row["pay"]) <= float(row["high"]) for row in rows)
    two = bazaar("compare", market, "--methods", "osmd,loo", "--seeds", "2", "--out", "two")
    assert two.code == 0 and "(–)" in two.out and "±" not in two.out and "survive" not in two.out
    rows = list(csv.DictReader(Path("two/comparison.csv").read_text(encoding="utf-8").splitlines()))
    assert {(row["low"], row["high"], row["rank_survives"]) for row in rows} == {("", "", "")}
    page = Path("two/comparison.html").read_text()
    assert "seeds were</bdi>" not in page and "2 seeds were run" in page
    again = bazaar("compare", market, "--methods", "loo", "--quiet")
    assert again.out == "runs/small-market-compare-2/comparison.html\n" and again.err == ""


def test_a_uniform_market_has_osmd_from_theory_and_a_narrow_terminal_breaks_cells(
    market: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    other = market.with_name("uniform.toml")
    other.write_text(market.read_text().replace('kind = "osmd"', 'kind = "uniform"'))
    done = bazaar("compare", other, "--methods", "osmd,uniform,loo", "--out", "narrow", "--mode", "shifted")
    assert done.code == 0, done.err
    paid = done.out.split("Rank correlation")[0]
    assert paid.count("provider ") == 1 and "…" not in paid
    told = json.loads(Path("narrow/comparison.json").read_text())
    assert [method["results"][0]["method"] for method in told["methods"]] == ["osmd", "uniform", "leave-one-out"]
    samplers = [method["results"][0]["settings"].get("sampler", {}).get("kind") for method in told["methods"]]
    assert samplers == ["osmd", "uniform", None]


@pytest.mark.parametrize("providers", [30, 31, 33])
def test_of_many_providers_the_first_are_printed_and_all_are_written(
    market: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, providers: int
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    more = "".join(f'\n[[providers]]\nid = "p{i}"\nfile = "north.csv"\nprice = "0.50"\n' for i in range(providers - 3))
    crowd = market.with_name("crowd.toml")
    crowd.write_text(market.read_text() + more)
    done = bazaar("compare", crowd, "--methods", "uniform", "--out", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    hidden = f"{providers - 30} more providers stand in out/comparison.csv"
    assert (hidden in done.out) == (providers > 30) and ("more providers" in done.out) == (providers > 30)
    rows = list(csv.DictReader((tmp_path / "out/comparison.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == providers


REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown method": (("--methods", "osmd,uniformly"), ("'uniformly' is unknown", "did you mean uniform?", "tmc")),
    "no near name": (("--methods", "zzz"), ("'zzz' is unknown", "The methods are osmd, uniform")),
    "no method": (("--methods", " , "), ("--methods is empty", "loo")),
    "no time": (("--max-seconds", "0"), ("--max-seconds 0", "above 0")),
    "endless": (("--max-seconds", "nan"), ("--max-seconds nan", "above 0")),
    "federated": (("--engine", "federated"), ("federated market cannot be compared", "--engine vectorized")),
    "unknown engine": (("--engine", "steam"), ("engine.kind = 'steam'",)),
    "folder exists": (("--out", "taken"), ("taken exists already", "--out")),
    "parent is a file": (("--out", "file/out"), ("file/out cannot be made", "--out")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_one_sentence_and_leave_nothing(market: Path, tmp_path: Path, case: str) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("")
    before = contents(tmp_path)
    args, words = REFUSED[case]
    complaint = bazaar("compare", market, *args, cwd=tmp_path).complaint
    assert all(word in complaint for word in words), complaint
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--seeds", "0", "greater than or equal to 1"),
        ("--seed", "-1", "greater than or equal to 0"),
        ("--mode", "both", "'shifted'"),
    ],
)
def test_numbers_and_words_out_of_range_are_refused(market: Path, option: str, value: str, says: str) -> None:
    before = contents(Path())
    done = bazaar("compare", market, option, value)
    assert (done.code, done.out) == (2, "") and option in done.err and says in done.err, done
    assert contents(Path()) == before


def test_what_cannot_work_is_refused_before_anything_runs(market: Path, tmp_path: Path) -> None:
    text = market.read_text()
    more = "".join(f'\n[[providers]]\nid = "p{i}"\nfile = "north.csv"\nprice = "0.50"\n' for i in range(18))
    crowded = market.with_name("crowded.toml")
    crowded.write_text(text + more)
    complaint = bazaar("compare", crowded, "--methods", "osmd,exact", cwd=tmp_path).complaint
    assert "2^21" in complaint and "at most 20" in complaint and "use tmc" in complaint
    large = market.with_name("large.toml")
    large.write_text(text.replace("per_round = 3", "per_round = 4"))
    complaint = bazaar("compare", large, "--methods", "osmd,uniform-without-replacement", cwd=tmp_path).complaint
    assert "draws each provider at most once" in complaint and "lower per_round" in complaint
    complaint = bazaar("compare", tmp_path / "no.toml", cwd=tmp_path).complaint
    assert "no.toml: the file does not exist" in complaint
    assert contents(tmp_path) == {}


@pytest.mark.process
def test_interrupted_it_leaves_nothing_behind(market: Path, tmp_path: Path) -> None:
    process = Forked(
        [BAZAAR, "compare", market, "--methods", "tmc,exact,loo", "--seeds", "500", "--out", "deep/er/out"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "deep").exists, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "bazaar: interrupted; nothing was written"
    assert contents(tmp_path) == {}
