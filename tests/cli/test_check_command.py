"""`bazaar check`: every fault that was put into a market's files is found at once, and nothing else is a fault."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_markets import bazaar, contents, edit, table, write_market
from market_folders import write_customers

from databazaar.config.market_file import parse_all
from databazaar.display import duration
from databazaar.runs.folder import RunFolder

Change = Callable[[pd.DataFrame], pd.DataFrame]


def checked(market: Path, code: int = 0) -> dict[str, Any]:
    told = bazaar("check", market, "--json")
    assert (told.code, told.err) == (code, ""), told
    outcome: dict[str, Any] = json.loads(told.out)
    assert outcome["ok"] == (code == 0) == (not outcome["faults"])
    return outcome


def change(path: Path, how: Change) -> None:
    how(pd.read_csv(path)).to_csv(path, index=False)


def one(sentences: list[str], *parts: str) -> str:
    """The only sentence that has all these parts."""
    (found,) = [sentence for sentence in sentences if all(part in sentence for part in parts)]
    return found


def test_a_sound_market(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    before = contents(tmp_path)
    outcome = checked(market)
    profile, estimate = outcome["profile"], outcome["estimate"]
    assert outcome["warnings"] == []
    assert {c["name"]: (c["understood"], c["example"]) for c in profile["columns"]} == {
        "amount": ("number", str(table(80, 0, "classification")["amount"][0])),
        "hour": ("number", str(table(80, 0, "classification")["hour"][0])),
        "channel": ("category", str(table(80, 0, "classification")["channel"][0])),
    }
    assert [t["rows"] for t in (*profile["own"], *profile["providers"])] == [80, 40, 50, 60]
    share = table(80, 0, "classification")["target"].mean()
    assert profile["own"][0]["balance"] == pytest.approx({"0": 1 - share, "1": share})
    assert estimate["accesses"] == 40 and estimate["rounds"] == 10  # 30.00 EUR at 0.75 on average, four a round
    assert estimate["rows_per_ask"] == 50 and estimate["features"] == 5 and estimate["parameters"] == 12
    assert 0 < estimate["seconds"] < 60
    assert contents(tmp_path) == before


def test_all_faults_of_all_files_at_once(tmp_path: Path) -> None:
    """Settings, a file that is gone, one with several faults and one with another: nothing hides anything."""
    market = write_market(tmp_path)
    edit(market, "per_round = 4", 'per_round = "four"\ncolour = "red"')
    edit(market, 'kind = "osmd"', 'kind = "osmd"\neta = 0.5')
    (tmp_path / "far east.csv").unlink()
    change(
        tmp_path / "north.csv",
        lambda f: f.assign(amount=["broken", *f["amount"][1:]], target=[7, *f["target"][1:]]).drop(columns="channel"),
    )
    change(tmp_path / "south.csv", lambda f: f.assign(hour=["late", "later", *f["hour"][2:]]))
    faults = checked(market, 2)["faults"]
    one(faults, "market.toml: market.per_round = 'four' must be a whole number")
    one(faults, "market.toml: market.colour is not a setting")
    one(faults, "market.toml: sampler.eta is set from Python alone, as OSMD(eta=…): remove it")
    one(faults, "provider 'far east'", "does not exist")
    one(faults, "provider 'north'", "column 'amount' holds the text 'broken'")
    one(faults, "provider 'north'", "the feature column 'channel' of the hold-out is missing")
    one(faults, "provider 'north'", "has the class 7 in data row 1")
    one(faults, "provider 'south'", "column 'hour' holds the text 'late'")
    assert len(faults) == 8


def test_all_faults_of_the_own_file(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    change(
        tmp_path / "holdout.csv",
        lambda f: f.assign(amount=["oops", *f["amount"][1:]], hour=[np.inf, *f["hour"][1:]], target=1),
    )
    outcome = checked(market, 2)
    one(outcome["faults"], "holdout.csv: column 'amount' holds the text 'oops'")
    one(outcome["faults"], "holdout.csv: column 'hour' is not a finite number")
    one(outcome["faults"], "holdout.csv: column 'target' has the single class 1")
    kinds = {column["name"]: column["understood"] for column in outcome["profile"]["columns"]}
    assert kinds == {"amount": "not usable", "hour": "not usable", "channel": "category"}


def test_faults_that_leave_nothing_to_look_at(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    (tmp_path / "holdout.csv").unlink()
    assert [checked(market, 2)[key] for key in ("profile", "estimate")] == [None, None]
    edit(market, "[data]", "[date]")
    one(checked(market, 2)["faults"], "date is not a setting")
    market.write_text("[market\n")
    one(checked(market, 2)["faults"], "not valid TOML")
    market.unlink()
    assert len(checked(market, 2)["faults"]) == 1
    assert "the file does not exist" in bazaar("check", market).out
    pd.DataFrame({"amount": ["oops", *[1.5] * 40], "target": [0, 1] * 20 + [0]}).to_csv(tmp_path / "holdout.csv")
    write_market(tmp_path)
    change(tmp_path / "holdout.csv", lambda f: f[["amount", "target"]].assign(amount=["oops", *f["amount"][1:]]))
    assert checked(market, 2)["profile"] is None


def test_in_a_federation_the_providers_tables_are_not_read(tmp_path: Path) -> None:
    market = write_market(tmp_path, more='\n[federation]\nfolder = "federation"\n')
    edit(market, "[engine]", '[engine]\nkind = "federated"')
    (tmp_path / "north.csv").unlink()
    outcome = checked(market)
    assert outcome["profile"]["providers"] == [] and outcome["estimate"]["seconds"] is None
    assert "rows_per_ask" in outcome["estimate"] and "takes" not in bazaar("check", market).out


def test_providers_that_are_no_list(tmp_path: Path) -> None:
    market = tmp_path / "market.toml"
    table(40, 0, "classification").to_csv(tmp_path / "h.csv", index=False)
    market.write_text('providers = 5\n[market]\nbudget = 9\n[data]\nholdout = "h.csv"\ntarget = "target"\n')
    one(checked(market, 2)["faults"], "providers = 5 must be a list")


def test_a_run_refuses_what_only_the_whole_shows(tmp_path: Path) -> None:
    """A picture that the columns do not make is found by building the job."""
    market = write_market(tmp_path)
    edit(market, 'kind = "logistic"', 'kind = "cnn"')
    one(checked(market, 2)["faults"], "model.image is not given")


def test_every_fault_of_the_settings() -> None:
    settings = tomllib.loads("""
        market = {budget = "ten", per_round = 3}
        data = {holdout = "h.csv", target = "y", task = "regression"}
        model = {kind = "logistic"}
        utility = {kind = "accuracy"}
        engine = {kind = "federated"}
        providers = [{id = "a", price = "0"}, {id = "a", price = "x"}]
    """)
    market, faults = parse_all(settings, "m.toml")
    assert market is not None and len(faults) == 7
    for part in ("budget", "federation", "also the id", "free", "providers[1].price", "logistic", "accuracy"):
        one([f.removeprefix("m.toml: ") for f in faults], part)
    market, faults = parse_all({**settings, "providers": [], "engine": {}, "market": {"budget": 0}})
    assert any("providers is empty" in fault for fault in faults)
    assert parse_all({**settings, "model": {"kind": "mlp", "hidden": []}})[0] is None


def leak(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame, table(80, 0, "classification").head(9)])


WARNINGS: dict[str, tuple[Change, tuple[str, ...]]] = {
    "copies of the hold-out": (leak, ("9 of your 80 hold-out rows are in this table too", "take them out")),
    "other spellings": (
        lambda f: f.assign(channel=f["channel"].str.upper()),
        ("column 'channel' spells categories differently", "(yours: 'web')"),
    ),
    "a typing error": (
        lambda f: f.assign(channel=f["channel"].replace("phone", "phonee")),
        ("'phonee' (yours: 'phone')",),
    ),
    "unseen categories": (
        lambda f: f.assign(channel=f["channel"].replace("web", "kiosk")),
        ("column 'channel' has categories that your rows do not have", "such as 'kiosk'"),
    ),
    "another unit": (
        lambda f: f.assign(amount=100 * f["amount"]),
        ("column 'amount' lies", "standard deviations from yours", "same unit"),
    ),
    "another range": (
        lambda f: f.assign(hour=(f["hour"] + 11) % 31),
        ("column 'hour' is outside the range of your rows in",),
    ),
    "one class": (lambda f: f.assign(target=1), ("all its rows are of the class '1'",)),
    "flipped labels": (
        lambda f: f.assign(target=[0] * (len(f) - 3) + [1] * 3),
        ("the class '", "check that it means the same"),
    ),
    "an empty column": (lambda f: f.assign(hour=None), ("column 'hour' is empty: fill it in",)),
    "many gaps": (
        lambda f: f.assign(amount=f["amount"].where(np.arange(len(f)) % 2 == 0)),
        ("column 'amount' is empty in 50% of the rows",),
    ),
    "repeated rows": (lambda f: pd.concat([f, f.head(10)]), ("10 of its", "rows repeat another one")),
    "more columns": (lambda f: f.assign(colour="red"), ("columns that your rows do not have, 'colour'", "not used")),
    "rows without a target": (
        lambda f: f.assign(target=f["target"].where(f.index > 0)),
        ("1 of its rows have no 'target' and are left out",),
    ),
}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The warnings of one market in which everything that can be odd is, each at a provider of its own."""
    folder = tmp_path_factory.mktemp("seeded")
    providers = ""
    for place, (name, (how, _)) in enumerate(WARNINGS.items()):
        how(table(50, place + 10, "classification")).to_csv(folder / f"{name}.csv", index=False)
        providers += f'\n[[providers]]\nid = "{name}"\nfile = "{name}.csv"\n'
    return list(checked(write_market(folder, more=providers))["warnings"])


