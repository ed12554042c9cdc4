"""The rules that money depends on, each by itself, with samplers, payments and stops that say what the test wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from databazaar import BazaarError, Uniform
from databazaar.codes import Code
from databazaar.defence import Defence, Findings, OwnerGroups
from databazaar.defence.detector import DetectorState
from databazaar.ledger import Book, Drawn, Entry, RuleBook, Terms
from databazaar.ledger.rulebook import BY_CONSUMER, Stopped, end_of, status_of
from databazaar.money import Currency
from databazaar.payments import PricePerAccess
from databazaar.randomness import draws_stream
from databazaar.roster import Amounts, PriceChange, ProviderTerms, Roster, RoundBudget
from databazaar.samplers import Wants
from databazaar.stops import History
from databazaar.stops.budget import SPENT
from defended_markets import EVERY_RULE, rules_with

OFFERS = (
    ProviderTerms("a", "x", 2),
    ProviderTerms("b", "x", 3, most_accesses=4),
    ProviderTerms("c", "y", 5, price_changes=(PriceChange(1, 4), PriceChange(3, 6))),
)
PLAIN = Wants()


@dataclass(frozen=True)
class Scripted:
    """Draws what it is told, and keeps what it was asked in `heard`."""

    answer: Any = (0, 1)
    wants: Any = PLAIN
    heard: list[Any] = field(default_factory=list)
    kind: ClassVar[str] = "scripted"

    def init(self, roster: Roster, budget: int, per_round: int) -> np.ndarray:
        return np.array([len(roster), budget, per_round], dtype=float)

    def probabilities(self, state: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        return np.asarray(state / state.sum())

    def draw(self, state: np.ndarray, rng: np.random.Generator, size: int, round_budget: RoundBudget) -> Any:
        self.heard.append((state.tolist(), rng.integers(10**9), size, round_budget))
        return self.answer

    def update(self, state: np.ndarray, draws: np.ndarray, gains: np.ndarray, round_budget: RoundBudget) -> np.ndarray:
        self.heard.append((draws.tolist(), gains.tolist(), round_budget))
        return state + 1


@dataclass(frozen=True)
class Pays:
    """Quotes the prices, or `quoted`; pays `paid`."""

    paid: Any = ()
    quoted: Any = None
    kind: ClassVar[str] = "pays"

    def quote(self, roster: Roster) -> Amounts:
        return roster.prices if self.quoted is None else np.asarray(self.quoted)

    def settle(self, quotes: Sequence[int], gains: Sequence[float | None]) -> Sequence[int]:
        return list(self.paid)


@dataclass(frozen=True)
class Ends:
    """Ends a run for its reason, where it has one, and keeps what it looked at."""

    kind: str
    code: Code | None
    seen: list[History] = field(default_factory=list)

    def reason(self, history: History) -> Code | None:
        self.seen.append(history)
        return self.code


def rulebook(
    sampler: Any = None,
    payment: Any = None,
    stops: tuple[Any, ...] = (),
    offers: Sequence[ProviderTerms] = OFFERS,
    **more: Any,
) -> RuleBook:
    terms = Terms(
        seed=7,
        budget=50,
        per_round=2,
        currency=Currency("EUR", 2),
        roster=Roster(offers),
        rules={"sampler": {}, "aggregator": {}, "payment": {}, "stops": []},
        bounded_utility=True,
        initial_model="00",
        **more,
    )
    return RuleBook(terms, sampler or Scripted(), payment or Pays(), stops)


def reserve(round: int, draw: int, provider: str, amount: int, kind: Any = "reserve") -> Entry:
    return Entry(1, kind, round, draw, provider, amount, {})


def ended(round: int, gains: list[float | None], reached: float = 0.6) -> Entry:
    return Entry(1, "round", round, None, None, None, {"gains": gains, "utility": 0.5, "reached": reached})


def drawn(draws: list[int], left: int = 50) -> Drawn:
    return Drawn(np.array(draws), np.full(len(draws), 0.5), RoundBudget(left, np.array([2, 3, 5])))


def test_rules_are_built_as_the_terms_name_them() -> None:
    rules = {
        "sampler": {"kind": "uniform", "replacement": False},
        "aggregator": {"kind": "mean"},
        "payment": {"kind": "price-per-access"},
        "stops": [{"kind": "patience", "rounds": 3}, {"kind": "budget"}],
    }
    terms = replace(rulebook().terms, rules=rules)
    built = RuleBook.of(terms)
    assert built.terms is terms and built.sampler == Uniform(replacement=False)
    assert built.payment == PricePerAccess() and [stop.kind for stop in built.stops] == ["patience", "budget"]
    assert built.defence.off
    defended = RuleBook.of(replace(terms, rules={**rules, "defence": Defence(owners=True).settings()}))
    assert isinstance(defended.sampler, OwnerGroups) and defended.defence == Defence(owners=True)
    again = RuleBook(defended.terms, defended.sampler, built.payment, built.stops)
    assert again.sampler is defended.sampler
    with pytest.raises(BazaarError, match="does not say what it wants"):
        rulebook(Scripted(wants=None))


def test_a_draw_is_quoted_each_time_and_asked_once() -> None:
    assert drawn([2, 0, 2, 1]).quotes == [5, 2, 5, 3]
    assert drawn([2, 0, 2, 1]).asked == [2, 0, 1]


def test_quotes_are_those_of_the_round() -> None:
    rules = rulebook()
    assert [rules.quotes_at(round).tolist() for round in range(5)] == [
        [2, 3, 5],
        [2, 3, 4],
        [2, 3, 4],
        [2, 3, 6],
        [2, 3, 6],
    ]
    assert rules.quotes_at(1) is rules.quotes_at(2) and rules.quotes_at(3) is rules.quotes_at(9)


@pytest.mark.parametrize(
    "quoted", [[2, 3], [[2, 3, 5]], [2.0, 3.0, 5.0], [2, 0, 5], [2, -3, 5], np.array([2, 3, 5], np.int32)]
)
def test_a_quote_that_is_no_amount_for_everybody_is_refused(quoted: Any) -> None:
    with pytest.raises(BazaarError) as refused:
        rulebook(payment=Pays(quoted=quoted)).quotes_at(0)
    assert str(refused.value) == "payment 'pays' must quote a whole amount of 1 or more for every provider"


def test_one_coin_is_an_amount() -> None:
    assert rulebook(payment=Pays(quoted=np.array([1, 1, 1]))).quotes_at(0).tolist() == [1, 1, 1]


def test_a_new_book_knows_prices_caps_and_limits() -> None:
    quotes, changes = {"a": 2, "b": 3, "c": 5}, {"c": [(1, 4), (3, 6)]}
    rules = rulebook(most_per_access=8, most_per_round=9)
    assert rules.new_book() == Book(50, quotes, changes, {"b": 4}, 8, 9)
    there_and_back = (PriceChange(2, 7), PriceChange(4, 7), PriceChange(5, 2))
    both = [
        ProviderTerms("a", "x", 2, price_changes=there_and_back),
        ProviderTerms("b", "x", 3, 0, (PriceChange(2, 3),)),
    ]
    assert rulebook(offers=both).new_book() == Book(50, {"a": 2, "b": 3}, {"a": [(2, 7), (5, 2)]}, {"b": 0})


def test_the_sampler_begins_with_the_roster_the_budget_and_the_draws_of_a_round() -> None:
    assert rulebook().start().tolist() == [3, 50, 2]


def test_the_purse_is_the_same_before_and_after_its_round_is_reserved() -> None:
    rules = rulebook(most_per_access=8, most_per_round=9)
    book = rules.new_book()
    for entry in (reserve(0, 0, "b", 3), reserve(0, 0, "b", 3, "post"), ended(0, [0.1])):
        book.apply(entry)
    for _ in range(2):
        round_budget = rules.round_budget(book)
        assert (
            round_budget.left,
            round_budget.quotes.tolist(),
            round_budget.most_per_access,
            round_budget.most_per_round,
        ) == (47, [2, 3, 4], 8, 9)
        assert round_budget.accesses_left is not None
        assert round_budget.accesses_left.tolist() == [2**63 - 1, 3, 2**63 - 1]
        if not book.reserved:
            book.apply(reserve(1, 0, "b", 3))
            book.apply(reserve(1, 1, "a", 2))
    assert rulebook(offers=OFFERS[:1]).round_budget(book).accesses_left is None
    caps = rules.terms.roster.most_accesses
    assert caps is not None and caps.tolist()[1] == 4


def test_the_first_stop_with_a_reason_ends_the_run() -> None:
    first, second, third = Ends("first", None), Ends("second", Code("budget-spent")), Ends("third", Code("run-closed"))
    rules = rulebook(Scripted(wants=Wants(short_rounds=True)), stops=(first, second, third))
    book = rules.new_book()
    for round in range(2):
        book.apply(ended(round, [None]))
    assert rules.stopped(book) == Stopped("second", Code("budget-spent"))
    (seen,) = first.seen
    assert (seen.rounds, list(seen.utilities), seen.silent, seen.per_round, seen.shortens) == (
        2,
        [0.5, 0.6, 0.6],
        2,
        2,
        True,
    )
    assert seen.round_budget.left == 50
    round_budget = RoundBudget(1, np.array([1, 1, 1]))
    assert rulebook(stops=(first,)).stopped(book, round_budget) is None
    assert first.seen[-1].round_budget is round_budget and first.seen[-1].shortens is False


def test_a_round_is_drawn_by_its_own_stream_from_its_purse() -> None:
    sampler = Scripted(answer=[2, 0])
    rules = rulebook(sampler)
    book, state = rules.new_book(), np.array([1.0, 2.0, 5.0])
    for round in range(2):
        made = rules.draw(state, book)
        assert made.draws.tolist() == [2, 0] and made.probabilities.tolist() == [0.625, 0.125]
        assert made.quotes == [5 if round == 0 else 4, 2] and made.round_budget.left == 50
        number = draws_stream(7, round).integers(10**9)
        assert sampler.heard[-1][:3] == ([1.0, 2.0, 5.0], number, 2) and sampler.heard[-1][3] is made.round_budget
        book.apply(ended(round, [0.1]))
    round_budget = RoundBudget(3, np.array([2, 3, 5]))
    with_purse = rules.draw(state, book, round_budget)
    assert with_purse.draws.tolist() == [0] and with_purse.round_budget is round_budget  # 2 is too dear


@pytest.mark.parametrize("answer", [[], [0, 1, 2], [0, 3], [-1, 0], [[0], [1]], 1])
def test_a_draw_of_too_many_too_few_or_nobody_known_is_refused(answer: Any) -> None:
    rules = rulebook(Scripted(answer=answer))
    with pytest.raises(BazaarError) as refused:
        rules.draw(np.ones(3), rules.new_book())
    assert str(refused.value) == (
        f"sampler 'scripted' drew {answer}: it must draw between 1 and 2 of 3 providers; "
        "try databazaar.testing.check_sampler on it"
    )


@pytest.mark.parametrize("answer", [[0], [2], [2, 2]])
def test_one_draw_is_enough_and_the_last_provider_is_one(answer: list[int]) -> None:
    rules = rulebook(Scripted(answer=answer))
    assert rules.draw(np.ones(3), rules.new_book()).draws.tolist() == answer


def test_a_draw_of_nobody_who_can_be_asked_is_refused() -> None:
    rules = rulebook(Scripted(answer=[2, 2]))
    with pytest.raises(BazaarError, match="drew nobody who can be asked"):
        rules.draw(np.ones(3), rules.new_book(), RoundBudget(4, np.array([2, 3, 5])))


@pytest.mark.parametrize("paid", [[2, 0, 5], [0, 0, 0], np.array([1, 0, 4])])
def test_pay_is_between_nothing_and_what_was_quoted(paid: Any) -> None:
    amounts = rulebook(payment=Pays(paid)).pay(drawn([0, 1, 2]), [0.5, None, -0.5])
    assert amounts == [int(amount) for amount in paid] and {type(amount) for amount in amounts} == {int}


@pytest.mark.parametrize("paid", [[3, 0, 5], [-1, 0, 5], [2, 1, 5], [2, 0], [2, 0, 5, 0], [2.0, 0, 5], [2, 0, 6]])
def test_other_pay_is_refused(paid: list[Any]) -> None:
    with pytest.raises(BazaarError) as refused:
        rulebook(payment=Pays(paid)).pay(drawn([0, 1, 2]), [0.5, None, -0.5])
    assert str(refused.value).startswith(f"payment 'pays' settled {paid} for quotes of [2, 3, 5]: it must pay between")


@pytest.mark.parametrize(
    ("wants", "gains", "heard"),
    [
        (Wants(), [0.5, None, -2.0], [0.5, 0.0, -2.0]),
        (Wants(failures=True), [0.5, None, -2.0], [0.5, -np.inf, -2.0]),
        (Wants(gains="shapley"), [0.5, None, -2.0], [0.5, -2.0, -2.0]),
        (Wants(gains="shapley"), [0.5, None, 2.0], [0.5, 0.0, 2.0]),
        (Wants(gains="shapley"), [None, None, None], [0.0, 0.0, 0.0]),
        (Wants(gains="shapley", failures=True), [-3.0, None, 1.0], [-3.0, -np.inf, 1.0]),
    ],
)
def test_a_void_reply_is_never_better_than_the_worst(
    wants: Wants, gains: list[float | None], heard: list[float]
) -> None:
    sampler = Scripted(wants=wants)
    made = drawn([0, 1, 2])
    assert rulebook(sampler).learn(np.zeros(3), made, gains).tolist() == [1, 1, 1]
    assert sampler.heard[-1][:2] == ([0, 1, 2], heard) and sampler.heard[-1][2] is made.round_budget


def test_without_a_defence_all_that_is_due_is_paid() -> None:
    rules = rulebook(payment=Pays([2, 0, 5]))
    settled = rules.settle(np.zeros(3), drawn([0, 1, 2]), [0.5, None, 0.5], [0.5] * 3, Findings())
    assert settled.paid == [2, 0, 5] and settled.held == [0, 0, 0]
    assert (settled.released, settled.returned, settled.verdicts) == ([], [], ())
    assert settled.state.tolist() == [1, 1, 1]
    assert rules.flagged(settled.state) == [] and rules.returned_at_close(settled.state) == []
    assert (
        rules.detector(settled.state).vector().tolist()
        == DetectorState.new(rules.terms.roster, False).vector().tolist()
    )
    assert len(rules.detector(settled.state).standing) == 3


def defended(**more: Any) -> tuple[RuleBook, Any]:
    """Four providers of four owners at 50 cents, all drawn in every round."""
    offers = [ProviderTerms(f"p{i}", f"p{i}", 50) for i in range(4)]
    rules = rules_with(
        replace(EVERY_RULE, cap=None, **more), offers, budget=9000, per_round=4, sampler=Uniform(replacement=False)
    )
    return rules, rules.start()


def round_of(rules: RuleBook, state: Any, findings: Findings | None, gains: list[float | None] | None = None) -> Any:
    made = Drawn(np.arange(4), np.full(4, 0.25), RoundBudget(9000, np.full(4, 50)))
    return rules.settle(state, made, gains or [0.1] * 4, [0.25] * 4, findings)


def test_with_a_defence_pay_beyond_the_floor_is_held_back_until_the_verdict() -> None:
    rules, state = defended()
    settled = round_of(rules, state, None)
    assert [now + held for now, held in zip(settled.paid, settled.held, strict=True)] == [50] * 4
    assert (settled.released, settled.returned, settled.verdicts) == ([], [], ())
    assert rules.flagged(settled.state) == [] and rules.detector(settled.state).answers.tolist() == [1] * 4
    for _ in range(7):  # the eighth look: p0 has shown data, p1 has none, of the others nothing is known
        before = settled
        found = Findings(signal=[1.0, 0.0, None, None], error=[0.2, 0.01, None, None])
        settled = round_of(rules, settled.state, found)
    assert (settled.released, settled.returned) == ([0], [1])
    assert [verdict.provider for verdict in settled.verdicts] == [0, 1]
    assert settled.paid[0] == 50 and settled.held[:2] == [0, 0] and settled.held[2] > 0
    assert rules.flagged(settled.state) == [1] and rules.flagged(before.state) == []
    assert before.held[0] > 0 and before.held[1] > 0


def test_a_provider_that_failed_has_given_no_answer() -> None:
    rules, state = defended()
    settled = round_of(rules, state, Findings(), [0.1, None, 0.1, None])
    assert rules.detector(settled.state).answers.tolist() == [1, 0, 1, 0]
    assert settled.paid[1] == settled.held[1] == settled.paid[3] == 0


def test_what_a_double_was_held_back_goes_back_and_nothing_more_is_held_of_it() -> None:
    rules, state = defended()
    settled = round_of(rules, state, Findings(alike=[(1, 3, 0.99)]))
    (verdict,) = settled.verdicts
    assert {verdict.provider, verdict.other} == {1, 3}
    double = verdict.provider
    assert settled.returned == [double] and settled.released == []
    assert settled.held[double] == 0 and all(settled.held[i] > 0 for i in range(4) if i != double)
    assert len(rules.detector(settled.state).arms) == 3


def test_who_is_in_doubt_in_the_end_is_not_paid() -> None:
    rules, state = defended(doubt=False)
    settled = round_of(rules, state, None)
    doubted = rules.returned_at_close(settled.state)
    assert doubted == [0, 1, 2, 3] and {type(place) for place in doubted} == {int}
    rules, state = defended()
    for _ in range(8):
        found = Findings(signal=[0.1, None, None, None], error=[0.2, None, None, None])
        settled = round_of(rules, state, found)
        state = settled.state
    assert rules.returned_at_close(state) == [0]


def test_a_stop_comes_back_from_an_entry() -> None:
    stop = Stopped("patience", Code.of("no-valid-reply", rounds=3))
    assert Stopped.read(stop.body()) == stop
    assert stop.body() == {"kind": "patience", "reason": stop.reason.body()}
    assert Stopped.read({"kind": 5, "reason": stop.reason.body()}).kind == "5"
    assert BY_CONSUMER.body() == {"kind": "consumer", "reason": {"code": "closed-by-consumer"}}


@pytest.mark.parametrize(
    ("stop", "rounds", "silent", "status"),
    [
        (Stopped("budget", SPENT), 3, 2, "settled"),
        (Stopped("budget", SPENT), 3, 3, "nobody-answered"),
        (Stopped("budget", SPENT), 1, 1, "nobody-answered"),
        (Stopped("budget", SPENT), 0, 0, "settled"),
        (Stopped("patience", Code.of("no-valid-reply", rounds=1)), 3, 1, "nobody-answered"),
        (BY_CONSUMER, 3, 3, "settled"),
    ],
)
def test_how_a_run_ended(stop: Stopped, rounds: int, silent: int, status: str) -> None:
    book = Book(1000, {}, spent=250, rounds=rounds, silent=silent)
    assert status_of(stop, book) == status
    end, euro = end_of(stop, book, Currency("EUR", 2)), "7.50 EUR"
    if status == "nobody-answered":
        assert end == Code.of("run-nobody-answered", silent=silent, rounds=rounds, left=euro)
    else:
        because = "" if stop.reason == SPENT else str(stop.reason)
        assert end == Code.of("run-settled", rounds=rounds, spent="2.50 EUR", left=euro, because=because)
        assert (because == "") == (stop.kind == "budget")
