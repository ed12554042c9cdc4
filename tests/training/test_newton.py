"""Newton's method: ridge regression to the last digits, exact parts, and gains that are those of the slow way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor, nn

from databazaar import Arbiter, BazaarError, Consumer, Progress, Provider, Uniform
from databazaar.config.market_file import parse_market
from databazaar.config.template import template
from databazaar.engines import Replies
from databazaar.engines.protocol import DIVERGES, NO_UTILITY
from databazaar.learners import Averaging, Learner, Newton
from databazaar.learning.inputs import NamedInputs
from databazaar.learning.linear import LinearProblem, Quadratic
from databazaar.learning.losses import binary_cross_entropy, cross_entropy, squared_error
from databazaar.learning.models import build_model
from databazaar.ledger import Accounts, Drawn
from databazaar.roster import RoundBudget
from databazaar.testing import check_learner
from databazaar.training import Lesson
from databazaar.training.newton import HESSIAN, LINEAR, RIDGES, NewtonTraining, problem_of
from databazaar.training.parameters import Parameters, vector_of

Table = tuple[Tensor, Tensor]


@pytest.mark.parametrize("learner", [Newton(), Newton(ridge=3.0, decay=1.0), Newton(decay=0.0)], ids=repr)
@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_it_keeps_the_contract(learner: Learner, model: str) -> None:
    check_learner(learner, model=model)


def rows(seed: int, count: int = 40, classes: int = 0, wrong: float = 0.0) -> Table:
    """Three features and classes, or numbers, that follow a linear model."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 3)).astype(np.float32)
    scores = x @ np.array([[1.0, -1.0, 0.0], [0.5, 1.0, -1.0], [-1.0, 0.3, 0.7]]) + [0.5, 0.0, -0.5]
    if not classes:
        return torch.from_numpy(x), torch.from_numpy((scores[:, 0] + 0.3 * rng.normal(size=count)).astype(np.float32))
    y = (2 * scores[:, :classes] + rng.gumbel(size=(count, classes))).argmax(1)
    return torch.from_numpy(x), torch.from_numpy(np.where(rng.random(count) < wrong, (y + 1) % classes, y))


def begun(
    rule: Newton, tables: Mapping[int, Table], draws: Sequence[int], classes: int = 0, train: Table | None = None
) -> tuple[NewtonTraining, Lesson]:
    """A learner and its first lesson, of which every answer is a whole table."""
    kind = "logistic" if classes else "linear"
    consumer = Consumer(
        kind, holdout=rows(99, 60, classes), train=train, budget=100, per_round=len(draws), utility="negative-loss"
    )
    arbiter = Arbiter(consumer, [Provider(f"p{i}", rows(i, 4, classes)) for i in tables], learner=rule)
    run = arbiter.begin(Accounts(arbiter.rules))
    assert isinstance(run.training, NewtonTraining)
    answers = Replies(torch.empty(len(set(draws)), 0), {}, rows={i: tables[i] for i in dict.fromkeys(draws)})
    drawn = Drawn(np.array(draws), np.ones(len(draws)), RoundBudget(len(draws), np.ones(len(tables), dtype=np.int64)))
    state = run.state
    return run.training, Lesson(state.model, state.memory, state.utility, state.loss, drawn, answers, round=0)


def followed(training: NewtonTraining, lesson: Lesson, rounds: int) -> Lesson:
    """The lesson that comes after so many rounds of the same answers."""
    for number in range(rounds):
        learned = training.learn(replace(lesson, round=number))
        assert learned.scores.loss is not None
        utility, loss = float(learned.scores.utility[0]), float(learned.scores.loss[0])
        lesson = replace(lesson, model=learned.model, memory=learned.memory, utility=utility, loss=loss)
    return lesson


