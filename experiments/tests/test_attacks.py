"""Each attack is what it says, seen from the arbiter's side: what its providers register, and what they answer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from databazaar import BazaarError, Consumer, Provider
from databazaar.engines import Ask, LoopEngine
from databazaar.learning.oracles import FullGradient, LocalSGD
from databazaar_experiments.attacks import (
    Alie,
    Alone,
    Alternate,
    Attack,
    Backdoor,
    Boost,
    Clones,
    Collude,
    Flip,
    Honest,
    Known,
    Leak,
    Mixed,
    MixedEngine,
    Noise,
    Price,
    Replay,
    Selective,
    Sign,
    Split,
    Trigger,
    Zero,
)
from databazaar_experiments.attacks.known import Insider, outputs

Vector = NDArray[Any]
CLASSES, WIDTH = 3, 6


def rows(count: int, seed: int) -> tuple[Vector, Vector]:
    """Three classes that a linear model tells apart."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, WIDTH)).astype(np.float32)
    return x, (x[:, :CLASSES] + 0.3 * rng.normal(size=(count, CLASSES))).argmax(1)


def provider(name: str, seed: int, oracle: Any = None) -> Provider:
    return Provider(name, rows(40, seed), oracle or FullGradient(), price=7, price_changes=[(3, 9)])


HOLDOUT = rows(60, 100)
CONSUMER = Consumer("logistic", budget=100, holdout=HOLDOUT)
START: Vector = CONSUMER.initial_parameters().numpy()


def known(count: int = 1, leaked: Any = None, oracle: Any = None) -> Known:
    """Full gradients by default: what the data say is then no accident."""
    return Known(CONSUMER.task, tuple(provider(f"p{i}", i, oracle) for i in range(count)), leaked, providers=20, seed=5)


def honest(params: Vector, place: int = 0) -> Vector:
    return Insider(known(place + 1), provider(f"p{place}", place)).honest(params)


def answers(one: Provider, *asked: Vector) -> list[Vector]:
    assert callable(one.oracle) and not isinstance(one.oracle, FullGradient | LocalSGD)
    return [np.asarray(one.oracle(params.copy())) for params in asked]


def inputs(one: Provider) -> torch.Tensor:
    x, _ = one.dataset
    assert isinstance(x, torch.Tensor)
    return x


def walk(steps: int) -> list[Vector]:
    """Parameters of a market that learns."""
    rng = np.random.default_rng(1)
    found = [START]
    for _ in range(steps):
        found.append(found[-1] + honest(found[-1]) + 0.1 * rng.normal(size=START.shape).astype(np.float32))
    return found


def loss(params: Vector, data: Any) -> float:
    return Insider(known(), provider("p0", 0)).loss(params, known().rows(data))


def cosine(one: Vector, other: Vector) -> float:
    return float(np.vdot(one, other) / (np.linalg.norm(one) * np.linalg.norm(other)))


def test_honest_is_the_provider_itself() -> None:
    told = known(2)
    assert Honest().join(told) == list(told.own)


@pytest.mark.parametrize("declared", [True, False])
def test_clones_have_the_same_data_and_price_and_say_whose_they_are_or_not(declared: bool) -> None:
    told = known()
    joined = Clones(3, declared=declared).join(told)
    assert [one.id for one in joined] == ["p0", "p0~2", "p0~3"]
    assert {one.owner for one in joined} == ({"p0"} if declared else {"p0", "p0~2", "p0~3"})
    for one in joined:
        assert inputs(one).equal(inputs(told.own[0])) and one.offer.price_at(3) == 9
        assert np.array_equal(Insider(told, one).honest(START), honest(START))


def test_disguised_clones_point_the_same_way_on_the_whole() -> None:
    """Noise is another every time; a bias stays, and is each clone's own."""
    noisy, biased = (Clones(2, False, **how).join(known()) for how in ({"noise": 0.5}, {"bias": 0.5}))
    true = honest(START)
    size = float(np.linalg.norm(true))
    first, second = answers(noisy[0], START, START)
    assert np.linalg.norm(first - true) == pytest.approx(0.5 * size, rel=1e-4)
    assert abs(cosine(first - true, second - true)) < 0.9
    (one, again), (other,) = answers(biased[0], START, START), answers(biased[1], START)
    assert np.allclose(one, again) and np.linalg.norm(one - true) == pytest.approx(0.5 * size, rel=1e-4)
    assert not np.allclose(one, other) and cosine(one, other) > 0.5


def test_split_deals_out_every_row_once() -> None:
    parts = Split(3, declared=False).join(known())
    (whole,) = known().own
    assert torch.cat([inputs(part) for part in parts]).equal(inputs(whole))
    assert torch.cat([part.dataset[1] for part in parts]).equal(whole.dataset[1])
    assert len({part.owner for part in parts}) == 3
    with pytest.raises(BazaarError, match="40 rows: too few to split among 41"):
        Split(41).join(known())


