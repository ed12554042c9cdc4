"""The estimators keep scikit-learn's own rules, and buy as the market that they stand for."""

from __future__ import annotations

import pickle
import runpy
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import databazaar.sklearn
from databazaar import (
    OSMD,
    Arbiter,
    BazaarError,
    Consumer,
    Defence,
    LocalSGD,
    MarketClassifier,
    MarketRegressor,
    Provider,
)
from databazaar.learning.models import build_model
from databazaar.sklearn import _MarketEstimator
from small_markets import blobs

SMALL: dict[str, Any] = {"budget": 120, "per_round": 4, "device": "cpu", "random_state": 0}
NAMES = np.array(["bad", "good"])
Rows = tuple[np.ndarray, np.ndarray]


def market(seed: int = 0, own: int = 40) -> tuple[np.ndarray, np.ndarray, dict[str, Rows]]:
    rng = np.random.default_rng(seed)
    x, y = blobs(rng, own)
    sellers = {f"wrong-{flip}": blobs(rng, 60, flip=flip / 100) for flip in (0, 20, 50, 90)}
    return x, NAMES[y], {name: (rows, NAMES[labels]) for name, (rows, labels) in sellers.items()}


def head(found: MarketClassifier) -> str:
    assert found.report_ is not None
    return found.report_.ledger_head


