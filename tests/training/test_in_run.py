"""In-run training: the steps are those of plain PyTorch, and gains are first-order values of parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from torch import Tensor, nn

from databazaar import OSMD, Arbiter, BazaarError, Consumer, Provider, Uniform
from databazaar.engines import Replies
from databazaar.learners import Averaging, InRun, Learner
from databazaar.learning.inputs import Examples
from databazaar.learning.task import Precision
from databazaar.ledger import Accounts, Drawn
from databazaar.roster import RoundBudget
from databazaar.testing import check_learner
from databazaar.training import Lesson
from databazaar.training.in_run import FIRST, MOVING, SECOND, STEPS, InRunTraining
from databazaar.training.parameters import Parameters, vector_of
from small_markets import blobs


@pytest.mark.parametrize("learner", [Averaging(), InRun(), InRun(optimizer="sgd", rate=0.05)], ids=repr)
def test_learners_keep_the_contract(learner: Learner) -> None:
    check_learner(learner)


Table = tuple[Tensor, Tensor]


def drawn(draws: list[int], providers: int) -> Drawn:
    budget = RoundBudget(len(draws), np.ones(providers, dtype=np.int64))
    return Drawn(np.array(draws), np.ones(len(draws)), budget)


def rows(seed: int, count: int = 40, flip: float = 0.0) -> Table:
    x, y = blobs(np.random.default_rng(seed), count, flip=flip)
    return torch.from_numpy(x), torch.from_numpy(y)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def begun(
    rule: InRun, tables: Mapping[int, Table], draws: list[int], model: nn.Module | None = None
) -> tuple[InRunTraining, Lesson]:
    """A learner and its first lesson, of which every answer is a whole table."""
    consumer = Consumer(
        model or network(), holdout=rows(99, 60), budget=100, per_round=len(draws), utility="negative-loss"
    )
    providers = [Provider(f"p{i}", table) for i, table in tables.items()]
    arbiter = Arbiter(consumer, providers, learner=rule)
    run = arbiter.begin(Accounts(arbiter.rules))
    assert isinstance(run.training, InRunTraining)
    state = run.state
    answers = Replies(
        vector_of(state.model).new_empty(len(set(draws)), 0), {}, rows={i: tables[i] for i in dict.fromkeys(draws)}
    )
    chosen = drawn(draws, len(tables))
    return run.training, Lesson(state.model, state.memory, state.utility, state.loss, chosen, answers, round=0)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_steps_are_those_of_plain_pytorch(optimizer: str) -> None:
    rule = InRun(batch_size=1000, least_steps=1, rate=0.05, optimizer=optimizer, warm_up=0, clip=0.3, weight_decay=0.01)  # type: ignore[arg-type]
    tables = {0: rows(1), 1: rows(2, 60), 2: rows(3, 30)}
    training, lesson = begun(rule, tables, [0, 1, 2])
    plain = network()
    steps: torch.optim.Optimizer = torch.optim.AdamW(plain.parameters(), lr=0.05, weight_decay=0.01)
    if optimizer == "sgd":
        steps = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    x, y = (torch.cat([table[part] for table in tables.values()]) for part in (0, 1))
    average = vector_of(lesson.model)
    for number in range(4):  # one batch a round: all rows at once
        learned = training.learn(replace(lesson, round=number))
        steps.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(plain.parameters(), 0.3)
        steps.step()
        ours = torch.cat([part.detach().ravel() for part in plain.parameters()])
        torch.testing.assert_close(learned.memory[MOVING], ours, atol=2e-6, rtol=1e-5)
        share = min(1.0, 10 / (9 + number + 1))
        average = average + share * (ours - average)
        torch.testing.assert_close(vector_of(learned.model), average, atol=2e-6, rtol=1e-5)
        lesson = replace(lesson, model=learned.model, memory=learned.memory)
    assert float(learned.memory[STEPS]) == 4


def test_rows_of_huge_values_are_clipped_to_a_step_as_long_as_others() -> None:
    """A gradient whose squares no float32 holds would else come to no step at all, for everybody in the round."""
    x, y = rows(1)
    rule = InRun(batch_size=1000, least_steps=1, rate=0.05, optimizer="sgd", warm_up=0, clip=0.3, weight_decay=0.0)
    training, lesson = begun(rule, {0: (x * 1e30, 1 - y), 1: rows(2)}, [0, 1], nn.Linear(4, 2))
    moved = training.learn(lesson).memory[MOVING] - lesson.memory[MOVING]
    assert float(torch.linalg.vector_norm(moved)) == pytest.approx(0.3 * 0.05, rel=1e-3)


def exact_values(training: InRunTraining, lesson: Lesson) -> dict[int, float]:
    """⟨g_i, P v⟩ by automatic differentiation, a gradient for each provider."""
    model, loss = training.task.model, nn.functional.cross_entropy
    assert model is not None

    def gradient(table: Examples) -> Tensor:
        leaf = lesson.memory[MOVING].clone().requires_grad_()
        outputs = torch.func.functional_call(model, training.task.layout.unflatten(leaf), (table[0],))
        return torch.autograd.grad(loss(outputs, table[1]), leaf)[0].double()

    way = gradient(training.holdout)
    way = way / ((lesson.memory[SECOND] / (1 - 0.999 ** float(lesson.memory[STEPS])) + way**2).sqrt() + 1e-8)
    return {i: float(gradient(table) @ way) for i, table in lesson.replies.rows.items()}


@settings(max_examples=20)
@given(seed=st.integers(0, 50), draws=st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_gains_are_first_order_values_of_parts(seed: int, draws: list[int]) -> None:
    tables = {i: rows(10 * seed + i, 20 + 15 * i, flip=0.4 * i) for i in range(3)}
    training, lesson = begun(InRun(rate=0.01, batch_size=64, least_steps=1, warm_up=0, judged=100), tables, draws)
    first = training.learn(lesson)
    lesson = replace(lesson, model=first.model, memory=first.memory, round=1)
    learned = training.learn(lesson)
    total = sum(len(tables[i][1]) for i in draws)
    rate, steps = 0.01, -(-sum(len(tables[i][1]) for i in set(draws)) // 64)
    for i, value in exact_values(training, lesson).items():
        wanted = rate * steps * value * len(tables[i][1]) / total
        assert learned.gains[i] == pytest.approx(wanted, rel=0.02, abs=2e-5)


def test_a_provider_in_parts_is_worth_what_it_is_whole() -> None:
    """Who sells the same rows under several names gains nothing by it."""
    x, y = rows(1, 60)
    other = rows(2, 30)
    rule = InRun(rate=0.01, batch_size=1000, least_steps=1)
    whole, lesson = begun(rule, {0: (x, y), 1: other}, [0, 1])
    parts = {0: (x[:10], y[:10]), 1: other, 2: (x[10:30], y[10:30]), 3: (x[30:], y[30:])}
    split, apart = begun(rule, parts, [0, 1, 2, 3])
    one, several = whole.learn(lesson).gains, split.learn(apart).gains
    assert several[0] + several[2] + several[3] == pytest.approx(one[0], rel=1e-4)  # type: ignore[operator]
    assert several[1] == pytest.approx(one[1], rel=1e-4)


def test_who_is_drawn_twice_counts_twice() -> None:
    """Twice drawn is as if the same rows came twice, and each draw has half of the gain."""
    tables = {0: rows(1, 40), 1: rows(2, 40)}
    rule = InRun(rate=0.01, batch_size=1000, least_steps=1)
    twice, lesson = begun(rule, tables, [0, 1, 0])
    copies, apart = begun(rule, {**tables, 2: tables[0]}, [0, 1, 2])
    one, other = twice.learn(lesson), copies.learn(apart)
    torch.testing.assert_close(vector_of(one.model), vector_of(other.model), atol=1e-6, rtol=1e-5)
    assert one.gains[0] == pytest.approx(other.gains[0], rel=1e-4)


def test_what_is_given_is_not_written_to() -> None:
    training, lesson = begun(InRun(), {0: rows(1)}, [0])
    model, memory = Parameters(vector_of(lesson.model).clone()), {k: v.clone() for k, v in lesson.memory.items()}
    lesson = replace(lesson, model=model, memory=memory)
    before = vector_of(lesson.model).clone(), {name: kept.clone() for name, kept in lesson.memory.items()}
    one, again = training.learn(lesson), training.learn(lesson)
    torch.testing.assert_close(vector_of(lesson.model), before[0], atol=0, rtol=0)
    assert all(torch.equal(lesson.memory[name], kept) for name, kept in before[1].items())
    assert torch.equal(vector_of(one.model), vector_of(again.model)) and one.gains == again.gains
    assert not torch.equal(vector_of(one.model), vector_of(lesson.model)) and set(one.memory) == {
        MOVING,
        FIRST,
        SECOND,
        STEPS,
    }


class Logarithm(nn.Module):
    """A model that has no number for rows below zero."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.out(x.log())
        return outputs


