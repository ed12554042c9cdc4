"""All methods side by side: one call, plain data, honest counts."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats

import valuation_games
from databazaar import BazaarError, valuation
from databazaar.market.arbiter import theory_sampler
from databazaar.samplers import SAMPLERS
from databazaar.valuation import METHODS, Context, MaxPermutations, Method, ValuationResult, compare
from databazaar.valuation.comparison import spearman
from small_markets import MakeMarket
from valuation_games import classification_market, regression_market

FEW: dict[str, dict[str, Any]] = {name: {"stop": MaxPermutations(8)} for name in ("g-shapley", "fedsv", "gtg", "tmc")}
FEW["loo"] = {"rounds": 2}


@pytest.mark.parametrize("make", [classification_market, regression_market])
def test_every_method_pays_and_counts(make: MakeMarket) -> None:
    consumer, providers = make()
    done: list[tuple[str, int]] = []
    result = compare(
        consumer, providers, list(METHODS), seed=4, seeds=2, options=FEW, progress=lambda m, s: done.append((m, s))
    )
    assert done[:3] == [("osmd", 4), ("osmd", 5), ("uniform", 4)] and len(done) == 2 * len(list(METHODS))
    assert [outcome.method for outcome in result.outcomes] == list(METHODS)
    for outcome in result.outcomes:
        assert outcome.payouts.shape == (2, len(providers))
        assert (outcome.payouts.sum(1) == consumer.budget).all()
        assert outcome.mean("seconds") > 0 and outcome.mean("utility_evaluations") > 0
        assert outcome.stability is None  # two seeds that agree would promise everything
    trains = {"market", "osmd", "uniform", "uniform-without-replacement", "in-run", "fedsv", "fedsv-exact", "gtg"}
    assert {o.method for o in result.outcomes if o.final_utility is not None} == trains
    assert all(result[name].mean("trainings") == 1 for name in trains)
    assert result["exact"].mean("trainings") == 2 ** len(providers) - 1
    rounds = consumer.budget // consumer.per_round
    even = result["uniform-without-replacement"]
    assert even.mean("oracle_calls") == result["fedsv"].mean("oracle_calls") == consumer.budget
    assert even.mean("utility_evaluations") == rounds * (consumer.per_round + 1) + 1
    for bought in result["market"].results:  # its gains are Shapley values: two models for each provider asked
        played = int(bought.stopped.split(" rounds played")[0])
        assert bought.cost.utility_evaluations == 2 * bought.cost.oracle_calls + played + 1
    assert result["uniform"].mean("oracle_calls") < consumer.budget  # whoever is drawn twice is asked once
    samplers = {name: result[name].results[0].settings["sampler"] for name in ("market", "osmd", "uniform")}
    assert samplers["osmd"] == SAMPLERS.settings_of(theory_sampler(consumer, providers)), "the paper's, not ours"
    assert (samplers["market"]["kind"], samplers["uniform"]["kind"]) == ("adaptive", "uniform")
    assert result["osmd"].mean("oracle_calls") <= consumer.budget
    matrix = result.rank_correlation
    both = result["exact"].payouts.mean(0), result["loo"].payouts.mean(0)
    names = list(METHODS)
    assert matrix[names.index("exact"), names.index("loo")] == pytest.approx(stats.spearmanr(*both).statistic)
    read = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert read["methods"][0]["method"] == "osmd" and len(read["rank_correlation"]) == len(names)


def test_rank_correlation_with_ties_and_constants() -> None:
    rows = np.array([[1.0, 2.0, 2.0, 5.0], [9.0, 1.0, 4.0, 4.0], [3.0, 3.0, 3.0, 3.0]])
    matrix = spearman(rows)
    assert matrix[0, 1] == pytest.approx(stats.spearmanr(rows[0], rows[1]).statistic)
    assert np.isnan(matrix[2]).all()


def test_unknown_methods_are_refused() -> None:
    consumer, providers = classification_market()
    with pytest.raises(BazaarError, match=r"banzhaf is unknown: use some of osmd, uniform"):
        compare(consumer, providers, ["osmd", "banzhaf"])
    with pytest.raises(BazaarError, match="twice"):
        compare(consumer, providers, ["osmd", "osmd"])
    with pytest.raises(BazaarError, match="seeds"):
        compare(consumer, providers, ["osmd"], seeds=0)


@pytest.mark.process
def test_valuation_imports_with_torch_and_numpy_alone() -> None:
    forbidden = "{'pandas', 'scipy', 'sklearn', 'sqlalchemy', 'pydantic', 'typer', 'rich', 'matplotlib', 'pydvl'}"
    code = f"import sys, databazaar.valuation; sys.exit(', '.join({forbidden} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_submodule_can_be_reached_by_its_name() -> None:
    """A function of the same name would hide it."""
    for module in pkgutil.iter_modules(valuation.__path__):
        found = import_module(f"databazaar.valuation.{module.name}")
        assert getattr(valuation, module.name) is found


@dataclass(frozen=True, kw_only=True)
class Alike(Method):
    """Everybody is worth the same."""

    worth: float = 1.0
    kind: ClassVar[str] = "alike"

    def value(self, context: Context) -> ValuationResult:
        n = len(context.providers)
        return ValuationResult(
            self.kind, context.ids, np.full(n, self.worth), np.zeros(n), "at once", context.tally.now()
        )


@pytest.mark.process
def test_a_method_from_another_package_is_compared_like_ours(tmp_path: Path) -> None:
    """Installed with an entry point, and asked for in a process that has never heard of it."""
    source = Path(__file__).read_text(encoding="utf-8")
    written = source[source.index("@dataclass(frozen=True, kw_only=True)\nclass Alike") :].split("\n\n\n")[0]
    head = "from dataclasses import dataclass\nfrom typing import ClassVar\nimport numpy as np\n"
    ours = "from databazaar.valuation import Context, Method, ValuationResult\n"
    (tmp_path / "acme.py").write_text(head + ours + written, encoding="utf-8")
    about = tmp_path / "acme-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[databazaar.methods]\nalike = acme:Alike\n")
    code = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(Path(valuation_games.__file__).parent)!r}]
from valuation_games import classification_market
from databazaar.cli.options import named
from databazaar.valuation import METHODS, MaxSeconds, compare
assert named("alike,loo", "--methods", METHODS.kinds(), "methods") == ["alike", "loo"]
options = {{"alike": {{"worth": 2.0}}}}
found = compare(*classification_market(), ["alike", "loo"], seeds=2, options=options, limit=MaxSeconds(9))
assert found["alike"].payouts.tolist() == 2 * [[8, 8, 7, 7]], found["alike"].payouts
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_settings_that_a_method_does_not_have_are_refused_before_anything_runs() -> None:
    done: list[str] = []
    with pytest.raises(BazaarError, match=r"method 'loo': .*'stop'.*: correct its settings"):
        compare(
            *classification_market(),
            ["osmd", "loo"],
            options={"loo": {"stop": MaxPermutations(3)}},
            progress=lambda method, seed: done.append(method),
        )
    assert done == []
    once = "uniform-without-replacement"
    with pytest.raises(BazaarError, match=rf"{once} draws each provider at most once a round, .* lower per_round"):
        compare(*classification_market(2, per_round=3), ["osmd", once], progress=lambda m, s: done.append(m))
    assert done == []


def test_more_draws_than_providers_are_no_hindrance_by_default() -> None:
    market = classification_market(2, per_round=3)
    result = compare(*market, options=FEW)
    assert [outcome.method for outcome in result.outcomes] == ["osmd", "uniform", "loo"]
    exact = compare(*market, ["fedsv-exact", "gtg"], options=FEW)
    rounds = market[0].budget // 2
    assert exact["fedsv-exact"].mean("oracle_calls") == 2 * rounds  # everybody, every round