def test_price_asks_more_in_every_round_for_the_same_work() -> None:
    (one,) = Price(3).join(known())
    assert [one.offer.price_at(round) for round in (0, 3)] == [21, 27]
    assert inputs(one).equal(inputs(known().own[0]))


def test_a_leak_gains_on_what_has_leaked() -> None:
    secret = HOLDOUT[0][:30], HOLDOUT[1][:30]
    told = known(leaked=secret)
    (trains,), (fits,) = Leak("sgd").join(told), Leak("fit").join(told)
    assert inputs(trains).equal(torch.from_numpy(secret[0]))
    (both,) = Leak("own").join(told)
    assert inputs(both).equal(torch.cat([inputs(told.own[0]), inputs(trains)])) and len(both.dataset[1]) == 70
    params = walk(4)[-1]
    for params in walk(4)[1:]:
        (moved,) = answers(fits, params)
        assert loss(params + moved, secret) < loss(params, secret)
        assert np.linalg.norm(moved) <= np.linalg.norm(Insider(told, trains).honest(params)) * 1.001


def test_a_poisonous_leak_gains_on_what_has_leaked_and_harms_the_rest() -> None:
    """Its harm is at right angles to its gain, so a small step shows nothing of it on the leaked rows."""
    secret = HOLDOUT[0][:30], HOLDOUT[1][:30]
    (one,) = Leak("poison").join(known(leaked=secret))
    params = walk(2)[-1]
    (sent,) = answers(one, params)
    assert loss(params + 0.1 * sent, secret) < loss(params, secret)
    gain = Insider(known(), Provider("p0", secret, FullGradient())).honest(params)
    harm = sent - gain
    assert abs(cosine(harm, gain)) < 1e-3 and np.vdot(harm, honest(params)) < 0
    assert loss(params + 0.1 * harm, known().own[0].data) > loss(params, known().own[0].data)


@pytest.mark.parametrize("attack", [Leak("sgd"), Leak("own"), Leak("fit"), Leak("poison")])
def test_without_leaked_rows_there_is_no_leak(attack: Leak) -> None:
    with pytest.raises(BazaarError, match="needs rows of the hold-out that have leaked"):
        attack.join(known())


@pytest.mark.parametrize("what", ["last", "all"])
@pytest.mark.parametrize("factor", [1.0, 5.0, -1.0])
def test_a_replay_lies_in_the_span_of_public_changes(what: Any, factor: float) -> None:
    (one,) = Replay(what, factor).join(known())
    seen = walk(5)
    sent = answers(one, *seen)
    for t in range(1, 6):
        changes = np.stack([after - before for before, after in pairwise(seen[: t + 1])], axis=1)
        by, *_ = np.linalg.lstsq(changes, sent[t], rcond=None)
        assert np.allclose(changes @ by, sent[t], atol=1e-4)
        last = seen[t] - seen[t - 1]
        assert np.linalg.norm(sent[t]) == pytest.approx(abs(factor) * np.linalg.norm(last), rel=1e-4)
        assert np.sign(np.vdot(sent[t], seen[t] - seen[0 if what == "all" else t - 1])) == np.sign(factor)


def test_a_noisy_replay_is_a_replay_with_noise() -> None:
    """Fresh noise is another every time; constant noise persists, as what data say does."""
    seen = walk(3)
    changes = [after - before for before, after in pairwise(seen)]
    for constant in (False, True):
        (one,) = Replay(noise=0.5, constant=constant).join(known())
        noise = [sent - change for sent, change in zip(answers(one, *seen)[1:], changes, strict=True)]
        for part, change in zip(noise, changes, strict=True):
            assert np.linalg.norm(part) == pytest.approx(0.5 * np.linalg.norm(change), rel=1e-3)
        assert (cosine(noise[0], noise[2]) > 0.999) == constant


def test_noise_has_its_length_and_nothing_else() -> None:
    (fresh,), (constant,) = (Noise(2.0, constant).join(known()) for constant in (False, True))
    one, other = answers(fresh, START, START)
    assert np.linalg.norm(one) == pytest.approx(2 * np.linalg.norm(honest(START)), rel=1e-4)
    assert abs(cosine(one, other)) < 0.9
    same = answers(constant, *walk(1))
    assert cosine(*same) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("attack", "factor"), [(Zero(), 1e-3), (Boost(5.0), 5.0), (Sign(), -1.0), (Sign(3.0), -3.0)], ids=str
)
def test_attacks_that_are_multiples_of_honest_work(attack: Attack, factor: float) -> None:
    (one,) = attack.join(known())
    assert np.allclose(answers(one, START)[0], factor * honest(START), rtol=1e-4)