def test_rows_that_have_no_loss_are_void_and_the_others_go_on() -> None:
    def positive(seed: int) -> Table:
        x, y = rows(seed)
        return x.exp(), y

    providers = [Provider("good", positive(1)), Provider("bad", rows(2)), Provider("fine", positive(3))]
    consumer = Consumer(Logarithm(), holdout=positive(99), budget=24, per_round=2)
    report = Arbiter(consumer, providers, Uniform(), learner=InRun()).run()
    ended = {(one.provider, one.failure.name if one.failure else "") for r in report.rounds for one in r.accesses}
    assert ended == {(0, ""), (1, "no-utility"), (2, "")}
    assert report.payouts[1].pay == 0 and report.final_utility > report.rounds[0].utility
    for played in report.rounds:
        if {one.provider for one in played.accesses} == {1}:
            assert played.reached == played.utility


def test_rows_without_a_loss_are_found_beyond_those_that_are_judged() -> None:
    x, y = rows(1)
    tables = {0: (x.exp(), y), 1: (torch.cat([x.exp(), -x[:1].abs()]), torch.cat([y, y[:1]]))}
    consumer = Consumer(Logarithm(), holdout=(x.exp(), y), budget=100, per_round=2)
    arbiter = Arbiter(consumer, [Provider(str(i), table) for i, table in tables.items()], learner=InRun(judged=20))
    run = arbiter.begin(Accounts(arbiter.rules))
    state, answers = run.state, Replies(vector_of(run.state.model).new_empty(2, 0), {}, rows=tables)
    lesson = Lesson(state.model, state.memory, state.utility, state.loss, drawn([0, 1], 2), answers, round=0)
    learned = run.training.learn(lesson)
    assert set(learned.failures) == {1} and learned.gains[1] is None and learned.gains[0] is not None
    reached = vector_of(learned.model)
    assert bool(torch.isfinite(reached).all()) and not torch.equal(reached, vector_of(state.model))


