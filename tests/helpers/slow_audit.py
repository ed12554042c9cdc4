"""The audit once more, as plainly as it can be said: it holds everything, and works out everything anew for each round.

It knows the stops that rules gave. It says which entry is the first that does not hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from databazaar.canonical import GENESIS
from databazaar.defence import Findings
from databazaar.ledger import Drawn, Entry, RuleBook, Terms
from databazaar.ledger.rulebook import Settled, status_of

FREEING = ("release", "return")


def first_broken(entries: Sequence[Entry]) -> int | None:
    """The place of the first entry that does not hold; None where all do."""
    head, terms, past = GENESIS, Terms.from_body(entries[0].body), list[Entry]()
    rules = RuleBook.of(terms)
    for place, entry in enumerate(entries):
        try:
            text = json.dumps(entry.fields, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
            head = hashlib.sha256(f"{head}\n{text}".encode()).hexdigest()
            assert (entry.seq, entry.hash) == (place, head)
            if place:
                _follows(entry, past, rules)
            past.append(entry)
        except Exception:
            return place
    return None


def _follows(entry: Entry, past: list[Entry], rules: RuleBook) -> None:
    """Whether an entry is the one that comes after these, by the rules and the gains alone."""
    book, state, model = rules.new_book(), rules.start(), rules.terms.initial_model
    last: dict[str, object] | None = None
    while True:  # all rounds before, from the first
        drawn = None if rules.stopped(book) else rules.draw(state, book)
        under_way = [one for one in past if one.round == book.rounds]
        ended = next((one for one in under_way if one.kind == "round"), None)
        for one in under_way:
            book.apply(one)
        if ended is None:
            break
        assert drawn is not None
        state, model, last = _settled(rules, state, drawn, ended).state, ended.body["model"], ended.body
    rounds, in_the_end = book.rounds, [one for one in past[1:] if one.round is None]
    for one in in_the_end:
        book.apply(one)
    held, freed = dict(book.held_back), [one for one in under_way if one.kind in FREEING]
    under_way = [one for one in under_way if one.kind not in FREEING]
    book.apply(entry)
    if entry.kind in FREEING:
        whole = drawn is not None and (rounds, 2 * len(drawn.draws)) == (entry.round, len(under_way))
        assert not in_the_end if whole else entry.round is None and not freed
        return
    if entry.kind == "close":
        back = rules.returned_at_close(state)
        everybody = range(len(rules.terms.roster))
        assert not freed and not held
        _frees(rules, in_the_end, [i for i in everybody if i not in back], back)
        stopped, body = rules.stopped(book), entry.body
        assert stopped is not None and not under_way and body["stop"] == stopped.body()
        assert (body["spent"], body["refunded"]) == (book.spent, book.budget - book.spent)
        assert (body["status"], body["model"]) == (status_of(stopped, book), model)
        if last is not None:
            assert (body["utility"], body["loss"]) == (last["reached"], last["reached_loss"])
        return
    assert drawn is not None and entry.round == rounds and not in_the_end and (entry.kind == "round" or not freed)
    expected = ["reserve"] * len(drawn.draws) + ["post or void"] * len(drawn.draws) + ["round"]
    wanted, draw = expected[len(under_way)], len(under_way) % len(drawn.draws)
    assert entry.kind in wanted
    if entry.kind != "round":
        assert (entry.draw, entry.provider) == (draw, rules.terms.roster.ids[drawn.draws[draw]])
        assert (entry.kind == "void") == isinstance(entry.body.get("reason"), dict)
        return
    body, settled = entry.body, under_way[len(drawn.draws) :]
    paid, back = (
        [one.amount if one.kind == "post" else 0 for one in settled],
        [one.body.get("held", 0) for one in settled],
    )
    assert [one.kind == "post" for one in settled] == [gain is not None for gain in body["gains"]]
    assert np.shape(body["probabilities"]) == drawn.probabilities.shape
    assert np.allclose(body["probabilities"], drawn.probabilities, rtol=1e-9, atol=0)
    by_provider = dict(zip(drawn.draws.tolist(), body["gains"], strict=True))
    assert body["gains"] == [by_provider[one] for one in drawn.draws.tolist()]
    assert all(type(gain) in (float, int) for gain in body["gains"] if gain is not None)
    if last is not None:
        assert (body["utility"], body["loss"]) == (last["reached"], last["reached_loss"])
    if rules.terms.bounded_utility:
        assert all(0 <= body[name] <= 1.0011 for name in ("utility", "reached"))
    if not any(gain is not None for gain in body["gains"]):
        assert body["model"] == model
    found = _settled(rules, state, drawn, entry)
    assert (paid, back) == (found.paid, found.held)
    _frees(rules, freed, found.released, found.returned)
    assert not {*found.released, *found.returned} & {rules.terms.places[provider] for provider in held}


def _settled(rules: RuleBook, state: NDArray[np.float64], drawn: Drawn, ended: Entry) -> Settled:
    """What a round comes to by its findings."""
    body, findings = ended.body, None
    if "findings" in body:
        assert not rules.defence.off
        findings = Findings.of(body["findings"], len(drawn.asked), len(rules.terms.roster))
    return rules.settle(state, drawn, body["gains"], body["probabilities"], findings)


def _frees(rules: RuleBook, freed: Sequence[Entry], released: Sequence[int], returned: Sequence[int]) -> None:
    """These entries, in the order of the roster, release and return for whom they should."""
    places = [rules.terms.places[one.provider or ""] for one in freed]
    assert places == sorted(set(places)) and not any(one.body for one in freed)
    assert all(
        place in (released if one.kind == "release" else returned) for place, one in zip(places, freed, strict=True)
    )
