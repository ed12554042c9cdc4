"""An ensemble as the text file that `lightgbm.Booster(model_file=…)` opens, to the same predictions.

With it come LightGBM's predictions of raw rows, its importances, and SHAP values (`predict(pred_contrib=True)`). The
start goes into the leaves of the first round's trees. Missing values are NaN; a category that the buyer's rows did not
have goes right, as a missing one does. An infinite number is read as the largest or the smallest there is, and so does
the file, but where a split divides missing values from all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from databazaar.errors import BazaarError
from databazaar.learning.trees.bins import MISSING, Bins
from databazaar.learning.trees.ensemble import Ensemble
from databazaar.learning.trees.tree import Tree

CATEGORY, MISSING_LEFT, NAN_IS_MISSING = 1, 2, 8
"""Bits of LightGBM's decision_type."""
LARGEST = float("inf")
WORD = 32


def lightgbm_text(ensemble: Ensemble, names: Sequence[str] = ()) -> str:
    """The whole file. `names` are those of features: without spaces, as LightGBM wants them."""
    bins = ensemble.bins
    named = list(names) or [f"Column_{feature}" for feature in range(bins.features)]
    if len(named) != bins.features or len(set(named)) != len(named):
        raise BazaarError(f"{len(named)} names for {bins.features} features: give one of each, all different")
    wrong = [name for name in named if not name or any(letter.isspace() or letter in '",:[]{}' for letter in name)]
    if wrong:
        raise BazaarError(f"LightGBM's file cannot hold the feature name {wrong[0]!r}: leave out spaces and \",:[]{{}}")
    trees = [
        _tree_text(number, tree, bins, float(ensemble.start[number]) if number < ensemble.objective.classes else 0.0)
        for number, tree in enumerate(tree for trees in ensemble.rounds or (_nothing(ensemble),) for tree in trees)
    ]
    head = {
        "version": "v4",
        "num_class": ensemble.objective.classes,
        "num_tree_per_iteration": ensemble.objective.classes,
        "label_index": 0,
        "max_feature_idx": bins.features - 1,
        "objective": ensemble.objective.lightgbm,
        "feature_names": " ".join(named),
        "feature_infos": " ".join(_info(bins, feature) for feature in range(bins.features)),
        "tree_sizes": " ".join(str(len(text.encode())) for text in trees),
    }
    by_splits = sorted(zip(ensemble.importance("split"), named, strict=True), key=lambda pair: -pair[0])
    importances = "".join(f"{name}={int(count)}\n" for count, name in by_splits if count)
    return (
        f"tree\n{_lines(head)}\n{''.join(trees)}end of trees\n\nfeature_importances:\n{importances}\n"
        "parameters:\nend of parameters\n\npandas_categorical:null\n"
    )


def _nothing(ensemble: Ensemble) -> tuple[Tree, ...]:
    """A round that adds nothing, for an ensemble without one: something must hold the start."""
    places, sums = np.empty(0, dtype=np.int32), np.zeros((1, 3))
    bits = np.empty((0, 32), dtype=np.uint8)
    tree = Tree(places, places, bits, places.reshape(0, 2), np.empty(0), sums[:0], sums, np.zeros(1))
    return (tree,) * ensemble.objective.classes


def _tree_text(number: int, tree: Tree, bins: Bins, start: float) -> str:
    values = tree.value + start
    body: dict[str, Any] = {"num_leaves": tree.leaves, "num_cat": 0}
    if tree.leaves == 1:
        body |= {"leaf_value": _joined(values)}
    else:
        thresholds, kinds, words = _decisions(tree, bins)
        body |= {
            "num_cat": len(words),
            "split_feature": _joined(tree.feature),
            "split_gain": _joined(tree.gain),
            "threshold": _joined(thresholds),
            "decision_type": _joined(kinds),
            "left_child": _joined(tree.children[:, 0]),
            "right_child": _joined(tree.children[:, 1]),
            "leaf_value": _joined(values),
            "leaf_weight": _joined(tree.leaf_sums[:, 1]),
            "leaf_count": _joined(tree.leaf_sums[:, 2].astype(np.int64)),
            "internal_value": _joined(np.zeros(len(tree.feature))),
            "internal_weight": _joined(tree.split_sums[:, 1]),
            "internal_count": _joined(tree.split_sums[:, 2].astype(np.int64)),
        }
        if words:
            body |= {
                "cat_boundaries": _joined(np.cumsum([0, *(len(each) for each in words)])),
                "cat_threshold": _joined(np.concatenate(words)),
            }
    return f"Tree={number}\n{_lines(body | {'is_linear': 0, 'shrinkage': 1})}\n\n"


def _decisions(tree: Tree, bins: Bins) -> tuple[NDArray[np.float64], NDArray[np.int64], list[NDArray[np.uint32]]]:
    """Of each split its threshold, or the place of its category's bit set; its kind; and the bit sets."""
    thresholds = np.empty(len(tree.feature))
    kinds = np.full(len(tree.feature), NAN_IS_MISSING)
    words: list[NDArray[np.uint32]] = []
    left = np.unpackbits(tree.left, axis=1, bitorder="little").view(np.bool_)
    for split, (feature, last) in enumerate(zip(tree.feature, tree.bin, strict=True)):
        codes = bins.codes[feature]
        if codes is None:
            edges = bins.edges[feature]
            thresholds[split] = np.append(edges, LARGEST)[last - 1] if last else -LARGEST
            kinds[split] |= MISSING_LEFT * bool(left[split, MISSING])
        else:
            thresholds[split] = len(words)
            kinds[split] |= CATEGORY
            words.append(_bit_set(codes[left[split, 1 : len(codes) + 1]]))
    return thresholds, kinds, words


def _bit_set(codes: NDArray[np.int64]) -> NDArray[np.uint32]:
    words = np.zeros(int(codes.max()) // WORD + 1 if len(codes) else 1, dtype=np.uint32)
    np.bitwise_or.at(words, codes // WORD, np.uint32(1) << (codes % WORD).astype(np.uint32))
    return words


def _info(bins: Bins, feature: int) -> str:
    """What LightGBM says of a feature's values: the range of a number, the codes of a category, or nothing."""
    codes = bins.codes[feature]
    if codes is not None:
        return ":".join(str(code) for code in codes) or "none"
    if bins.lowest[feature] == bins.highest[feature]:
        return "none"
    return f"[{_number(bins.lowest[feature])}:{_number(bins.highest[feature])}]"


def _lines(values: dict[str, Any]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _joined(values: NDArray[Any]) -> str:
    return " ".join(_number(value) for value in values.tolist())


def _number(value: float) -> str:
    """As short as it is exact: integers without a point, floats so that they are read as the same number."""
    return repr(value) if isinstance(value, int) else repr(float(value))