@parametrize_with_checks([MarketClassifier(budget=150, device="cpu"), MarketRegressor(budget=150, device="cpu")])  # type: ignore[untyped-decorator]
def test_scikit_learns_own_checks(estimator: Any, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if getattr(check, "func", check).__name__ == "check_array_api_input":
        monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


def test_a_defence_is_that_of_the_market_and_no_matter_where_nobody_sells() -> None:
    x, y, sellers = market()
    for defence, rules in (("strict", Defence.named("strict").settings()), (None, None)):
        report = clone(MarketClassifier(**SMALL, defence=defence)).fit(x, y, providers=sellers).report_
        assert report is not None and report.rules.get("defence") == rules
    plain, strict = (MarketClassifier(**SMALL, defence=one).fit(x, y).predict_proba(x) for one in (None, "strict"))
    assert np.array_equal(plain, strict)
    with pytest.raises(BazaarError, match="'loose' is unknown: use one of none, standard, strict"):
        MarketClassifier(**SMALL, defence="loose").fit(x, y, providers=sellers)


def test_a_classifier_is_the_market_with_its_rows_scaled_by_the_consumers() -> None:
    x, y, sellers = market()
    found = MarketClassifier(**SMALL, standardize=False, sampler=OSMD(0.5, 0.1)).fit(x, y, providers=sellers)
    codes = {name: (rows, (labels == "good").astype(int)) for name, (rows, labels) in sellers.items()}
    consumer = Consumer(
        build_model("logistic", [4], 2), budget=120, per_round=4, holdout=(x, (y == "good").astype(int))
    )
    providers = [Provider(name, rows) for name, rows in codes.items()]
    arbiter = Arbiter(consumer, providers, OSMD(0.5, 0.1), device="cpu")
    report = arbiter.run()
    assert found.report_ is not None and found.report_.model_hash == report.model_hash
    pd.testing.assert_frame_equal(found.payouts_, report.to_frame())
    assert found.classes_.tolist() == ["bad", "good"]
    assert found.score(x, y) > 0.9


@settings(max_examples=4, deadline=None)
@given(scale=st.floats(1e-3, 1e3), shift=st.floats(-1e3, 1e3))
def test_units_do_not_matter(scale: float, shift: float) -> None:
    x, y, sellers = market()
    moved = {name: (rows * scale + shift, labels) for name, (rows, labels) in sellers.items()}
    plain = MarketClassifier(**SMALL).fit(x, y, providers=sellers)
    other = MarketClassifier(**SMALL).fit(x * scale + shift, y, providers=moved)
    assert (plain.predict(x) == other.predict(x * scale + shift)).all()


def test_the_three_ways_to_name_providers_are_one() -> None:
    x, y, sellers = market()
    by_name = MarketClassifier(**SMALL).fit(x, y, providers=sellers)
    whose = np.repeat(np.array(["", *sellers], dtype=object), [len(x), *(len(rows) for rows, _ in sellers.values())])
    every_x, every_y = (np.concatenate([own, *(pair[i] for pair in sellers.values())]) for i, own in enumerate((x, y)))
    for nobody in ("", None, float("nan"), -1, pd.NA):
        whose[: len(x)] = nobody
        by_row = MarketClassifier(**SMALL).fit(every_x, every_y, provider_of=pd.Series(whose))
        assert head(by_row) == head(by_name)
    codes = np.searchsorted(NAMES, y)
    objects = [Provider(name, (rows, np.searchsorted(NAMES, labels))) for name, (rows, labels) in sellers.items()]
    listed = MarketClassifier(**SMALL).fit(x, codes, providers=objects)
    assert head(listed) == head(by_name)
    assert NAMES[listed.predict(x)].tolist() == by_name.predict(x).tolist()


def test_a_provider_that_keeps_its_rows_answers_through_its_oracle() -> None:
    x, y, sellers = market()
    far = Provider("far", oracle=lambda w: np.full_like(w, np.nan))
    near = Provider("near", (sellers["wrong-0"][0], (sellers["wrong-0"][1] == "good").astype(int)))
    found = MarketClassifier(**SMALL, engine="loop").fit(x, (y == "good").astype(int), providers=[far, near])
    (paid_far, paid_near), (failed_far, failed_near) = (found.payouts_[name].tolist() for name in ("pay", "failures"))
    assert paid_far == failed_near == 0 and failed_far > 0 and paid_near > 0


def test_without_providers_the_own_rows_train_and_nothing_is_spent() -> None:
    x, y, _ = market()
    heard: list[int] = []
    found = MarketClassifier(**SMALL).fit(x, y, callbacks=[lambda progress: heard.append(progress.round)])
    assert found.report_ is None and found.payouts_.empty
    assert heard == list(range(1, 120 // 4 + 1))
    assert found.score(x, y) > 0.9


def test_a_regressor_answers_in_the_targets_own_units() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(240, 3))
    y = 5e5 + 2e4 * x[:, 0] - 1e4 * x[:, 1] + rng.normal(size=240)
    sellers = {"true": (x[40:140], y[40:140]), "noise": (x[140:], rng.permutation(y[140:]))}
    found = MarketRegressor(**SMALL, sampler=OSMD(1.0, 0.1)).fit(x[:40], y[:40], providers=sellers)
    assert found.score(x[:40], y[:40]) > 0.9
    pay = found.payouts_.set_index("provider")["pay"]
    assert pay["true"] > pay["noise"]
    plain = MarketRegressor(**SMALL, standardize=False).fit(x, (y - 5e5) / 2e4)
    assert plain.score(x, (y - 5e5) / 2e4) > 0.9


@pytest.mark.parametrize("model", ["mlp", nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))])
def test_other_models_are_trained_and_left_as_they_were(model: str | nn.Module) -> None:
    x, y, sellers = market()
    before = None if isinstance(model, str) else [p.clone() for p in model.parameters()]
    oracle = LocalSGD(0.1, 8)
    found = MarketClassifier(model, hidden=(6,), oracle=oracle, **SMALL).fit(x, y, providers=sellers)
    assert found.score(x, y) > 0.9
    if isinstance(model, str):
        assert sum(p.numel() for p in found.model_.parameters()) == 4 * 6 + 6 + 6 * 2 + 2
    elif before is not None:
        assert all((a == b).all() for a, b in zip(before, model.parameters(), strict=True))
    again = pickle.loads(pickle.dumps(found))
    assert (again.predict_proba(x) == found.predict_proba(x)).all()


