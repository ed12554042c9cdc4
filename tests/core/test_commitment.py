"""The two parts of the hold-out stand in the terms by hash: of these rows and no others, before the first round."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, BazaarError, Consumer, Defence
from databazaar.learners import Averaging
from databazaar.learning.inputs import as_dataset
from databazaar.ledger import Terms, audit_entries
from databazaar.market.inspection.holdout_parts import committed, halves
from databazaar.runs.folder import RunFolder
from small_markets import blobs, torch_market

STANDARD = Defence.named("standard")


def slowly(x: np.ndarray, y: np.ndarray, seed: int) -> dict[str, str]:
    """Row by row, as anybody could without torch."""
    found = {}
    for name, places in zip(("scoring", "control"), halves(len(y), seed), strict=True):
        text = f"x float32 [{len(places)}, {x.shape[1]}]\n".encode()
        text += b"".join(x[place].astype("<f4").tobytes() for place in places)
        text += f"y int64 [{len(places)}]\n".encode()
        text += b"".join(int(y[place]).to_bytes(8, "little", signed=True) for place in places)
        found[name] = hashlib.sha256(text).hexdigest()
    return found


@given(st.integers(40, 60), st.integers(0, 2**40), st.integers(0, 2**32))
def test_anybody_with_the_rows_comes_to_the_same(rows: int, seed: int, drawn: int) -> None:
    x, y = blobs(np.random.default_rng(drawn), rows)
    assert committed(as_dataset((x, y), "holdout"), seed) == slowly(x, y, seed)


@given(st.integers(0, 39), st.sampled_from([0, 1]))
def test_another_row_is_another_hash_of_its_part_alone(place: int, which: int) -> None:
    x, y = blobs(np.random.default_rng(0), 40)
    other = (x.copy(), y.copy())
    other[which][place] = 1 - other[which][place]
    before, after = (committed(as_dataset(rows, "holdout"), 5) for rows in ((x, y), other))
    (changed,) = [name for name in before if before[name] != after[name]]
    assert place in getattr(halves(40, 5), changed)


def test_inputs_by_name_count_each() -> None:
    x = {"y": torch.zeros(40, 2), "flags": torch.zeros(40, dtype=torch.bool), "codes": torch.zeros(40, 1, 3)}
    before = committed(as_dataset((x, np.zeros(40)), "holdout"), 0)
    for name, tensor in x.items():
        changed = {**x, name: torch.ones_like(tensor)}
        assert set(committed(as_dataset((changed, np.zeros(40)), "holdout"), 0).values()).isdisjoint(before.values())


def test_terms_have_it_where_a_rule_looks_at_the_parts() -> None:
    consumer, providers = torch_market()
    x, y = (tensor.numpy() for tensor in consumer.holdout)
    for defence, told in (
        (None, {}),
        (Defence(owners=True, clip=2.0), {}),
        (Defence(screen=3.0), slowly(x, y, 7)),
        (Defence(leak=0.01), slowly(x, y, 7)),
    ):
        terms = Arbiter(consumer, providers, learner=Averaging(), defence=defence, seed=7).terms()
        assert terms.holdout == told and ("holdout" in terms.body()) == bool(told)
        assert Terms.from_body(terms.body()) == terms


def test_too_few_rows_are_not_parted_and_not_named() -> None:
    consumer, providers = torch_market(holdout=blobs(np.random.default_rng(0), 39))
    assert Arbiter(consumer, providers, learner=Averaging(), defence=STANDARD).terms().holdout == {}


def test_a_ledger_with_it_is_audited_and_goes_on_with_these_rows_alone(tmp_path: Path) -> None:
    consumer, providers = torch_market(budget=40)

    def play(consumer: Consumer) -> None:
        Arbiter(consumer, providers, learner=Averaging(), defence=STANDARD).run(tmp_path / "run", tell=stop)

    def stop(_progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(consumer)
    x, y = consumer.holdout
    with pytest.raises(BazaarError, match="terms"):
        play(replace(consumer, holdout=(x, 1 - y)))
    Arbiter(consumer, providers, learner=Averaging(), defence=STANDARD).run(tmp_path / "run")
    audit = audit_entries(RunFolder(tmp_path / "run").entries())
    assert audit.ok and audit.terms is not None
    assert audit.terms.holdout == slowly(x.numpy(), y.numpy(), 0)