def test_a_step_that_loses_the_utility_is_not_taken() -> None:
    training, lesson = begun(InRun(rate=1e38, warm_up=0, clip=1e30), {0: rows(1)}, [0])
    learned = training.learn(lesson)
    assert torch.equal(vector_of(learned.model), vector_of(lesson.model)) and learned.memory is lesson.memory
    assert float(learned.scores.utility[0]) == lesson.utility


class Odd(nn.Module):
    """Dropout, batch norm and an integer counter: what a stack of models cannot have."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layers(x)
        return outputs


class Named(nn.Module):
    """Two inputs by name, one of them tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(5, 3), nn.Linear(7, 2)

    def forward(self, tokens: Tensor, numbers: Tensor) -> Tensor:
        outputs: Tensor = self.out(torch.cat([self.words(tokens).mean(1), numbers], 1))
        return outputs


def as_named(table: Table) -> tuple[dict[str, Tensor], Tensor]:
    x, y = table
    return {"tokens": (x.abs() * 2).long().clamp(max=4), "numbers": x}, y


@pytest.mark.parametrize("kind", ["odd", "named", "bf16"])
def test_models_that_cannot_be_stacked_learn_and_repeat_themselves(kind: str) -> None:
    torch.manual_seed(1)
    model = Odd() if kind == "odd" else Named() if kind == "named" else network()
    form = as_named if kind == "named" else lambda table: table
    precision: Precision = "bf16" if kind == "bf16" else "float32"

    def market() -> Arbiter:
        consumer = Consumer(
            model,
            holdout=form(rows(50, 80)),
            budget=40,
            per_round=2,
            precision=precision,
            train=form(rows(51, 30)),
        )
        return Arbiter(consumer, [Provider(f"p{i}", form(rows(i, 60))) for i in range(3)], learner=InRun(rate=0.01))

    arbiter, again = market(), market()
    report = arbiter.run()
    assert again.run().model_hash == report.model_hash
    assert report.final_utility > report.rounds[0].utility
    if kind == "odd":
        assert int(arbiter.model.layers[1].num_batches_tracked) == 0  # counted for a round alone
        assert bool((arbiter.model.layers[1].running_mean != 0).any())


