"""`bazaar attack` on real files: what it prints, that it writes nothing, and what it refuses."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_markets import bazaar, contents, edit, write_market

from databazaar import BazaarError, Consumer, Provider
from databazaar.config.jobs import market_job
from databazaar.defence import Defence
from databazaar_experiments.attacks.command import DEFAULT
from databazaar_experiments.attacks.kinds import KINDS
from databazaar_experiments.attacks.market import Attacked
from databazaar_experiments.attacks.rehearsal import Rehearsal
from databazaar_experiments.attacks.tables import Row, remarks


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three providers, two of them of one owner; tests only read it."""
    return write_market(tmp_path_factory.mktemp("market"), budget='"9.00"')


@pytest.fixture(scope="module")
def told(market: Path) -> dict[str, Any]:
    before = contents(market.parent)
    done = bazaar("attack", market, "--kind", ",".join(KINDS), "--json", cwd=market.parent)
    assert done.code == 0 and not done.err, done.err
    assert contents(market.parent) == before
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_help_has_examples_and_names_every_kind() -> None:
    said = bazaar("attack", "--help")
    assert said.code == 0 and "  bazaar attack market.toml" in said.out.split("Examples:\n")[1]
    assert all(re.search(rf"\b{kind}\b", said.out) for kind in KINDS) and set(DEFAULT.split(",")) < set(KINDS)


def test_every_kind_is_played_plain_and_defended(told: dict[str, Any]) -> None:
    assert told["defences"] == ["none", "standard"] and told["seeds"] == [3]
    assert (told["metric"], told["judged_by"]) == ("accuracy", "audit rows")
    titles = [(row["kind"], row["attack"]) for row in told["attacks"]]
    alone = [(kind, one.title) for kind, every in KINDS.items() for one in every if one.places == 1]
    pairs = [(kind, one.title) for kind, every in KINDS.items() for one in every if one.places == 2]
    assert titles == [("honest", "honest"), *alone, ("honest", "two, honest"), *pairs]
    for row in told["attacks"]:
        for outcome in row["outcomes"].values():
            assert all(len(outcome[name]) == 1 for name in ("earns", "model", "trigger", "caught", "wronged"))
            assert all(0 <= number <= 1 for name in ("earns", "model", "trigger") for number in outcome[name])
    earned = {row["attack"]: row["outcomes"]["none"]["earns"][0] for row in told["attacks"]}
    assert earned["asks 5 times the price"] != earned["honest"] > earned["answers when it suits"]


def test_nobody_attacking_is_the_run_that_the_market_makes(market: Path, told: dict[str, Any]) -> None:
    paid = {payout.provider: payout.pay for payout in market_job(market).arbiter().run().payouts}
    best = max(paid, key=lambda id: paid[id])
    honest, *_, pair = told["attacks"]
    assert honest["providers"] == [best] and honest["outcomes"]["none"]["earns"] == [paid[best] / 900]
    owners = {"north": "compass", "south": "compass", "far east": "far east"}
    assert len({owners[id] for id in pair["providers"]}) == 2 and pair["providers"][0] == best


def test_the_table_fits_a_narrow_terminal_and_says_how_sure_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    market = write_market(tmp_path, budget='"9.00"')
    edit(market, 'target = "target"', 'target = "target"\naudit = 0')
    monkeypatch.setenv("COLUMNS", "80")
    done = bazaar("attack", market, "--kind", "leak,backdoor", "--provider", "far east", "--seeds", "2")
    assert done.code == 0 and "…" not in done.out and "hides a trigger" in done.err
    assert done.out.startswith("far east attacks, 2 seeds:") and "none → standard" in done.out
    line = next(line for line in done.out.splitlines() if "has seen all the hold-out" in line)
    assert re.search(r"\d+\.\d → \d+\.\d +\d+\.\d → \d+\.\d +\d+ → \d+ +\d of 2", line)
    assert "standard error" in done.out and "no audit rows" in done.out
    quiet = bazaar("attack", market, "--kind", "price", "--quiet", "--defence", "strict")
    assert quiet.code == 0 and not quiet.err and "trigger" not in quiet.out and "none → strict" in quiet.out
    assert "one seed says little" in quiet.out
    market.write_text(market.read_text(encoding="utf-8") + '\n[defence]\nkind = "strict"\n', encoding="utf-8")
    assert "none → strict" in bazaar("attack", market, "--kind", "zero", "--quiet").out  # the market's own


