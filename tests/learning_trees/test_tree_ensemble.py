"""The model: parts that add up, arrays and back, a chained digest, importances."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.errors import BazaarError
from databazaar.learning.trees.bins import Bins
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.tree import halfway_gains, leaves_of, part_predictions
from tree_rounds import KINDS, grown_round, objective, table, trained


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_what_each_party_adds_to_unseen_rows(kind: str) -> None:
    rows, holdout = table(kind, 900), table(kind, 200, seed=1)
    ensemble = trained(kind, rows, 3)
    sizes = [200, 0, 300, 400]
    grown = grown_round(ensemble, rows.x, rows.y, Growth(), sizes)
    binned = ensemble.bins.apply(holdout.x)
    parts = part_predictions(grown, leaves_of(grown, binned))
    assert parts.shape == (4, 200, ensemble.objective.classes)
    move = ensemble.appended([each.tree for each in grown]).scores(binned) - ensemble.scores(binned)
    assert np.allclose(parts.sum(0), move, rtol=1e-9, atol=1e-12)
    assert not parts[1].any() and parts[0].any()
    assert (grown[0].parts[:, grown[0].tree.leaf_of(binned)] == parts[..., 0]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gains_at_once_are_those_one_by_one(kind: str) -> None:
    rows, holdout = table(kind, 900), table(kind, 200, seed=1)
    ensemble = trained(kind, rows, 2)
    binned = ensemble.bins.apply(holdout.x)
    scores, loss = ensemble.scores(binned), ensemble.objective
    grown = grown_round(ensemble, rows.x, rows.y, Growth(), [300, 600])
    parts = part_predictions(grown, leaves_of(grown, binned))
    gains = halfway_gains(lambda at: -loss.loss(at, holdout.y).mean(-1), scores, parts)
    middle = scores + parts.sum(0) / 2
    for part, gain in zip(parts, gains, strict=True):
        up, down = (-loss.loss(middle + sign * part / 2, holdout.y).mean() for sign in (1, -1))
        assert gain == pytest.approx(up - down, rel=1e-9)
    whole = loss.loss(scores, holdout.y).mean() - loss.loss(scores + parts.sum(0), holdout.y).mean()
    assert gains.sum() == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
@pytest.mark.parametrize("rounds", [0, 6])
def test_as_an_array_and_back(kind: str, rounds: int) -> None:
    rows = table(kind)
    ensemble = trained(kind, rows, rounds)
    back = Ensemble.restored(ensemble.stored.array)
    assert back.stored.hash == ensemble.stored.hash
    assert (back.predict(rows.x) == ensemble.predict(rows.x)).all()
    binned = ensemble.bins.apply(rows.x)
    assert (back.bins.apply(rows.x) == binned).all()
    for before, after in zip(chain(*ensemble.rounds), chain(*back.rounds), strict=True):
        assert (after.leaf_of(binned) == before.leaf_of(binned)).all()


def test_the_digest_tells_every_number_apart() -> None:
    ensemble = trained("squared", table("squared"), 2)
    first, (tree,) = ensemble.rounds
    for name, array in tree.arrays().items():
        changed = array.copy()
        changed.view(np.uint8).flat[0] ^= 1
        other = replace(ensemble, rounds=(first, (replace(tree, **{name: changed}),)))
        assert other.stored.hash != ensemble.stored.hash


@given(data=st.data())
def test_changed_bytes_are_refused_or_predict(data: st.DataObject) -> None:
    """Whatever a file holds, trees made from it end in a leaf; nothing but a BazaarError comes out."""
    stored = trained("squared", table("squared"), 2).stored.array.copy()
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    stored = stored[: data.draw(st.sampled_from([len(stored), len(stored) - 1, len(stored) // 2]))]
    try:
        back = Ensemble.restored(stored)
    except BazaarError as refusal:
        assert "no boosted trees" in str(refusal)
    else:
        assert np.isfinite(back.scores(np.zeros((3, back.bins.features), np.uint8))).all()


def test_later_rounds_are_added_to_kept_scores() -> None:
    rows = table("multiclass")
    ensemble = trained("multiclass", rows, 5)
    binned = ensemble.bins.apply(rows.x)
    scores = replace(ensemble, rounds=ensemble.rounds[:3]).scores(binned)
    ensemble.add_to(scores, binned, 3)
    assert (scores == ensemble.scores(binned)).all()


def test_importances_name_the_features_that_count() -> None:
    ensemble = trained("squared", table("squared", 2_000))
    gain, split = ensemble.importance(), ensemble.importance("split")
    assert gain[1] < 0.25 * gain[[0, 2]].min()
    assert split.sum() == sum(tree.leaves - 1 for (tree,) in ensemble.rounds)
    with pytest.raises(BazaarError, match="gain or split"):
        ensemble.importance("cover")


def test_a_round_has_a_tree_for_each_class() -> None:
    rows = table("multiclass")
    bins, loss = Bins.of(rows.x, rows.categorical), objective("multiclass", rows.y)
    ensemble = Ensemble(bins, loss, loss.start(rows.y))
    grown = grown_round(ensemble, rows.x, rows.y, Growth())
    with pytest.raises(BazaarError, match="3 trees, one a class, and not 1"):
        ensemble.appended([grown[0].tree])