def test_pipelines_and_searches() -> None:
    x, y, sellers = market()
    whose = np.repeat(np.array([None, *sellers], dtype=object), [len(x), *(len(rows) for rows, _ in sellers.values())])
    every_x, every_y = (np.concatenate([own, *(pair[i] for pair in sellers.values())]) for i, own in enumerate((x, y)))
    pipe = make_pipeline(StandardScaler(), MarketClassifier(**SMALL))
    pipe.fit(every_x, every_y, marketclassifier__provider_of=whose)
    assert pipe.score(x, y) > 0.9
    chosen = {"sampler": [None, OSMD(1.0, 0.1)], "budget": [4, 200]}
    search = GridSearchCV(MarketClassifier(**SMALL), chosen, cv=2, scoring="neg_log_loss")
    search.fit(x, y, providers=sellers)
    assert search.best_params_["budget"] == 200
    assert search.best_estimator_.payouts_["pay"].sum() == 200
    assert len(cross_val_score(MarketClassifier(**SMALL), x, y, params={"providers": sellers}, cv=2)) == 2


def test_frames_go_in_and_their_columns_are_compared() -> None:
    x, y, sellers = market()
    columns = ["a", "b", "c", "d"]
    frames = {
        name: (pd.DataFrame(rows, columns=columns), pd.Series(labels)) for name, (rows, labels) in sellers.items()
    }
    found = MarketClassifier(**SMALL).fit(pd.DataFrame(x, columns=columns), y, providers=frames)
    assert found.feature_names_in_.tolist() == columns
    other = {"swapped": (pd.DataFrame(x, columns=columns[::-1]), y)}
    with pytest.raises(BazaarError, match=r"provider swapped: .*feature names"):
        clone(found).fit(pd.DataFrame(x, columns=columns), y, providers=other)


def test_chance_follows_random_state() -> None:
    x, y, sellers = market()

    def after(random_state: Any) -> str:
        return head(MarketClassifier(**{**SMALL, "random_state": random_state}).fit(x, y, providers=sellers))

    assert after(1) == after(1) != after(2)
    assert after(np.random.RandomState(3)) == after(np.random.RandomState(3))


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"providers": {"a": (np.zeros((3, 4)), ["good", "bad", "ugly"])}}, "provider a: label 'ugly' is not among"),
        ({"providers": {"a": (np.zeros((3, 5)), ["good"] * 3)}}, "provider a: X has 5 features"),
        ({"providers": {"a": (np.full((3, 4), np.nan), ["good"] * 3)}}, "provider a: Input X contains NaN"),
        ({"providers": {"a": (np.zeros((3, 4)), ["good"] * 2)}}, "3 rows of features and 2 targets"),
        ({"providers": {"a": np.zeros((3, 4))}}, "provider a: too many values"),
        ({"providers": {}}, "at least one provider"),
        ({"providers": ["north"] * 40}, "rows by name, .* or say whose each row of X is by provider_of"),
        ({"providers": {}, "provider_of": [""] * 40}, "give one of them"),
        ({"provider_of": ["a"] * 40}, "leaves 0 of 40 rows to the consumer"),
        ({"provider_of": [None] * 40}, "leaves 40 of 40 rows"),
        ({"provider_of": ["a"] * 3}, "names 3 rows, and X has 40"),
    ],
)
def test_what_does_not_fit_is_one_sentence(how: dict[str, Any], sentence: str) -> None:
    x, y, _ = market()
    with pytest.raises(BazaarError, match=sentence):
        MarketClassifier(**SMALL).fit(x, y, **how)


def test_without_scikit_learn_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(BazaarError, match=r"pip install 'databazaar\[sklearn\]'"):
        runpy.run_path(str(databazaar.sklearn.__file__))


def test_before_fit_there_are_no_payouts() -> None:
    with pytest.raises(NotFittedError):
        _ = MarketRegressor().payouts_
    assert not hasattr(MarketClassifier(), "payouts_")


@pytest.mark.parametrize("hook", ["_learn_targets", "_targets"])
def test_the_base_leaves_targets_to_its_heirs(hook: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(_MarketEstimator(), hook)(np.zeros(2))
    with pytest.raises(NotImplementedError):
        _ = _MarketEstimator()._outputs
