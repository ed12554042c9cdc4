"""The model: parts that add up, arrays and back, a chained digest, importances."""

from __future__ import annotations

import numpy as np
import pytest

from databazaar.errors import BazaarError
from databazaar.learning.trees.bins import Bins
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.growth import Growth
from databazaar.learning.trees.tree import halfway_gains, part_predictions
from tree_rounds import KINDS, grown_round, objective, table, trained


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_what_each_party_adds_to_unseen_rows(kind: str) -> None:
    given, holdout = table(kind, 900), table(kind, 200, seed=1)
    ensemble = trained(kind, given, 3)
    sizes = [200, 0, 300, 400]
    grown = grown_round(ensemble, given.x, given.y, Growth(), sizes)
    binned = ensemble.bins.apply(holdout.x)
    parts = part_predictions(grown, binned)
    assert parts.shape == (4, 200, ensemble.objective.classes)
    move = ensemble.appended([each.tree for each in grown]).scores(binned) - ensemble.scores(binned)
    assert np.allclose(parts.sum(0), move, rtol=1e-9, atol=1e-12)
    assert not parts[1].any() and parts[0].any()
    assert (part_predictions(grown[0], binned) == parts[..., 0]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gains_at_once_are_those_one_by_one(kind: str) -> None:
    given, holdout = table(kind, 900), table(kind, 200, seed=1)
    ensemble = trained(kind, given, 2)
    binned = ensemble.bins.apply(holdout.x)
    scores, loss = ensemble.scores(binned), ensemble.objective
    parts = part_predictions(grown_round(ensemble, given.x, given.y, Growth(), [300, 600]), binned)
    gains = halfway_gains(lambda at: -loss.loss(at, holdout.y).mean(-1), scores, parts)
    middle = scores + parts.sum(0) / 2
    for part, gain in zip(parts, gains, strict=True):
        up, down = (-loss.loss(middle + sign * part / 2, holdout.y).mean() for sign in (1, -1))
        assert gain == pytest.approx(up - down, rel=1e-9)
    whole = loss.loss(scores, holdout.y).mean() - loss.loss(scores + parts.sum(0), holdout.y).mean()
    assert gains.sum() == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_arrays_and_back_also_in_pieces(kind: str) -> None:
    given = table(kind)
    ensemble = trained(kind, given, 6)
    empty = Ensemble(Bins.from_arrays(ensemble.bins.arrays()), ensemble.objective, ensemble.start)
    back = empty.extended(ensemble.arrays(0, 4)).extended(ensemble.arrays(4)).extended(ensemble.arrays(6))
    assert back.digest == ensemble.digest != ensemble.until(5).digest
    assert (back.predict(given.x) == ensemble.predict(given.x)).all()
    assert (
        back.rounds[2][0].leaf_of(back.bins.apply(given.x)).tolist()
        == ensemble.rounds[2][0].leaf_of(ensemble.bins.apply(given.x)).tolist()
    )


def test_the_digest_tells_every_number_apart() -> None:
    ensemble = trained("squared", table("squared"), 2)
    (tree,) = ensemble.rounds[-1]
    arrays = ensemble.arrays(1)
    for name in tree.arrays():
        changed = {**arrays, name: arrays[name].copy()}
        changed[name].view(np.uint8).flat[0] ^= 1
        assert ensemble.until(1).extended(changed).digest != ensemble.digest


def test_later_rounds_are_added_to_kept_scores() -> None:
    given = table("multiclass")
    ensemble = trained("multiclass", given, 5)
    binned = ensemble.bins.apply(given.x)
    kept = ensemble.until(3).scores(binned)
    assert np.allclose(kept + ensemble.added(binned, 3), ensemble.scores(binned), rtol=1e-13, atol=1e-14)
    assert not ensemble.added(binned, 5).any()


def test_importances_name_the_features_that_count() -> None:
    ensemble = trained("squared", table("squared", 2_000))
    gain, split = ensemble.importance(), ensemble.importance("split")
    assert gain[1] < 0.25 * gain[[0, 2]].min()
    assert split.sum() == sum(tree.leaves - 1 for (tree,) in ensemble.rounds)
    with pytest.raises(BazaarError, match="gain or split"):
        ensemble.importance("cover")


def test_a_round_has_a_tree_for_each_class() -> None:
    given = table("multiclass")
    bins, loss = Bins.of(given.x, given.categorical), objective("multiclass", given.y)
    ensemble = Ensemble(bins, loss, loss.start(given.y))
    grown = grown_round(ensemble, given.x, given.y, Growth())
    with pytest.raises(BazaarError, match="3 trees, one a class, and not 1"):
        ensemble.appended([grown[0].tree])
