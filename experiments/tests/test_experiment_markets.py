"""The markets of the evaluation: the facts behind the published figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from databazaar.engines import VectorizedEngine
from databazaar.errors import BazaarError
from databazaar.learning.inputs import Inputs
from databazaar.roster import Roster, RoundBudget
from databazaar.samplers import OSMD
from databazaar_experiments.datasets import Images
from databazaar_experiments.images import market_from, prepared, provider_groups, with_wrong_labels
from databazaar_experiments.methods import PAPER_METHODS, SHAPLEY, OSMDOncePerRound, OSMDWithoutReplacement, run_method
from databazaar_experiments.mixture import mixture_market
from databazaar_experiments.protocol_figures import FIGURES
from databazaar_experiments.protocol_quick import QUICK, SYNTHETIC, synthetic_images
from databazaar_experiments.settings import changed

torch.set_num_threads(1)
MNIST = FIGURES.images["mnist"]


def test_the_mixtures_groups_and_its_first_error_are_the_published_ones() -> None:
    market = mixture_market(replace(FIGURES.mixture, samples=2))
    assert [market.groups.count(group) for group in range(4)] == [25, 21, 30, 24]
    start = torch.full_like(market.truth, -1.0)
    assert float((start - market.truth).norm()) == pytest.approx(39.774, abs=0.001)


@pytest.mark.parametrize("which", ["first", "random"])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9])
def test_that_share_of_the_labels_is_wrong(share: float, which: str) -> None:
    labels = np.arange(400) % 10
    spoilt = with_wrong_labels(labels, share, which, np.random.RandomState(0))
    wrong = np.flatnonzero(spoilt != labels)
    assert len(wrong) == round(share * 400) and set(spoilt) <= set(range(10))
    if which == "first":
        assert wrong.tolist() == list(range(len(wrong)))


def test_the_draw_of_samples_is_the_authors() -> None:
    """The first samples of the first provider and of the hold-out, as the authors' own loader deals them out."""
    numbers = np.arange(60_000)
    images = np.stack([numbers // 256, numbers % 256], 1).astype(np.uint8).reshape(-1, 1, 2)
    dealt = Images(images, np.zeros(60_000, dtype=np.uint8), images[:1], np.zeros(1, dtype=np.uint8))
    market = market_from(dealt, SYNTHETIC, replace(MNIST, normalise=False))

    def numbers_of(x: Inputs) -> list[int]:
        assert isinstance(x, torch.Tensor)
        high, low = (x * 255).round().int().T
        found: list[int] = (high * 256 + low).tolist()
        return found

    assert numbers_of(market.providers[0].dataset[0][:6]) == [21080, 7352, 14344, 34161, 52086, 47658]
    order = np.random.RandomState(111).permutation(60_000)
    assert numbers_of(market.providers[37].dataset[0]) == order[37 * 400 : 38 * 400].tolist()
    assert numbers_of(market.holdout[0]) == order[40_000:41_000].tolist()


def test_images_have_length_one_only_where_the_protocol_says_so() -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28)).astype(np.uint8)
    long = prepared(images, SYNTHETIC, replace(MNIST, normalise=False))
    assert float(long.max()) <= 1 and float(long.min()) >= 0 and long.shape == (5, 784)
    for network, shape in (("mlp", (5, 784)), ("cnn", (5, 1, 28, 28))):
        unit = prepared(images, SYNTHETIC, replace(MNIST, network=network))  # type: ignore[arg-type]
        assert unit.shape == shape
        assert unit.flatten(1).norm(dim=1) == pytest.approx(1.0, abs=1e-5)