def test_what_cannot_be_played_is_left_out_or_refused(tmp_path: Path) -> None:
    """A market of numbers has no classes, and one of a single provider no pairs."""
    numbers = write_market(tmp_path / "numbers", task="regression", budget='"10.00"')
    done = bazaar("attack", numbers, "--kind", "backdoor,sign")
    assert done.complaint == (
        "bazaar: --kind backdoor cannot be played here: this attack needs a model that tells classes apart"
    )
    edit(numbers, 'budget = "10.00"', 'budget = "5.00"')
    alone = numbers.read_text(encoding="utf-8")
    first, second, third, *_ = re.split(r"(?=\[\[providers\]\])", alone)
    numbers.write_text(first + second, encoding="utf-8")
    assert "takes 2 providers: this market has 1" in bazaar("attack", numbers, "--kind", "collude").complaint
    done = bazaar("attack", numbers)
    assert done.code == 0, done.err
    assert "- backdoor was left out: this attack needs a model that tells classes apart" in done.out
    assert "- collude was left out: " in done.out and "loss on the audit rows" in done.out
    assert "- price was left out: budget = 500 cannot pay" in done.out and third


REFUSED = {
    "an unknown kind": (["--kind", "clone,theft"], r"--kind: 'clone' is unknown: did you mean clones\?"),
    "no kind": (["--kind", " ,"], "--kind is empty: use some of clones, "),
    "no seed": (["--seeds", "0"], "--seeds 0: give at least one seed"),
    "nobody": (["--provider", "nort"], "--provider nort: nobody here is called that: try north"),
    "a stranger": (["--provider", "zzz"], "--provider zzz: nobody here is called that: use one of north, "),
    "no defence": (["--defence", "none"], "--defence none is played in any case"),
    "an unknown defence": (["--defence", "walls"], "defence 'walls' is unknown"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_one_sentence(market: Path, case: str) -> None:
    options, sentence = REFUSED[case]
    assert re.search(sentence, bazaar("attack", market, *options).complaint)


def test_remote_providers_are_not_attacked(tmp_path: Path) -> None:
    path = write_market(tmp_path, more='\n[federation]\nfolder = "federation"\n')
    edit(path, '[engine]\ndevice = "cpu"', '[engine]\nkind = "federated"')
    assert "a federated market cannot be attacked here" in bazaar("attack", path).complaint


def test_interrupted_it_says_so(market: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Rehearsal.play

    def press_the_key(self: Rehearsal, seed: int, *what: Any) -> Attacked:
        if seed == 5:
            signal.raise_signal(signal.SIGINT)
        return played(self, seed, *what)

    monkeypatch.setattr(Rehearsal, "play", press_the_key)
    done = bazaar("attack", market, "--seeds", "900", "--kind", "zero", "--quiet")
    assert done.code == 130 and done.err == "bazaar: interrupted; nothing was written\n" and not done.out


def test_rehearsals_need_something_to_judge_by() -> None:
    vectors = Consumer(np.zeros(2), budget=10, utility=lambda w: 0.5)
    with pytest.raises(BazaarError, match="a torch model and a hold-out"):
        Rehearsal(vectors, [Provider("p", oracle=lambda w: w)], [0], {})


def test_a_model_with_a_single_output_has_classes_too() -> None:
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    rows = x, (x[:, 0] > 0).astype(np.int64)
    consumer = Consumer(torch.nn.Linear(3, 1), budget=20, holdout=rows, per_round=2)
    one = Rehearsal(consumer, [Provider("a", rows), Provider("b", rows)], [0], {})
    found = one.outcome([one.play(0, Defence(), ["a"], KINDS["backdoor"][0])], ["a"])
    wronged = Row("sign", "sends the opposite", ("a",), {"standard": replace(found, wronged=(1,))})
    assert "providers that did not attack were flagged in: sends the opposite" in remarks(one, [wronged])
    assert found.trigger is not None and found.model[0] > 0.5 and found.caught == (0,) and one.judged_by == "hold-out"