def test_own_rows_take_part_in_every_step() -> None:
    """Providers of nothing but noise, and rows of one's own: the model is the better for them."""
    noise = [Provider(f"p{i}", rows(i, 40, flip=0.5)) for i in range(3)]
    losses = []
    for train in (None, rows(70, 200)):
        consumer = Consumer(network(), holdout=rows(50, 100), budget=60, per_round=3, train=train)
        arbiter = Arbiter(consumer, noise, Uniform(), learner=InRun(rate=0.01))
        losses.append(arbiter.run().rounds[-1].reached_loss)
    assert losses[1] < losses[0] - 0.1  # type: ignore[operator]


def test_a_model_that_cannot_take_a_step_on_so_few_rows_is_named_with_a_remedy() -> None:
    x, y = rows(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    arbiter = Arbiter(Consumer(model, holdout=(x, y), budget=4, per_round=1), [Provider("a", (x[:1], y[:1]))])
    with pytest.raises(
        BazaarError, match=r"the model cannot be trained on a batch of size 1 .*more than 1 value.*train = \(x, y\)"
    ):
        arbiter.run()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"engine": "ray"}, "needs the providers' rows here"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_remedy(more: dict[str, str], sentence: str) -> None:
    consumer = Consumer("logistic", holdout=rows(50), budget=20, per_round=2)
    with pytest.raises(BazaarError, match=f"{sentence}.*averaging"):
        Arbiter(consumer, [Provider("p", rows(1)), Provider("q", rows(2))], learner=InRun(), **more)  # type: ignore[arg-type]


def test_a_provider_without_rows_and_a_model_that_is_no_module_are_refused() -> None:
    consumer = Consumer("logistic", holdout=rows(50), budget=20, per_round=1)
    with pytest.raises(BazaarError, match=r"provider p gives no rows.*averaging"):
        Arbiter(consumer, [Provider("p", oracle=lambda w: w)], learner=InRun())
    vector = Consumer(np.zeros(2), budget=20, per_round=1, utility=lambda w: float(w[0]))
    with pytest.raises(BazaarError, match="needs a torch model"):
        Arbiter(vector, [Provider("p", rows(1))], learner=InRun()).run()


def test_labels_that_the_model_has_no_output_for_are_refused_before_anything_is_paid() -> None:
    consumer = Consumer("logistic", holdout=rows(50), budget=20, per_round=1)
    x, y = rows(1)
    with pytest.raises(BazaarError, match="provider p"):
        Arbiter(consumer, [Provider("p", (x, y + 5))], learner=InRun())


def test_one_optimizer_beats_averaged_local_training_at_the_same_accesses() -> None:
    """The small version of benchmarks/bench_in_run.py: handwritten digits, a third of the providers mostly wrong."""
    digits, rng = load_digits(), np.random.default_rng(0)
    x, y = (digits.data[order := rng.permutation(1797)] / 16).astype(np.float32), digits.target[order]
    providers = []
    for i in range(18):
        part = slice(50 * i, 50 * i + 50)
        wrong = rng.random(50) < (0.0, 0.2, 0.8)[i % 3]
        providers.append(Provider(f"p{i}", (x[part], np.where(wrong, rng.integers(0, 10, 50), y[part]))))
    right = {}
    for name, rule in (("in-run", InRun(batch_size=64)), ("averaging", Averaging())):
        consumer = Consumer("mlp", holdout=(x[900:1100], y[900:1100]), budget=300, per_round=6)
        arbiter = Arbiter(consumer, providers, learner=rule)
        arbiter.run()
        with torch.no_grad():
            right[name] = float((arbiter.model(torch.from_numpy(x[1100:])).argmax(1).numpy() == y[1100:]).mean())
    assert right["in-run"] > right["averaging"] + 0.02


def test_theory_s_sampler_draws_from_it_too() -> None:
    consumer = Consumer("logistic", holdout=rows(50), budget=30, per_round=3)
    report = Arbiter(consumer, [Provider(f"p{i}", rows(i)) for i in range(3)], OSMD(0.5, 0.2), learner=InRun()).run()
    assert report.spent == 30 and report.gains == "alone"