def test_groups_keep_their_proportions_at_every_size() -> None:
    for n in (10, 50, 100, 400):
        groups = provider_groups(replace(MNIST, providers=n))
        assert [groups.count(g) for g in range(4)] == [n // 10, n // 10, n // 10, 7 * n // 10]


def test_a_market_larger_than_the_dataset_is_refused() -> None:
    with pytest.raises(BazaarError, match="need more than the 50 training images"):
        market_from(synthetic_images(50, 10), SYNTHETIC, QUICK.images["synthetic"])


SMALL = changed(
    QUICK.images["synthetic"],
    {
        "rounds": "5",
        "providers": "8",
        "samples": "15",
        "holdout": "60",
        "per_round": "3",
        "g_max_permutations": "60",
        "g_tolerance": "0.2",
        "g_back_check": "3",
    },
)
SMALL_MIXTURE = replace(
    FIGURES.mixture, providers=9, samples=12, dimensions=8, rounds=12, per_round=4, fed_back_check=4, g_back_check=5
)


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_seeds_in_lockstep_give_what_each_gives_alone(method: str) -> None:
    market = market_from(synthetic_images(400, 50), SYNTHETIC, SMALL)
    engine = VectorizedEngine(market.consumer(0).task, market.providers, torch.device("cpu"))
    together = run_method(method, market, (0, 1, 2), "cpu", engine=engine)
    for place, seed in enumerate(together.seeds):
        alone = run_method(method, market, (seed,), "cpu", engine=engine)
        if method in SHAPLEY:
            assert together.permutations[place] == alone.permutations[0]
            assert np.abs(together.pay[place] - alone.pay[0]).max() <= 1  # a share may round the other way
        else:
            assert np.array_equal(together.pay[place], alone.pay[0])
            assert together.curve[place] == pytest.approx(alone.curve[0], abs=1e-6)
    assert (together.pay.sum(1) == SMALL.rounds * SMALL.per_round).all()
    assert method not in SHAPLEY or len(set(together.permutations)) > 1


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_progress_is_given_along_the_way(method: str) -> None:
    shares: list[float] = []
    run_method(method, mixture_market(SMALL_MIXTURE), (0, 1, 2), "cpu", shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0
    assert len(set(shares)) >= 5 and 0 < shares[0] < 0.5


def test_drawn_twice_counts_once_behind_the_figures() -> None:
    once, twice = OSMDOncePerRound(0.1, 0.1), OSMD(0.1, 0.1)
    roster = Roster.equal(4)
    state, round_budget = once.init(roster, 100, 2), RoundBudget(100, roster.prices)
    single = np.array([2, 1]), np.array([0.5, 0.2]), round_budget
    assert np.array_equal(once.update(state, *single), twice.update(state, *single))
    repeated = np.array([2, 2, 1]), np.array([0.5, 0.5, 0.2]), round_budget
    assert once.update(state, *repeated)[2] < twice.update(state, *repeated)[2]
    assert once.kind != twice.kind


def test_without_replacement_nobody_is_drawn_twice_and_the_likely_come_first() -> None:
    sampler = OSMDWithoutReplacement(0.1, 0.1)
    state = np.log(np.array([0.5, 0.3, 0.1, 0.05, 0.05]))
    rng = np.random.default_rng(0)
    round_budget = RoundBudget(100, Roster.equal(5).prices)
    rounds = np.array([sampler.draw(state, rng, 3, round_budget) for _ in range(2_000)])
    assert all(len(set(draws)) == 3 for draws in rounds.tolist())
    assert np.bincount(rounds[:, 0], minlength=5) / 2_000 == pytest.approx(np.exp(state), abs=0.04)
    counts = np.bincount(rounds.ravel(), minlength=5)
    assert counts[0] < 2_000 * 3 * 0.5 and (np.diff(counts[:4]) < 0).all()  # fewer than K p for the likeliest
    with pytest.raises(BazaarError, match="per_round = 6 cannot be drawn without replacement from 5 providers"):
        sampler.draw(state, rng, 6, round_budget)
    market = market_from(synthetic_images(400, 50), SYNTHETIC, replace(SMALL, repeats="never"))
    pay = run_method("osmd", market, (0,), "cpu").pay[0]
    assert pay.max() <= SMALL.rounds and pay.sum() == SMALL.rounds * SMALL.per_round