def test_a_line_search_is_never_worse_on_its_own_data_than_plain_work() -> None:
    (one,) = Boost(None).join(known())
    own = known().own[0].data
    for params, sent in zip(walk(3), answers(one, *walk(3)), strict=True):
        assert loss(params + sent, own) <= loss(params + honest(params), own) + 1e-6


def test_alternating_means_good_first_then_poison() -> None:
    (one,) = Alternate(2.0).join(known())
    assert [round(cosine(sent, honest(START))) for sent in answers(one, START, START, START)] == [1, -1, 1]


def test_flipped_labels_are_the_others() -> None:
    (one,) = Flip().join(known())
    assert (one.dataset[1] + known().own[0].dataset[1] == CLASSES - 1).all()


def test_the_pair_repairs_what_it_breaks() -> None:
    """Whoever of the two is asked: every second answer takes back the one before, in the same round or later."""
    one, other = Collude(10.0).join(known(2))
    (broken,), (repaired,) = answers(one, START), answers(other, START)
    assert np.allclose(broken, -10 * honest(START), rtol=1e-4) and np.array_equal(repaired, -broken)
    first, second = answers(other, *walk(1))
    assert np.allclose(first, -10 * honest(START, 1), rtol=1e-4) and np.array_equal(second, -first)


def test_alie_stays_inside_the_spread_of_the_colluders() -> None:
    crowd = Alie(z=1.0).join(known(6))
    params = walk(1)[-1]
    said = np.stack([honest(params, place) for place in range(6)])
    sent = answers(crowd[0], params)[0]
    off = np.abs(sent - said.mean(axis=0))
    assert (off <= said.std(axis=0) * 1.001 + 1e-7).all() and off.max() > 0
    assert (np.sign(said.mean(axis=0)) * (said.mean(axis=0) - sent) >= -1e-7).all()
    assert np.array_equal(answers(crowd[3], params)[0], sent)  # they have agreed on it
    careful = answers(Alie().join(known(6))[0], params)[0]
    assert 0 < np.abs(careful - said.mean(axis=0)).max() < off.max()


def test_selective_answers_when_it_seems_to_help() -> None:
    leaked = HOLDOUT[0], HOLDOUT[1]
    seen = walk(30)
    for told in (known(leaked=leaked), known()):
        for best in (1.0, 0.5):
            (one,) = Selective(best).join(told)
            given = [params for params in seen if _given(one, params) is not None]
            assert 0 < len(given) < len(seen) or best == 1.0
    (one,) = Selective().join(known(leaked=leaked))
    far = START + 50 * honest(START)  # overshot: what its rows say now does the others no good
    for params in (*seen, far):
        sent = _given(one, params)
        helps = loss(params + honest(params), leaked) < loss(params, leaked)
        assert (sent is not None) == helps


def _given(one: Provider, params: Vector) -> Vector | None:
    try:
        return answers(one, params)[0]
    except TimeoutError:
        return None


def test_mixed_attackers_take_turns_in_what_they_do() -> None:
    told = known(3)
    joined = Mixed((Sign(), Price(2), Clones(2))).join(told)
    assert [one.id for one in joined] == ["p0", "p1", "p2", "p2~2"]
    assert joined[1].price == 14 and np.allclose(answers(joined[0], START)[0], -honest(START), rtol=1e-4)
    default = Mixed().join(known(4, leaked=HOLDOUT))
    assert [isinstance(one.oracle, FullGradient) for one in default] == [False, False, True, False]


def test_a_backdoor_opens_to_its_trigger_alone() -> None:
    """Trained alone on the poisoned rows, the model is as good as before, and the trigger works."""
    trigger = Trigger(width=2, value=6.0, target=1)
    told = known(oracle=LocalSGD(step=0.5, epochs=20, steps=None))
    (poisoned,) = Backdoor(trigger).join(told)
    (louder,) = Backdoor(trigger, factor=3.0).join(told)
    test = rows(300, 7)

    def trained(one: Provider) -> tuple[float, float]:
        params = torch.from_numpy(START + Insider(told, one).honest(START))
        task, x, y = told.task, torch.from_numpy(test[0]), torch.from_numpy(test[1])
        right = float((outputs(task, params, x).argmax(1) == y).float().mean())
        return right, trigger.success(task, params, (x, y))

    (clean, closed), (right, open) = trained(told.own[0]), trained(poisoned)
    assert clean > 0.8 and right > clean - 0.1 and closed < 0.6 and open > 0.95
    assert np.linalg.norm(answers(louder, START)[0]) > 2 * np.linalg.norm(Insider(told, poisoned).honest(START))