def test_with_decay_1_it_is_ridge_regression_on_all_rows_bought() -> None:
    tables = {i: rows(i, 20 + 10 * i) for i in range(4)}
    training, lesson = begun(Newton(ridge=2.5, decay=1.0), tables, [0])
    bought: list[Table] = []
    for number, draws in enumerate([[0, 1], [2, 2], [3, 0], [1, 3]]):
        answers = Replies(torch.empty(2, 0), {}, rows={i: tables[i] for i in draws})
        drawn = Drawn(np.array(draws), np.ones(2), RoundBudget(2, np.ones(4, dtype=np.int64)))
        learned = training.learn(replace(lesson, drawn=drawn, replies=answers, round=number))
        bought += [tables[i] for i in draws]
        lesson = replace(lesson, model=learned.model, memory=learned.memory)
        x, y = (torch.cat([table[part] for table in bought]).double().numpy() for part in (0, 1))
        whole = Ridge(alpha=2.5 * (number + 1), tol=1e-14, solver="cholesky").fit(x, y)
        wanted = np.append(whole.coef_, whole.intercept_)
        remembered = torch.linalg.solve(lesson.memory[HESSIAN][0], lesson.memory[LINEAR][0]).numpy()
        np.testing.assert_allclose(remembered, wanted, rtol=1e-8)
        np.testing.assert_allclose(vector_of(lesson.model).numpy(), wanted, rtol=1e-6)  # what float32 holds


def test_own_rows_alone_are_the_fits_of_scikit_learn() -> None:
    for classes in (0, 2, 3):
        training, _ = begun(Newton(ridge=2.0), {0: rows(0, 4, classes)}, [0], classes, train=rows(5, 50, classes))
        both = [rows(5, 50, classes), rows(99, 60, classes)]
        x, y = (torch.cat([table[part] for table in both]).double().numpy() for part in (0, 1))
        found = training.outputs(training.own_rows_alone(), both[1][0])
        if not classes:
            wanted = Ridge(alpha=2.0).fit(x, y).predict(x[50:])[:, None]
        elif classes == 2:  # two rows of weights, each half of scikit-learn's one
            wanted = LogisticRegression(C=1.0, tol=1e-10).fit(x, y).decision_function(x[50:])[:, None]
            found = found[:, 1:] - found[:, :1]
        else:
            wanted = LogisticRegression(C=0.5, tol=1e-10).fit(x, y).decision_function(x[50:])
            found, wanted = (each - each.mean(1, keepdims=True) for each in (found, wanted))
        np.testing.assert_allclose(found, wanted, atol=1e-5 if classes < 3 else 1e-3)


