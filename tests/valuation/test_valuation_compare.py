"""All methods side by side: one call, plain data, honest counts."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from valuation_games import classification_market, regression_market

from databazaar import BazaarError
from databazaar.valuation import METHODS, MaxPermutations, compare
from databazaar.valuation.compare import spearman

FEW = {name: {"stop": MaxPermutations(8)} for name in ("g-shapley", "fedsv", "gtg", "tmc")}
FEW["loo"] = {"rounds": 2}  # type: ignore[dict-item]


@pytest.mark.parametrize("make", [classification_market, regression_market])
def test_every_method_pays_and_counts(make) -> None:  # type: ignore[no-untyped-def]
    consumer, providers = make()
    told: list[tuple[str, int]] = []
    result = compare(
        consumer, providers, list(METHODS), seed=4, seeds=2, options=FEW, tell=lambda m, s: told.append((m, s))
    )
    assert told[:3] == [("osmd", 4), ("osmd", 5), ("uniform", 4)] and len(told) == 2 * len(METHODS)
    assert [outcome.method for outcome in result.outcomes] == list(METHODS)
    for outcome in result.outcomes:
        assert outcome.payouts.shape == (2, len(providers))
        assert (outcome.payouts.sum(1) == consumer.budget).all()
        assert outcome.mean("seconds") > 0 and outcome.mean("utility_evaluations") > 0
        assert outcome.stability is not None and outcome.stability.seeds == 2
    trains = {"osmd", "uniform", "fedsv", "fedsv-exact", "gtg"}
    assert {o.method for o in result.outcomes if o.final_utility is not None} == trains
    assert all(result[name].mean("trainings") == 1 for name in trains)
    assert result["exact"].mean("trainings") == 2 ** len(providers) - 1
    rounds = consumer.budget // consumer.per_round
    assert result["uniform"].mean("oracle_calls") == result["fedsv"].mean("oracle_calls") == consumer.budget
    assert result["uniform"].mean("utility_evaluations") == rounds * (consumer.per_round + 1) + 1
    assert result["osmd"].mean("oracle_calls") <= consumer.budget
    matrix = result.rank_correlation
    both = result["exact"].payouts.mean(0), result["loo"].payouts.mean(0)
    names = list(METHODS)
    assert matrix[names.index("exact"), names.index("loo")] == pytest.approx(stats.spearmanr(*both).statistic)
    read = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert read["methods"][0]["method"] == "osmd" and len(read["rank_correlation"]) == len(METHODS)


def test_uniform_and_fedsv_train_the_same_model() -> None:
    """Both draw uniformly without replacement from the same stream."""
    result = compare(*classification_market(), ["uniform", "fedsv"], options=FEW)
    assert result["uniform"].final_utility == pytest.approx(result["fedsv"].final_utility, abs=1e-6)
    assert result["fedsv"].stability is None


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


def test_valuation_imports_with_torch_and_numpy_alone() -> None:
    forbidden = "{'pandas', 'scipy', 'sklearn', 'sqlalchemy', 'pydantic', 'typer', 'rich', 'matplotlib', 'pydvl'}"
    code = f"import sys, databazaar.valuation; sys.exit(', '.join({forbidden} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
