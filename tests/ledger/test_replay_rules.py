"""What a replay makes of a small ledger: what it keeps, what must come next, and each refusal by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from databazaar import LedgerError, Uniform
from databazaar.codes import Code
from databazaar.defence import Findings
from databazaar.ledger import Drawn, Entry, Ledger, Notary, RuleBook, Settlement, Snapshot, Terms, audit_entries
from databazaar.ledger.book import NOT_SETTLED
from databazaar.ledger.rounds import Scores
from databazaar.money import Currency
from databazaar.payments import PAYMENTS, PricePerAccess
from databazaar.roster import Roster
from databazaar.samplers import SAMPLERS
from databazaar.stops import STOPS, Budget
from databazaar.vectors import HashedArray, hash_array, hash_packed, pack
from defended_markets import play, scripted_rules
from forging import reseal
from records import record_of

PRICES = {"a": 2, "b": 3, "c": 4}
REPLY = "cd" * 32
BUDGET = 25
UTILITIES, LOSSES, MODELS = (0.5, 0.4, 0.4, 0.7, 0.7), (0.9, 0.8, 0.8, 0.6, 0.5), (0, 1, 1, 2, 3)
"""Of the model in the beginning and after each round: nobody answers in the second; of two best the first counts."""


def model(number: int) -> np.ndarray:
    return np.array([number, 0.5])


def name_of(number: int) -> str:
    return hash_packed(pack({"w": model(number)}))


def standing(rounds: int, state: Any) -> Any:
    """What `rounds` rounds leave behind."""

    class Standing:
        model_hash = name_of(MODELS[rounds])
        utility, loss = UTILITIES[rounds], LOSSES[rounds]

        def snapshot(self) -> Snapshot:
            best = model(0) if rounds < 3 else np.zeros(0) if rounds == 3 else model(2)
            return Snapshot.of(rounds, {"sampler": state, "best": best}, HashedArray(model(MODELS[rounds])))

    return Standing()


def rules() -> RuleBook:
    sampler, payment = Uniform(), PricePerAccess()
    terms = Terms(
        seed=23,
        budget=BUDGET,
        per_round=2,
        currency=Currency(),
        roster=Roster.of((name, name, price) for name, price in PRICES.items()),
        rules={
            "sampler": SAMPLERS.settings_of(sampler),
            "aggregator": {"kind": "mean"},
            "payment": PAYMENTS.settings_of(payment),
            "stops": [STOPS.settings_of(Budget())],
        },
        bounded_utility=True,
        initial_model=name_of(0),
    )
    return RuleBook.of(terms)


@cache
def played() -> tuple[Entry, ...]:
    """A run of four rounds, in which the first provider never answers, and nobody in the second round."""
    book = rules()
    ledger, state = Ledger(book), book.start()
    for round in range(4):
        drawn = book.draw(state, ledger.book)
        ledger.reserve(round, drawn)
        gains = [None if i == 0 else 0.1 * i for i in drawn.draws.tolist()]
        failures = [Code("no-answer") if gain is None else None for gain in gains]
        replies = [None if gain is None else REPLY for gain in gains]
        chances = drawn.probabilities.tolist()
        settled = book.settle(state, drawn, gains, chances)
        scores = UTILITIES[round], LOSSES[round], UTILITIES[round + 1], LOSSES[round + 1]
        result = Settlement(gains, failures, chances, settled.paid, *scores, replies)
        state = settled.state
        ledger.settle(round, drawn, result, standing(round + 1, state))
    stopped = book.stopped(ledger.book)
    assert stopped is not None
    ledger.close(stopped, standing(4, state))
    return tuple(ledger.store.entries())


def places(kind: str) -> list[int]:
    return [at for at, entry in enumerate(played()) if entry.kind == kind]


def until(round: int) -> tuple[Entry, ...]:
    """The entries up to the end of this round."""
    return played()[: places("round")[round] + 1]


def test_the_run_that_is_replayed() -> None:
    entries = played()
    assert [entry.round for entry in entries if entry.kind == "round"] == [0, 1, 2, 3]
    drawn = [[one.provider for one in entries if one.kind == "reserve" and one.round == round] for round in range(4)]
    assert drawn == [["c", "a"], ["a", "a"], ["a", "c"], ["c", "c"]]
    assert [entry.kind for entry in entries[:6]] == ["open", "reserve", "reserve", "post", "void", "round"]
    assert audit_entries(entries).ok and entries[-1].kind == "close"


def test_the_opening_alone() -> None:
    entries = played()
    audit = audit_entries(entries[:1])
    assert audit.ok and not audit.closed and (audit.entries, audit.rounds, audit.replies) == (1, 0, 0)
    assert audit.model == audit.delivered == entries[0].body["initial_model"] and audit.best is None
    assert audit.head == audit.opening == entries[0].hash
    assert audit.book == rules().new_book() and audit.terms == rules().terms
    assert audit.state is not None and audit.state.tolist() == rules().start().tolist()
    assert audit.record is not None and len(audit.record.rounds) == 0
    assert [round_budget.left for round_budget in audit.record.purses] == [BUDGET]
    assert record_of(audit).distributions.tolist() == pytest.approx(np.full((1, 3), 1 / 3))


def test_what_is_known_after_every_round() -> None:
    entries, posts = played(), 0
    for round in range(4):
        audit = audit_entries(until(round))
        ended = entries[places("round")[round]]
        posts += sum(entry.kind == "post" for entry in entries if entry.round == round)
        assert audit.ok and (audit.rounds, audit.replies, audit.model) == (round + 1, posts, ended.body["model"])
        body = ended.body
        assert audit.scores == Scores(body["utility"], body["loss"], body["reached"], body["reached_loss"])
        best = audit.best
        assert best is not None
        first, later = (0, 0.5, 0.9, name_of(0)), (3, 0.7, 0.6, name_of(2))
        assert (best.round, best.utility, best.loss, best.model) == (first if round < 2 else later)
        assert audit.delivered == best.model
    whole = audit_entries(entries)
    assert whole.closed and whole.closing == entries[-1].body and whole.record is not None
    assert [round_budget.left for round_budget in whole.record.purses] == [25, 19, 15, 9, 1]
    rounds = whole.record.rounds
    for round in range(4):
        own = [entry for entry in entries if entry.round == round and entry.kind in ("post", "void")]
        accesses = rounds[round].accesses
        assert [list(PRICES)[one.provider] for one in accesses] == [entry.provider for entry in own]
        assert [one.paid for one in accesses] == [entry.amount if entry.kind == "post" else 0 for entry in own]
        assert [one.quoted for one in accesses] == [PRICES[entry.provider or ""] for entry in own]
        assert [one.failure for one in accesses] == [entry.reason for entry in own]
        assert [one.gain for one in accesses] == entries[places("round")[round]].body["gains"]
        assert [one.held for one in accesses] == [0] * len(own)
        assert [one.probability for one in accesses] == [1 / 3] * len(own)
    assert [len(curve) for curve in whole.record.figures.curves(3)] == [0, 0, 0]
    assert whole.record.distributions.tolist() == pytest.approx(np.full((5, 3), 1 / 3))
    assert whole.record.entries == {} and whole.record.freed == []
    plain = audit_entries(entries, record=False)
    assert plain.record is None and plain.best == whole.best and plain.book == whole.book


def test_what_is_due_next() -> None:
    notary = Notary()
    with pytest.raises(LedgerError, match="the ledger has no entries"):
        notary.check_end()
    for at, entry in enumerate(played()):
        notary.take(entry)
        after = played()[at + 1 :]
        due = notary.due
        if not after:
            assert (due.round, due.asked, due.reserved, due.stop) == (4, (), False, None)
            continue
        assert due.round == sum(one.kind == "round" for one in played()[: at + 1])
        drawn = [one.provider for one in played() if one.kind == "reserve" and one.round == due.round]
        assert due.asked == tuple(dict.fromkeys(drawn))
        assert due.reserved == (entry.kind == "reserve" and after[0].kind in ("post", "void"))
        assert (due.stop is None) == bool(drawn)


def test_a_round_of_one_draw_may_be_reserved_in_full() -> None:
    """The last round of this run is shortened to the one draw that its budget pays for."""
    book = RuleBook.of(replace(rules().terms, budget=5))
    ledger = Ledger(book)
    ledger.reserve(0, book.draw(book.start(), ledger.book))
    entries = list(ledger.store.entries())
    assert [entry.kind for entry in entries] == ["open", "reserve"]
    assert Notary(entries).due.reserved and Notary(entries).due.asked == ("c",)
    with pytest.raises(LedgerError, match="the ledger has no entries"):
        _ = Notary().due


def test_a_run_that_was_closed_before_its_first_round_names_any_scores() -> None:
    """The budget pays for nobody. There is no round that the close could be compared with."""
    book = RuleBook.of(replace(rules().terms, budget=1))
    ledger, state = Ledger(book), book.start()
    stopped = book.stopped(ledger.book)
    assert stopped is not None
    ledger.close(stopped, standing(0, state))
    audit = audit_entries(tuple(ledger.store.entries()))
    assert audit.ok and audit.closed and (audit.rounds, audit.entries) == (0, 2)
    assert audit.closing is not None and audit.closing["refunded"] == 1


NOT_CHAINED = "its hash does not follow from its content and the entries before it"


@pytest.mark.parametrize("changed", [{"seq": 2}, {"amount": 3}, {"hash": "00"}])
def test_an_entry_is_taken_with_its_number_and_its_hash_alone(changed: dict[str, Any]) -> None:
    first, second, *_ = played()
    notary, forged = Notary([first]), second._replace(**changed)
    with pytest.raises(LedgerError, match=NOT_CHAINED):
        notary.take(forged)
    with pytest.raises(LedgerError, match=NOT_CHAINED):
        notary.take(second)
    assert (notary.audit.entries, notary.audit.head, notary.audit.ok) == (1, first.hash, False)
    moved = second._replace(seq=2).sealed(first.hash)
    with pytest.raises(LedgerError, match=NOT_CHAINED):
        Notary([first]).take(moved)


def test_two_copies_take_the_same_step_and_the_original_none() -> None:
    notary = Notary()
    for entry in played():
        one, other = notary.after([entry]), notary.after([entry])
        for ahead in (one, other):
            assert ahead.audit.head == entry.hash and ahead.due == other.due
        notary.take(entry)
        assert notary.due == one.due and notary.audit.book == one.audit.book


Forge = Callable[[list[Entry]], list[Entry]]


def body(kind: str, at: int, **more: Any) -> Forge:
    """Another body of the at-th entry of a kind; `None` leaves a field out."""

    def forge(entries: list[Entry]) -> list[Entry]:
        place = places(kind)[at]
        changed = {key: value for key, value in {**entries[place].body, **more}.items() if value is not ...}
        return [*entries[:place], entries[place]._replace(body=changed), *entries[place + 1 :]]

    return forge


def with_fields(of: str, at: int, **fields: Any) -> Forge:
    def forge(entries: list[Entry]) -> list[Entry]:
        place = places(of)[at]
        return [*entries[:place], entries[place]._replace(**fields), *entries[place + 1 :]]

    return forge


def gains(round: int, change: Callable[[Any], Any]) -> Forge:
    """Every number among the gains of a round is another."""
    numbers = played()[places("round")[round]].body["gains"]
    return body("round", round, gains=[None if one is None else change(one) for one in numbers])


def first_post(*fields: Any, **more: Any) -> Forge:
    return body("post", 0, **more)


def chances(factor: float) -> Forge:
    return body("round", 0, probabilities=[factor / 3] * 2)


ENDED = "the held-back pay"
FORGED: dict[str, tuple[Forge, str]] = {
    "a close between": (lambda old: [*old[:1], old[-1], *old[1:]], "claims spent"),
    "a post without its reserve": (lambda old: [old[0], *old[places("post")[0] :]], "nothing like it is reserved"),
    "no reserve of the second draw": (
        lambda old: [*old[:2], *old[3:]],
        "settled before the whole round was reserved",
    ),
    "a void without a reason": (body("void", 0, reason=...), "a void needs a code for its reason, and nothing else"),
    "a void with words for a reason": (body("void", 0, reason="because"), "a void needs a code for its reason"),
    "a post with a reason": (first_post(reason={"code": "no-answer"}), "a void needs a code for its reason"),
    "a void that the consumer left": (body("void", 0, **NOT_SETTLED), "is said to have left unsettled"),
    "a reply that is no hash": (first_post(reply="cd"), "by a reply that is not named by a hash"),
    "a reply in capitals": (first_post(reply=REPLY.upper()), "by a reply that is not named by a hash"),
    "too few gains": (body("round", 0, gains=[0.1]), "does not settle every draw"),
    "too many gains": (body("round", 0, gains=[0.1] * 3), "does not settle every draw"),
    "gains of the others": (
        body("round", 0, gains=[0.1 if one is None else None for one in played()[places("round")[0]].body["gains"]]),
        "a gain without payment, or a payment without gain",
    ),
    "other chances": (chances(1 + 1e-8), "the recorded probabilities do not follow from the gains before"),
    "lower chances": (chances(1 - 1e-8), "the recorded probabilities do not follow from the gains before"),
    "too few chances": (body("round", 0, probabilities=[1 / 3]), "the recorded probabilities do not follow"),
    "too many chances": (body("round", 0, probabilities=[1 / 3] * 3), "the recorded probabilities do not follow"),
    "gains in words": (gains(0, str), "a gain is not a number"),
    "gains beyond what a utility can": (gains(0, lambda _: 1.0012), "a gain is larger than a utility between 0 and 1"),
    "losses beyond what a utility can": (gains(0, lambda _: -1.0012), "a gain is larger than a utility between 0 and"),
    "another utility in the beginning": (body("round", 1, utility=0.5), "begins with another utility or loss"),
    "another loss in the beginning": (body("round", 1, loss=0.9), "begins with another utility or loss"),
    "a utility reached above one": (body("round", 0, reached=1.01), "a utility lies outside of 0 to 1"),
    "a utility reached below zero": (body("round", 0, reached=-0.01), "a utility lies outside of 0 to 1"),
    "a utility in words": (body("round", 0, reached="0.4"), "a utility or a loss is not a number"),
    "a loss in words": (body("round", 0, reached_loss="0.8"), "a utility or a loss is not a number"),
    "a loss in words in the beginning": (body("round", 0, loss="0.9"), "a utility or a loss is not a number"),
    "no utility in the beginning": (body("round", 0, utility=None), "a utility or a loss is not a number"),
    "no utility reached": (body("round", 0, reached=None), "a utility or a loss is not a number"),
    "findings": (body("round", 0, findings={}), "has findings, and the terms no defence"),
    "less paid": (with_fields("post", 0, amount=1), "the payments do not follow from the gains and the payment rule"),
    "a release": (
        lambda old: [*old[: places("round")[0]], Entry(0, "release", 0, None, "b", 1, {}), *old[places("round")[0] :]],
        "'b' has 0 held back",
    ),
    "less in the close": (body("close", 0, spent=0), "claims spent 0, but the posts sum to"),
    "more refunded": (body("close", 0, refunded=BUDGET), "but the posts sum to"),
    "a close that lacks something": (body("close", 0, status=...), "has other fields than a close"),
    "a close that says more": (body("close", 0, more=1), "has other fields than a close"),
    "another stop": (
        body("close", 0, stop={"kind": "patience", "reason": {"code": "budget-spent"}}),
        "says it stopped because of",
    ),
    "closed by the consumer": (
        body("close", 0, stop={"kind": "consumer", "reason": {"code": "closed-by-consumer"}}),
        "says it stopped because of",
    ),
    "another status": (body("close", 0, status="nobody-answered"), "the status 'nobody-answered' does not follow"),
    "another model": (body("close", 0, model="00"), "names another model than the last round ended with"),
    "another last utility": (body("close", 0, utility=0.6), "names another utility or loss than the last round"),
    "another last loss": (body("close", 0, loss=0.7), "names another utility or loss than the last round"),
    "no last utility": (body("close", 0, utility=None), "a utility or a loss is not a number"),
    "a utility above one": (body("close", 0, utility=1.01), "a utility lies outside of 0 to 1"),
    "closed early": (
        lambda old: [*until(2), old[-1]._replace(body={**old[-1].body, **spent_by(2)})],
        "the run stopped although the budget covers another round, and no other stop had a reason",
    ),
    "one round more": (
        lambda old: [*old[:-1], old[-1]._replace(kind="round", round=4, body=old[-2].body)],
        "(round, round 4): the run went on although the budget is spent",
    ),
    "a round again": (with_fields("round", 1, round=0), "(round, round 0): stands in round 1"),
    "another draw": (with_fields("reserve", 1, provider="c", amount=4), "c was not drawn here, a was"),
    "draws in another order": (
        lambda old: [old[0], old[1]._replace(draw=1), old[2]._replace(draw=0), *old[3:]],
        "(reserve, round 0, draw 1): c was not drawn here, c was",
    ),
    "one draw too many": (
        lambda old: [*old[:3], old[2]._replace(draw=2), *old[3:]],
        "(reserve, round 0, draw 2): a was not drawn here, nobody was",
    ),
    "settled in another order": (
        lambda old: [*old[:3], old[4], old[3], *old[5:]],
        "(void, round 0, draw 1): a was not drawn here, c was",
    ),
    "a model that moved alone": (body("round", 1, model=name_of(2)), "the model changed in a round that took no step"),
    "two gains of one provider": (
        body("round", 3, gains=[0.2, 0.3]),
        "a provider that was asked once has two different gains",
    ),
    "a draw that is not settled": (lambda old: [*old[:4], *old[5:]], "(round, round 0): does not settle every draw"),
    "an opening again": (lambda old: [*old[:3], old[0], *old[3:]], "a ledger is opened once"),
    "no opening": (lambda old: old[1:], "the first entry must be the opening"),
    "an unknown kind": (with_fields("reserve", 0, kind="gift"), "entry 1: is of no kind that a ledger has"),
}


def spent_by(round: int) -> dict[str, int]:
    spent = sum(entry.amount or 0 for entry in until(round) if entry.kind == "post")
    return {"spent": spent, "refunded": BUDGET - spent}


@pytest.mark.parametrize("name", FORGED)
def test_a_forgery_is_refused_for_its_reason(name: str) -> None:
    forge, words = FORGED[name]
    for record in (True, False):
        audit = audit_entries(reseal(forge(list(played()))), record=record)
        assert not audit.ok and words in audit.message, audit.message


def test_what_differs_in_the_last_digit_is_the_same() -> None:
    for factor in (1 + 5e-10, 1 - 5e-10):
        assert audit_entries(reseal(chances(factor)(list(played())))[: len(until(0))]).ok
    for gain in (1.0011, -1.0011):
        audit = audit_entries(reseal(gains(0, lambda _, gain=gain: gain)(list(played())))[: len(until(0))])  # type: ignore[misc]
        assert audit.ok, audit.message


@pytest.mark.parametrize("reached", [0.0, 1.0011])
def test_a_utility_may_be_as_large_as_its_bounds(reached: float) -> None:
    audit = audit_entries(reseal(body("round", 0, reached=reached)(list(played())))[: len(until(0))])
    assert audit.ok and audit.rounds == 1, audit.message


def test_a_utility_without_bounds_may_be_and_change_by_any_number() -> None:
    entries = body("open", 0, bounded_utility=False)(gains(0, lambda _: 7.5)(list(played())))
    for reached in (0.4, 7.5, -7.5):
        audit = audit_entries(reseal(body("round", 0, reached=reached)(entries))[: len(until(0))])
        assert audit.ok and audit.rounds == 1, audit.message


def kept(rounds: int) -> Snapshot:
    audit = audit_entries(until(rounds - 1))
    return standing(rounds, audit.state).snapshot()  # type: ignore[no-any-return]


def test_the_stored_state_is_that_of_its_round() -> None:
    for rounds in (1, 2, 3, 4):
        assert audit_entries(until(rounds - 1), kept(rounds)).ok
        if rounds < 4:
            assert audit_entries(until(rounds), kept(rounds)).ok, "a run that goes on while it is read"
            message = audit_entries(until(rounds - 1), kept(rounds + 1)).message
            assert message == f"the stored state is that of round {rounds + 1}, not {rounds}"
            message = audit_entries(played(), kept(rounds)).message
            assert message == f"the stored state is that of round {rounds}, not 4"
    assert audit_entries(played(), kept(4)).ok


def test_a_stored_state_that_was_changed_is_named() -> None:
    entries, sound = played(), kept(4)
    arrays = sound.arrays()
    state, params = "the stored state of the sampler does not follow", "the stored parameters are not those"
    best = "the stored best model is not the one of the round that reached it"
    moved = arrays["sampler"] + 1e-6
    for changed, words in (
        (replace(sound, state=pack({**arrays, "sampler": moved})), state),
        (replace(sound, state=pack({**arrays, "sampler": arrays["sampler"][:-1]})), state),
        (replace(sound, state=pack({"best": arrays["best"]})), state),
        (replace(sound, state=b"none"), state),
        (replace(sound, params=pack({"w": model(2)})), params),
        (replace(sound, params=b"none"), params),
        (replace(sound, state=pack({**arrays, "best": model(3)})), best),
        (replace(sound, state=pack({**arrays, "best": np.zeros(0)})), best),
    ):
        assert words in audit_entries(entries, changed).message
    for fine in (
        replace(sound, params=b""),
        replace(sound, state=pack({"sampler": arrays["sampler"]})),
        replace(sound, state=pack({**arrays, "sampler": arrays["sampler"] + 1e-12})),
    ):
        assert audit_entries(entries, fine).ok
    assert hash_array(model(2)) == audit_entries(entries).delivered


def judged(round: int, drawn: Drawn) -> tuple[dict[int, float | None], Findings]:
    """Of p0 it is known in the eighth round that it has no data, and of p1 that it has; p3 fails once."""
    gains = {i: None if (i, round) == (3, 2) else 0.01 * i for i in drawn.asked}
    signal, error = {0: 0.0, 1: 1.0}, {0: 0.01, 1: 0.2}
    shown, errors = [signal.get(i) for i in drawn.asked], [error.get(i) for i in drawn.asked]
    return gains, Findings(harm=[0.5 + i for i in drawn.asked], signal=shown, error=errors)


@cache
def defended() -> tuple[Entry, ...]:
    ledger = play(scripted_rules(), judged)
    assert isinstance(ledger, Ledger)
    return tuple(ledger.store.entries())


def test_held_back_pay_of_two_is_settled_in_one_round_in_the_order_of_the_roster() -> None:
    freed = [entry for entry in defended() if entry.kind in ("release", "return")]
    assert [(one.kind, one.round, one.provider) for one in freed] == [
        ("return", 7, "p0"),
        ("release", 7, "p1"),
        ("release", None, "p2"),
        ("release", None, "p3"),
    ]
    audit = audit_entries(defended())
    assert audit.ok and audit.record is not None
    assert [(one.round, one.provider, one.amount, one.released) for one in audit.record.freed] == [
        (one.round, one.provider, one.amount, one.kind == "release") for one in freed
    ]
    (ended,) = [entry for entry in defended() if entry.kind == "round" and entry.round == 7]
    assert audit.record.entries == {7: (ended.seq, ended.hash)}
    assert [(round, one.provider) for round, one in audit.record.verdicts] == [(7, 0), (7, 1)]
    assert [[access.held for access in round.accesses] for round in record_of(audit).rounds] == [
        [one.body.get("held", 0) for one in defended() if one.round == round and one.kind in ("post", "void")]
        for round in range(audit.rounds)
    ]


def test_every_figure_of_a_valid_answer_is_kept() -> None:
    audit = audit_entries(defended())
    assert audit.record is not None
    rounds = list(range(audit.rounds))
    flagged, cleared, _, failed = audit.record.figures.curves(4)
    assert cleared.rounds.tolist() == rounds and failed.rounds.tolist() == [0, 1, *rounds[3:]]
    assert set(cleared.harm) == {1.5} and set(failed.harm) == {3.5} and set(cleared.signal) == {1.0}
    assert set(cleared.error) == {0.2} and np.isnan(failed.signal).all() and np.isnan(cleared.leak).all()
    assert flagged.rounds.tolist()[:8] == rounds[:8] and set(flagged.error) == {0.01}


def freed_at(of: str, count: int, **fields: Any) -> list[Entry]:
    entries = list(defended())
    place = [at for at, entry in enumerate(entries) if entry.kind == of][count]
    entries[place] = entries[place]._replace(**fields)
    return entries


def after_the_first_return(entry: Entry) -> list[Entry]:
    place = next(at for at, one in enumerate(defended()) if one.kind == "return") + 1
    return [*defended()[:place], entry, *defended()[place:]]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (lambda: freed_at("release", 0, round=None), "(release): stands between held-back pay that was settled"),
        (lambda: freed_at("release", 0, round=6), "(release, round 6): stands between held-back pay"),
        (lambda: freed_at("release", 2, round=14), "(release, round 14): stands between held-back pay"),
        (
            lambda: after_the_first_return(Entry(0, "reserve", 7, 9, "p1", 50, {})),
            "(reserve, round 7, draw 9): stands between held-back pay",
        ),
        (lambda: freed_at("return", 0, kind="release"), "does not follow from the verdicts"),
        (lambda: freed_at("release", 0, body={"why": 1}), "does not follow from the verdicts"),
    ],
)
def test_nothing_comes_between_held_back_pay_and_what_it_is_settled_for(
    entries: Callable[[], list[Entry]], words: str
) -> None:
    audit = audit_entries(reseal(entries()))
    assert not audit.ok and words in audit.message, audit.message


def test_a_copy_of_a_notary_shares_no_held_back_pay_with_it() -> None:
    notary = Notary()
    for entry in defended():
        one, other = notary.after([entry]), notary.after([entry])
        assert one.due == other.due and one.audit.book == other.audit.book
        notary.take(entry)
    assert notary.audit.closed