@pytest.mark.parametrize("name", WARNINGS)
def test_what_is_odd_about_a_provider_is_said(seeded: list[str], name: str) -> None:
    one(seeded, f"{name}.csv: ", *WARNINGS[name][1])


def test_nothing_is_said_of_the_others(seeded: list[str]) -> None:
    assert {warning.partition(".csv: ")[0] for warning in seeded} == set(WARNINGS)


OWN: dict[str, tuple[Change, tuple[str, ...]]] = {
    "a constant": (lambda f: f.assign(year=2013), ("column 'year' has the same value in every row",)),
    "an identifier": (
        lambda f: f.assign(customer_id=range(len(f))),
        ("column 'customer_id' has another value in every row", "listing the other columns"),
    ),
    "two spellings": (
        lambda f: f.assign(channel=["Web", *f["channel"][1:]]),
        ("column 'channel' has both 'Web' and 'web'",),
    ),
    "free text": (
        lambda f: f.assign(note=[f"note {i % 70}" for i in range(len(f))]),
        ("column 'note' has 70 different texts in 80 rows", "group its values"),
    ),
    "few of a class": (
        lambda f: f.assign(target=[int(i < 4) for i in range(len(f))]),
        ("fewer than ten of your rows", "'1'"),
    ),
}


def test_what_is_odd_about_the_own_rows_is_said(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    for how, _ in OWN.values():
        for file in tmp_path.glob("*.csv"):
            change(file, how)
    warnings = checked(market)["warnings"]
    for _, parts in OWN.values():
        one(warnings, "holdout.csv: ", *parts)


def test_a_column_that_tells_nothing_is_left_out(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    change(tmp_path / "holdout.csv", lambda f: f.assign(remark=None))
    last = checked(market)["profile"]["columns"][-1]
    assert last == {"name": "remark", "understood": "left out", "why": "empty", "example": ""}


def test_dates_that_are_marked_as_categories(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    for file in tmp_path.glob("*.csv"):
        change(file, lambda f: f.assign(day=[f"2024-01-{1 + i % 9:02}" for i in range(len(f))]))
    assert checked(market)["profile"]["columns"][-1]["understood"] == "date"
    edit(market, 'task = "classification"', 'task = "classification"\ncategorical = ["day"]')
    one(checked(market)["warnings"], "column 'day' holds dates and is read as categories")


def test_columns_are_shown_as_they_are_read(tmp_path: Path) -> None:
    folder = write_customers(tmp_path)
    assert bazaar("init", folder).code == 0
    told = bazaar("check", folder / "market.toml")
    assert told.code == 0 and "no faults" in told.out
    for row in ("Kundennummer left out (not among `features`)", "Preis number", "Vertrag seit date", "Ort category"):
        assert row in " ".join(told.out.split()), row
    assert "hold-out, nord, ost, süd" in told.out  # that they are in Windows' letters is said once
    assert told.out.count("Windows-1252") == 1
    assert "A run: about" in told.out and "rounds" in told.out
    outcome = checked(folder / "market.toml")
    ages = pd.read_csv(folder / "nord.csv", sep=";", encoding="cp1252", decimal=",")["Alter"]
    assert outcome["profile"]["providers"][0]["missing"] == pytest.approx(ages.isna().mean() / 5)


def test_names_of_columns_stand_whole_beside_long_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    market = write_market(tmp_path)
    texts = [" ".join(f"word{(place * step) % 97}" for step in range(1, 30)) for place in range(200)]
    for file in tmp_path.glob("*.csv"):
        change(file, lambda f: f.assign(note=texts[: len(f)]))
    told = bazaar("check", market).out
    lines = told[: told.index("The tables")].splitlines()
    assert {"column", "amount", "hour", "channel", "note"} <= {line.split()[0] for line in lines if line.strip()}
    assert max(map(len, lines)) <= 80


def test_a_wide_market_in_the_terminal(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    for file in tmp_path.glob("*.csv"):
        change(file, lambda f: f.assign(**{f"more_{i}": f["hour"] * i for i in range(1, 45)}))
    told = bazaar("check", market)
    assert told.code == 0 and "7 more columns stand in the JSON" in told.out
    edit(market, 'file = "south.csv"', 'file = "gone.csv"')
    told = bazaar("check", market)
    assert told.code == 2 and "To be mended before a run" in told.out and "1 fault, " in told.out


def test_a_regression(tmp_path: Path) -> None:
    market = write_market(tmp_path, "regression")
    change(tmp_path / "north.csv", lambda f: f.assign(target=f["target"] + 500))
    change(tmp_path / "south.csv", lambda f: f.assign(target=["much", *f["target"][1:]]))
    outcome = checked(market, 2)
    one(outcome["warnings"], "north.csv: column 'target' lies")
    one(outcome["faults"], "provider 'south'", "column 'target' holds the text 'much'")
    north = outcome["profile"]["providers"][0]
    assert north["shifted"] == "target" and north["balance"] == {} and north["outside"] > 0.3


@pytest.mark.usefixtures("no_figures")
def test_the_run_keeps_the_profile_and_shows_it(tmp_path: Path) -> None:
    market = write_market(tmp_path)
    change(tmp_path / "south.csv", leak)
    assert bazaar("run", market, "--out", tmp_path / "run", "-q").code == 0
    kept = RunFolder(tmp_path / "run").profile()
    assert kept is not None and kept.model_dump(mode="json") == checked(market)["profile"]
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "9 of your 80 hold-out rows are in this table too" in page
    for spoilt in ("{}", "not JSON", '{"target": 5}'):
        (tmp_path / "run/profile.json").write_text(spoilt)
        assert RunFolder(tmp_path / "run").profile() is None
    told = bazaar("show", tmp_path / "run", "report")
    assert told.code == 1 and "profile.json has another profile than the ledger's first entry names" in told.err
    assert "The tables before" not in (tmp_path / "run/report.html").read_text(encoding="utf-8")


def test_durations_are_rounded_to_what_matters() -> None:
    assert [duration(s) for s in (89, 91, 5399, 5401)] == ["89 seconds", "2 minutes", "90 minutes", "1.5 hours"]