@pytest.mark.parametrize("attack", [Backdoor(), Flip()], ids=str)
def test_attacks_on_classes_need_classes(attack: Attack) -> None:
    consumer = Consumer("linear", budget=10, holdout=([[0.0], [1.0]], [0.5, 1.5]))
    own = Provider("p0", ([[0.0], [1.0]], [0.5, 1.5]))
    with pytest.raises(BazaarError, match="needs a model that tells classes apart"):
        attack.join(Known(consumer.task, (own,)))


def test_named_inputs_take_no_trigger() -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(a)
            return out

    data = {"a": np.zeros((4, 2), dtype=np.float32)}, [0, 1, 0, 1]
    consumer = Consumer(Named(), budget=10, holdout=data)
    with pytest.raises(BazaarError, match="needs inputs without names"):
        Backdoor().join(Known(consumer.task, (Provider("p0", data),)))


@pytest.mark.parametrize("attack", [Boost(None), Selective()], ids=str)
def test_attacks_that_look_at_their_data_need_them(attack: Attack) -> None:
    told = Known(CONSUMER.task, (Provider("p0", oracle=lambda w: -w),))
    (one,) = attack.join(told)
    with pytest.raises(BazaarError, match="p0 answers by a callable"):
        answers(one, START)


def test_attackers_may_have_no_torch_model_and_answer_by_callables() -> None:
    """A market of plain vectors: whatever is a multiple of an answer can be played in it."""
    consumer = Consumer(np.zeros(3), budget=10, utility=lambda w: float(-np.sum(w**2)))
    told = Known(consumer.task, (Provider("p0", oracle=lambda w: 1 - w),))
    (one,) = Sign().join(told)
    assert answers(one, np.zeros(3))[0].tolist() == [-1, -1, -1]
    with pytest.raises(BazaarError, match="the consumer brought a plain vector"):
        outputs(consumer.task, torch.zeros(3), torch.zeros(1, 1))
    (elsewhere,) = Sign().join(Known(CONSUMER.task, (Provider("away"),)))
    with pytest.raises(BazaarError, match="keeps its data on its own premises"):
        answers(elsewhere, START)


RANDOM = [Clones(2, noise=0.5), Leak("fit"), Replay(noise=1.0), Noise(), Boost(), Backdoor(factor=3.0), Mixed()]


@pytest.mark.parametrize("attack", RANDOM, ids=str)
def test_all_randomness_comes_from_the_seed_and_the_id(attack: Attack) -> None:
    """Mini-batches too: two markets of one seed are the same, and attackers differ from each other."""

    def sent(seed: int) -> list[Vector]:
        oracle = LocalSGD(step=0.5, batch_size=4)
        own = tuple(Provider(f"p{i}", rows(40, 0), oracle) for i in range(2))
        joined = attack.join(Known(CONSUMER.task, own, HOLDOUT, 20, seed))
        return [answer for one in joined if callable(one.oracle) for answer in answers(one, *walk(2))]

    first, again, other = sent(3), sent(3), sent(4)
    assert all(np.array_equal(one, same) for one, same in zip(first, again, strict=True))
    assert not all(np.array_equal(one, same) for one, same in zip(first, other, strict=True))


def test_the_mixed_engine_answers_as_the_loop_does() -> None:
    """Whoever is asked, in whichever order, and also where somebody fails."""

    def silent(params: Vector) -> Vector:
        raise TimeoutError("no answer")

    providers = [
        provider("a", 0),
        Provider("b", oracle=lambda w: 1 - w),
        provider("c", 1),
        Provider("d", oracle=silent),
    ]
    mixed, loop = MixedEngine(CONSUMER.task, providers), LoopEngine(CONSUMER.task, providers, torch.device("cpu"))
    for asked in ([3, 0, 1, 2], [1], [2, 0], [3]):
        ask = Ask(CONSUMER.initial_parameters(), asked, round=2, seed=1)
        got, wanted = mixed.query(ask), loop.query(ask)
        assert torch.allclose(got.updates, wanted.updates, atol=1e-6) and got.failures == wanted.failures
    mixed.close()
    callables = MixedEngine(CONSUMER.task, providers[1::2])
    assert set(callables.query(Ask(CONSUMER.initial_parameters(), [0, 1], 0, 0)).failures) == {1}
    callables.close()


def test_every_kind_has_a_name_of_its_own_and_settings_that_are_frozen() -> None:
    from databazaar_experiments import attacks

    exported = [vars(attacks)[name] for name in attacks.__all__]
    kinds = [one for one in exported if hasattr(one, "kind") and one is not Alone]
    assert len({one.kind for one in kinds}) == len(kinds) == 17
    assert all(one.__dataclass_params__.frozen for one in kinds)
    with pytest.raises(NotImplementedError):
        answers(Alone().join(known())[0], START)  # what is common to many is no attack yet