@pytest.mark.parametrize("loss", [squared_error, binary_cross_entropy, cross_entropy])
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_gradients_and_hessians_are_those_of_the_loss(loss: object, outputs: int) -> None:
    if (loss is binary_cross_entropy) != (outputs == 1) and loss is not squared_error:
        return
    problem = LinearProblem(loss, outputs, 4, 0.0)  # type: ignore[arg-type]
    scores = torch.randn(5, outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.randn(5, outputs, dtype=torch.float64) if loss is squared_error else torch.tensor([0.0, 1, 1, 0, 1])
    found, hessians = problem.slopes(scores, y)
    for row in range(5):

        def one(score: Tensor, row: int = row) -> Tensor:
            return problem.loss(score[None], y[row : row + 1]).sum()

        exact = torch.autograd.functional.jacobian(one, scores[row])  # type: ignore[no-untyped-call]
        torch.testing.assert_close(found[row], -exact)
        full = torch.autograd.functional.hessian(one, scores[row])  # type: ignore[no-untyped-call]
        along = exact - exact.mean() if outputs == 2 and loss is cross_entropy else exact
        if problem.blocks == 1:  # exact along every move that a gradient can make
            torch.testing.assert_close(along @ full @ along, (hessians[row] * along**2).sum())


@st.composite
def rounds_of_parties(draw: st.DrawFn) -> tuple[LinearProblem, list[tuple[Table, float]], Tensor, Quadratic, float]:
    classes, width = draw(st.sampled_from([0, 1, 2, 4])), draw(st.integers(1, 5))
    loss = {0: squared_error, 1: binary_cross_entropy}.get(classes, cross_entropy)
    outputs = max(1, classes)
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    parties: list[tuple[Table, float]] = []
    for _ in range(draw(st.integers(1, 6))):
        count = draw(st.sampled_from([0, 1, 3, 30]))
        x = rng.normal(size=(count, width)) * 10.0 ** draw(st.sampled_from([-6, 0, 0, 6, 30]))
        for column in range(width):
            kind = draw(st.sampled_from(["as it is", "as it is", "constant", "as the first"]))
            x[:, column] = 1.0 if kind == "constant" else x[:, 0] if kind == "as the first" else x[:, column]
        y = rng.normal(size=(count, 1)) if not classes else rng.integers(0, max(2, classes), count)
        table = torch.from_numpy(np.append(x, np.ones((count, 1)), 1)), torch.from_numpy(y).double()
        parties.append((table, float(draw(st.integers(1, 3)))))
        if draw(st.booleans()):
            parties.append(parties[0])
    problem = LinearProblem(loss, outputs, width + 1, 10.0 ** draw(st.integers(-3, 3)))
    at = torch.from_numpy(rng.normal(size=(outputs, width + 1)))
    before = problem.nothing
    if draw(st.booleans()):
        before = problem.step(at, before, 1.0, parties[:1]).after
    return problem, parties, at, before, draw(st.sampled_from([0.0, 0.9, 1.0]))


@settings(max_examples=150, deadline=None)
@given(rounds_of_parties())
def test_parts_add_up_to_the_move_and_none_is_without_a_number(
    given: tuple[LinearProblem, list[tuple[Table, float]], Tensor, Quadratic, float],
) -> None:
    problem, parties, at, before, decay = given
    parts, after, _ = problem.step(at, before, decay, parties)
    assert parts.shape == (len(parties) + 1, *at.shape)
    assert bool(torch.isfinite(parts).all()) and bool(torch.isfinite(after.hessian).all())
    joined = [((torch.cat([rows[0]] * int(times)), torch.cat([rows[1]] * int(times))), 1.0) for rows, times in parties]
    whole, same, _ = problem.step(
        at, before, decay, [((torch.cat([p[0][0] for p in joined]), torch.cat([p[0][1] for p in joined])), 1.0)]
    )
    x = torch.cat([torch.zeros(1, at.shape[1]).double(), *(rows[0] for rows, _ in parties)])
    several, one = (torch.einsum("np,kcp->knc", x, each) for each in (parts, whole))
    scale = float((several.abs().sum(0) + (x @ at.T).abs()).max())
    assert float((several.sum(0) - one.sum(0)).abs().max()) <= 1e-6 * scale + 1e-12
    torch.testing.assert_close(after.hessian, same.hessian, rtol=1e-9, atol=0)
    for place, (table, times) in enumerate(parties):
        if not len(table[1]):
            assert not bool(parts[place].any())
        for other, (again, often) in enumerate(parties[:place]):
            if table is again and float(x.abs().max()) < 1e20:  # the square of more leaves nothing of the ridge
                torch.testing.assert_close(parts[place] / times, parts[other] / often, rtol=1e-9, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(rounds_of_parties())
def test_a_step_never_raises_what_it_minimises(
    given: tuple[LinearProblem, list[tuple[Table, float]], Tensor, Quadratic, float],
) -> None:
    problem, parties, at, before, decay = given

    def objective(now: Tensor) -> float:
        moved = now - at
        bent = (before.hessian @ moved[:, :, None])[:, :, 0]
        old = decay * float((moved * bent / 2 - before.slope(at) * moved).sum())
        ridge = problem.ridge * float(now[:, :-1].square().sum()) / 2
        return old + ridge + sum(many * float(problem.loss(x @ now.T, y).sum()) for (x, y), many in parties)

    parts = problem.step(at, before, decay, parties).parts
    begin, end = objective(at), objective(at + parts.sum(0))
    assert end <= begin + 1e-6 * (abs(begin) + 1)


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("kind", ["alone", "shapley"])
@pytest.mark.parametrize("own", [False, True])
def test_gains_are_those_of_models_scored_one_by_one(classes: int, kind: str, own: bool) -> None:
    tables = {i: rows(i, 20 + 10 * i, classes, 0.3 * i) for i in range(3)}
    train = rows(70, 30, classes) if own else None
    training, lesson = begun(Newton(ridge=1.0), tables, [2, 0, 2, 1], classes, train)
    lesson = replace(followed(training, lesson, 1), gains=kind, round=1)
    learned = training.learn(lesson)
    parties: list[tuple[Table, float]] = [(tables[i], float(times)) for i, times in ((2, 2), (0, 1), (1, 1))]
    parties += [] if train is None else [(train, 1.0)]
    shaped = [((torch.cat([x.double(), torch.ones(len(x), 1)], 1), y.double()), many) for (x, y), many in parties]

    def of(vector: Tensor) -> Tensor:
        outputs = max(1, classes)
        return torch.cat([vector[:-outputs].view(outputs, -1), vector[-outputs:, None]], 1).double()

    at = of(vector_of(lesson.model))
    before = Quadratic(lesson.memory[HESSIAN], lesson.memory[LINEAR])
    parts = training.problem.step(at, before, 0.9, shaped).parts
    x, y = rows(99, 60, classes)
    x = torch.cat([x.double(), torch.ones(len(x), 1)], 1)

    def utility(now: Tensor) -> float:
        return -float(training.problem.loss(x @ now.T, y).mean())

    for place, (i, times) in enumerate(((2, 2), (0, 1), (1, 1))):
        middle = at + parts.sum(0) / 2
        wanted = utility(at + parts[place]) - utility(at)
        if kind == "shapley":
            wanted = (utility(middle + parts[place] / 2) - utility(middle - parts[place] / 2)) / times
        assert learned.gains[i] == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    torch.testing.assert_close(of(vector_of(learned.model)), at + parts.sum(0), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("classes", [0, 3])
def test_who_is_drawn_twice_counts_twice(classes: int) -> None:
    tables = {0: rows(1, 40, classes), 1: rows(2, 40, classes)}
    twice, lesson = begun(Newton(ridge=1.0), tables, [0, 1, 0], classes)
    copies, apart = begun(Newton(ridge=1.0), {**tables, 2: tables[0]}, [0, 1, 2], classes)
    one, other = twice.learn(lesson), copies.learn(apart)
    torch.testing.assert_close(vector_of(one.model), vector_of(other.model), atol=1e-6, rtol=1e-6)
    assert one.gains[1] == pytest.approx(other.gains[1], rel=1e-6)
    if not classes:  # a sum of squares: each of the two has half of the gain
        assert one.gains[0] == pytest.approx(other.gains[0], rel=1e-6)


@pytest.mark.parametrize("classes", [0, 3])
def test_one_thread_and_two_give_the_same_bits(classes: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 60)).astype(np.float32)
    y = rng.integers(0, 3, 3000) if classes else rng.normal(size=3000).astype(np.float32)
    found, before = [], torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            kind = "logistic" if classes else "linear"
            consumer = Consumer(kind, holdout=(x[:900], y[:900]), train=(x[900:1800], y[900:1800]), budget=3)
            providers = [Provider(f"p{i}", (x[1800 + i :: 3], y[1800 + i :: 3])) for i in range(3)]
            arbiter = Arbiter(replace(consumer, per_round=1), providers, Uniform(), learner=Newton(ridge=1.0))
            run = arbiter.begin(Accounts(arbiter.rules))
            learner = run.training
            answers = Replies(torch.empty(1, 0), {}, rows={1: (torch.from_numpy(x), torch.from_numpy(y))})
            drawn = Drawn(np.array([1]), np.ones(1), RoundBudget(1, np.ones(3, dtype=np.int64)))
            state = run.state
            learned = learner.learn(
                Lesson(state.model, state.memory, state.utility, state.loss, drawn, answers, round=0, gains="alone")
            )
            found.append((state.model_hash, state.utility, learned.model.stored.hash, learned.gains[1]))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
    assert found[0] == found[1]


@pytest.mark.parametrize("hole", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("classes", [0, 2])
def test_rows_without_numbers_are_void_and_the_others_go_on(hole: float, classes: int) -> None:
    tables = {i: rows(i, 30, classes) for i in range(3)}
    x = tables[1][0].clone()
    x[7, 1] = hole
    training, lesson = begun(Newton(ridge=1.0), {**tables, 1: (x, tables[1][1])}, [0, 1, 2], classes)
    learned = training.learn(lesson)
    assert set(learned.failures) == {1} and learned.gains[1] is None and learned.failures[1] == NO_UTILITY
    without = training.learn(
        replace(
            lesson,
            drawn=replace(lesson.drawn, draws=np.array([0, 2])),
            replies=replace(lesson.replies, rows={0: tables[0], 2: tables[2]}),
        )
    )
    assert torch.equal(vector_of(learned.model), vector_of(without.model)) and learned.gains[0] == without.gains[0]
    alone = replace(lesson.drawn, draws=np.array([1]))
    stays = training.learn(replace(lesson, drawn=alone, replies=replace(lesson.replies, rows={1: (x, tables[1][1])})))
    assert stays.model is lesson.model and stays.memory is lesson.memory and stays.gains == {1: None}


def test_numbers_that_leave_float32_are_void() -> None:
    x, y = rows(1, 30)
    flat, tiny = x.clone(), torch.zeros_like(x)
    flat[:, 1], tiny[:, 1] = 0.0, 1e-20 * x[:, 1]
    training, lesson = begun(Newton(ridge=1e-42), {0: (tiny, 1e30 * x[:, 1]), 1: (flat, y)}, [0, 1])
    learned = training.learn(lesson)
    assert set(learned.failures) == {0} and learned.failures[0] == DIVERGES
    assert bool(torch.isfinite(vector_of(learned.model)).all()) and learned.gains[1] is not None


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_of_a_single_class_give_finite_models(classes: int) -> None:
    x, _ = rows(0, 30, classes)
    training, lesson = begun(Newton(), {0: (x, torch.ones(30, dtype=torch.int64))}, [0, 0], classes)
    lesson = followed(training, lesson, 30)
    assert bool(torch.isfinite(vector_of(lesson.model)).all())
    assert training.outputs(lesson.model, x).argmax(1).tolist() == [1] * 30


def test_who_is_left_out_does_not_move_the_model() -> None:
    tables = {0: rows(0), 1: rows(1)}
    training, lesson = begun(Newton(ridge=1.0), tables, [0, 1])
    learned = training.learn(replace(lesson, left_out=frozenset({1})))
    alone = training.learn(
        replace(
            lesson,
            drawn=replace(lesson.drawn, draws=np.array([0])),
            replies=replace(lesson.replies, rows={0: tables[0]}),
        )
    )
    assert torch.equal(vector_of(learned.model), vector_of(alone.model))
    assert learned.gains == {0: alone.gains[0], 1: 0.0} and not learned.failures


def test_it_starts_from_its_own_fit_and_finds_the_ridge_that_noise_asks_for() -> None:
    rng = np.random.default_rng(0)
    for noise, least, most in ((0.0, 0.0, 0.01), (5.0, 10.0, 1e5)):
        x = rng.normal(size=(60, 20)).astype(np.float32)
        y = (x @ np.ones(20) * (noise == 0) + noise * rng.normal(size=60)).astype(np.float32)
        consumer = Consumer("linear", holdout=(x[:30], y[:30]), train=(x[30:], y[30:]), budget=10)
        assert least <= problem_of(Newton(), consumer).ridge <= most
        assert problem_of(Newton(ridge=7.0), consumer).ridge == 7.0
    begin = Newton(ridge=2.0).begin(consumer)
    wanted = Ridge(alpha=2.0).fit(x[30:], y[30:])
    np.testing.assert_allclose(vector_of(begin).numpy(), np.append(wanted.coef_, wanted.intercept_), rtol=1e-4)
    assert problem_of(Newton(), Consumer("linear", holdout=(x[:1], y[:1]), budget=1)).ridge > 0


@pytest.mark.parametrize(
    ("model", "more", "sentence"),
    [
        ("mlp", {}, 'solves model "linear" with squared-error and "logistic"'),
        ("logistic", {"loss": nn.CrossEntropyLoss()}, 'solves model "linear" with squared-error and "logistic"'),
        (nn.Linear(3, 2), {}, "another learner"),
        ("logistic", {"utility": lambda model: 1.0}, "one of the named utilities"),
    ],
)
def test_what_it_cannot_do_is_refused_with_a_remedy(model: object, more: dict[str, object], sentence: str) -> None:
    consumer = Consumer(model, **{"holdout": rows(9, 30, 2), "budget": 20, "per_round": 1, **more})  # type: ignore[arg-type]
    with pytest.raises(BazaarError, match=sentence):
        Arbiter(consumer, [Provider("p", rows(1, 30, 2))], learner=Newton()).run()


def test_a_consumer_without_a_holdout_and_a_wide_table_have_their_ways() -> None:
    bare = Consumer(
        build_model("linear", (3,), 1), loss="squared-error", utility=lambda model: 1.0, budget=20, per_round=1
    )
    with pytest.raises(BazaarError, match="one of the named utilities"):
        Arbiter(bare, [Provider("p", rows(1))], learner=Newton()).run()
    x = np.random.default_rng(0).normal(size=(40, 1100)).astype(np.float32)
    assert problem_of(Newton(), Consumer("linear", holdout=(x, x[:, 0]), budget=20)).ridge in RIDGES


def test_frozen_parameters_too_many_features_and_named_inputs_are_refused() -> None:
    model = build_model("logistic", (3,), 2)
    next(model.parameters()).requires_grad_(False)
    market = {"holdout": rows(9, 30, 2), "budget": 20}
    with pytest.raises(BazaarError, match="another learner"):
        Newton().begin(Consumer(model, **market))  # type: ignore[arg-type]
    wide = Consumer("linear", holdout=(np.ones((4, 3000), np.float32), np.ones(4, np.float32)), budget=20)
    with pytest.raises(BazaarError, match=r'3,000 features.*use learner "in-run"'):
        Newton().begin(wide)
    training, lesson = begun(Newton(ridge=1.0), {0: rows(0)}, [0])
    with pytest.raises(BazaarError, match="takes no named inputs: give x as one array"):
        training.outputs(lesson.model, NamedInputs({"x": torch.ones(2, 3)}))


def test_a_learner_trains_the_models_that_it_names() -> None:
    text = template().replace('# kind = "mlp"', "")
    base = parse_market_of(text)
    assert base["learner.kind"] == []
    assert parse_market_of(text, model="logistic", learner="newton")["learner.kind"] == []
    for model, learner, use in (
        ("mlp", "newton", "in-run"),
        ("cnn", "newton", "in-run"),
        ("trees", "newton", "boosting"),
        ("trees", "averaging", "boosting"),
        ("logistic", "boosting", "averaging"),
    ):
        (fault,) = parse_market_of(text, model=model, learner=learner)["learner.kind"]
        assert f'learner.kind = "{learner}" does not train model.kind = "{model}": use "{use}"' in fault
    engine = parse_market_of(text, model="logistic", learner="newton", engine="ray")
    assert 'or learner.kind = "averaging"' not in engine and any("averaging" in one for one in engine["learner.kind"])


def parse_market_of(text: str, **kinds: str) -> dict[str, list[str]]:
    """The faults of a market with these kinds, by the setting that they are about."""
    import tomllib

    from databazaar.config.market_file import parse_all

    settings = tomllib.loads(text)
    settings["defence"] = {"kind": "none"}
    for section, kind in kinds.items():
        settings[section] = {"kind": kind}
    parse_market(tomllib.loads(template()))
    faults: dict[str, list[str]] = {"learner.kind": []}
    for fault in parse_all(settings)[1]:
        faults.setdefault(fault.place, []).append(str(fault))
    return faults


@pytest.mark.parametrize("classes", [2, 3])
def test_the_dirty_earn_little_and_the_model_beats_own_rows(classes: int) -> None:
    """A third of the providers has 40 % of wrong labels."""
    providers = [Provider(f"p{i}", rows(i, 60, classes, 0.4 if i % 3 == 2 else 0.0)) for i in range(12)]
    consumer = Consumer(
        "logistic", holdout=rows(200, 150, classes), train=rows(201, 15, classes), budget=160, per_round=4
    )
    arbiter = Arbiter(consumer, providers, learner=Newton())
    report = arbiter.run()
    pay = np.array([one.pay for one in report.payouts], dtype=float)
    assert pay[2::3].sum() / pay.sum() < 0.2
    x, y = rows(300, 4000, classes)
    training = arbiter.training()
    loss = [
        float(cross_entropy(torch.from_numpy(training.outputs(model, x)), y).mean())
        for model in (arbiter.reached, Newton().begin(consumer))
    ]
    assert loss[0] < loss[1]
    assert isinstance(arbiter.reached, Parameters) and arbiter.model(x).shape == (4000, classes)


def test_a_run_that_is_interrupted_ends_with_the_same_model(tmp_path: Path) -> None:
    def market() -> Arbiter:
        consumer = Consumer("logistic", holdout=rows(200, 60, 3), train=rows(201, 20, 3), budget=32, per_round=4)
        return Arbiter(consumer, [Provider(f"p{i}", rows(i, 40, 3)) for i in range(5)], learner=Newton(rows=30))

    def interrupt(progress: Progress) -> None:
        if progress.round == 3:
            raise KeyboardInterrupt

    whole = market().run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        market().run(tmp_path / "parts", tell=interrupt)
    parts = market().run(tmp_path / "parts")
    assert (parts.model_hash, len(parts.rounds)) == (whole.model_hash, len(whole.rounds))
    assert [one.pay for one in parts.payouts] == [one.pay for one in whole.payouts]


def test_it_needs_fewer_rounds_than_averaging() -> None:
    providers = [Provider(f"p{i}", rows(i, 60, 3)) for i in range(6)]
    reached = []
    for learner in (Newton(), Averaging()):
        consumer = Consumer("logistic", holdout=rows(200, 150, 3), budget=16, per_round=4)
        reached.append(Arbiter(consumer, providers, learner=learner).run().rounds[-1].reached_loss)
    assert reached[0] < reached[1]  # type: ignore[operator]
