"""The audit finds every change in every field of every entry, and changes under a chain that was sealed anew."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from databazaar import OSMD, Arbiter, LedgerError
from databazaar.canonical import GENESIS, canonical
from databazaar.ledger import Accounts, Entry, Ledger, MemoryStore, RuleBook, Snapshot, Terms, audit_entries
from databazaar.ledger.chain import KINDS
from databazaar.market.loop import play
from databazaar.registry import MissingRuleError
from databazaar.roster import RoundBudget
from databazaar.vectors import pack, unpack
from forging import reseal
from records import record_of
from small_markets import MakeMarket


@pytest.fixture(scope="module")
def played(make_vector_market: MakeMarket) -> tuple[list[Entry], Snapshot]:
    """A small real run: unequal prices, an owner of two, and a provider that fails."""
    consumer, providers = make_vector_market(
        budget=40, prices=[1, 2, 3, 1], owners=["ann", "ann", "bob", "eve"], oracles={3: lambda w: w * np.nan}
    )
    arbiter = Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop", seed=8)
    ledger = Ledger(arbiter.rules)
    run = arbiter.begin(ledger)
    play(run, arbiter.engine)
    entries = list(ledger.store.entries())
    assert {e.kind for e in entries} == set(KINDS) - {"release", "return"}
    return entries, run.state.snapshot()


@settings(max_examples=200, deadline=None)
@given(
    numbers=st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False)), min_size=4),
    kind=st.sampled_from(KINDS),
    provider=st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))),
    body=st.sampled_from([{}, {"reason": "none"}]),
)
def test_every_hash_is_that_of_the_canonical_json(numbers: list[Any], kind: Any, provider: Any, body: Any) -> None:
    """However an entry's text is put together, it is byte for byte what the format says."""
    seq, round, draw, amount, *_ = numbers
    assume(not any(isinstance(number, float) and np.isinf(number) for number in numbers))
    entry = Entry(seq, kind, round, draw, provider, amount, body)
    text = json.dumps([seq, kind, round, draw, provider, amount, body], separators=(",", ":"), ensure_ascii=False)
    assert entry.digest(GENESIS) == hashlib.sha256(f"{GENESIS}\n{text}".encode()).hexdigest()
    whole = Entry(7, kind, 3, 2, provider, 5, body)
    text = json.dumps([7, kind, 3, 2, provider, 5, body], separators=(",", ":"), ensure_ascii=False)
    assert whole.sealed(GENESIS).hash == hashlib.sha256(f"{GENESIS}\n{text}".encode()).hexdigest()


def test_accounts_that_are_written_nowhere_are_the_same(make_vector_market: MakeMarket) -> None:
    """Prices differ and one provider fails: pay, voids and the end are those of a ledger that keeps everything."""
    consumer, providers = make_vector_market(budget=40, prices=[1, 2, 3, 1], oracles={3: lambda w: w * np.nan})
    books = []
    for kept in (Ledger, Accounts):
        arbiter = Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop", seed=8)
        accounts = kept(arbiter.rules)
        play(arbiter.begin(accounts), arbiter.engine)
        books.append(accounts.book)
    assert books[0] == books[1] and books[1].closed and books[1].failures and books[1].pay


def variants(value: Any) -> Iterator[Any]:
    """Values that differ from one in a small way."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, -value - 1, None, float(value), str(value))
    elif isinstance(value, float):
        yield from (float(np.nextafter(value, 9e9)), -value - 1.0, None)
    elif isinstance(value, str):
        yield from (value + "x", value[:-1] + "é", None)
    elif value is None:
        yield from (0, "", 0.0)
    elif isinstance(value, dict):
        yield {**value, "more": 1}
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
            for changed in variants(value[key]):
                yield {**value, key: changed}
    elif isinstance(value, list | tuple):
        yield [*value, 0]
        for i, item in enumerate(value):
            yield [*value[:i], *value[i + 1 :]]
            for changed in variants(item):
                yield [*value[:i], changed, *value[i + 1 :]]


def test_a_real_ledger_holds(played: tuple[list[Entry], Snapshot]) -> None:
    entries, snapshot = played
    audit = audit_entries(entries, snapshot)
    assert audit.ok, audit.first_broken
    assert audit.closed
    assert audit.head == entries[-1].hash
    assert reseal(entries) == entries


FIELDS = ("seq", "kind", "round", "draw", "provider", "amount", "body", "hash")


@pytest.mark.parametrize("field", FIELDS)
def test_any_change_of_any_field_of_any_entry_is_found_and_named(
    played: tuple[list[Entry], Snapshot], field: str
) -> None:
    entries, snapshot = played
    tried = 0
    for at, entry in enumerate(entries):
        options: Iterable[Any] = set(KINDS) - {entry.kind} if field == "kind" else variants(getattr(entry, field))
        for value in options:
            forged = entry._replace(**{field: value})
            if field == "body" and canonical(forged.body) == canonical(entry.body):
                continue
            tried += 1
            audit = audit_entries([*entries[:at], forged, *entries[at + 1 :]], snapshot)
            assert not audit.ok, f"{entry}: {field} = {value!r} was not found"
            assert audit.first_broken is not None
            shown = forged.seq if field == "seq" else at
            assert audit.first_broken.startswith(f"entry {shown}"), (field, value, audit.first_broken)
            assert audit.entries == at
    assert tried >= len(entries)


def test_a_missing_repeated_or_exchanged_entry_is_found(played: tuple[list[Entry], Snapshot]) -> None:
    entries, snapshot = played
    for at in range(len(entries)):
        assert not audit_entries([*entries[:at], *entries[at + 1 :]], snapshot).ok or at == len(entries) - 1
        assert not audit_entries([*entries[: at + 1], *entries[at:]], snapshot).ok
        if at:
            assert not audit_entries([*entries[: at - 1], entries[at], entries[at - 1], *entries[at + 1 :]]).ok
    assert not audit_entries([]).ok


def test_a_ledger_cut_short_is_not_taken_for_a_closed_one(played: tuple[list[Entry], Snapshot]) -> None:
    entries, snapshot = played
    assert not audit_entries(entries[:-1]).closed
    rounds = [at for at, e in enumerate(entries) if e.kind == "round"]
    cut = audit_entries(entries[: rounds[-1]], snapshot)
    assert not cut.ok  # the stored state belongs to a later round


def rounds_of(entries: list[Entry]) -> list[int]:
    return [at for at, entry in enumerate(entries) if entry.kind == "round"]


def test_a_changed_gain_is_found_although_the_chain_was_sealed_anew(played: tuple[list[Entry], Snapshot]) -> None:
    entries, snapshot = played
    changed = 0
    for at in rounds_of(entries):
        gains = entries[at].body["gains"]
        for k, gain in enumerate(gains):
            if gain is None:
                continue
            changed += 1
            body = {**entries[at].body, "gains": [*gains[:k], gain + 0.01, *gains[k + 1 :]]}
            forged = reseal([*entries[:at], entries[at]._replace(body=body), *entries[at + 1 :]])
            audit = audit_entries(forged, snapshot)
            assert not audit.ok, f"round {entries[at].round}, draw {k}"
    assert changed > 10


def test_a_changed_draw_is_found_although_the_chain_was_sealed_anew(played: tuple[list[Entry], Snapshot]) -> None:
    entries, snapshot = played
    prices = {name: price for name, _, price in entries[0].body["providers"]}
    keys = {(e.round, e.draw): e.provider for e in entries if e.kind == "reserve"}
    for key, honest in keys.items():
        for other in set(prices) - {honest}:
            forged = [
                e._replace(provider=other, amount=prices[other])
                if (e.round, e.draw) == key and e.kind in ("reserve", "post", "void")
                else e
                for e in entries
            ]
            audit = audit_entries(reseal(forged), snapshot)
            assert not audit.ok
            assert audit.first_broken is not None
            assert f"round {key[0]}, draw {key[1]}" in audit.first_broken


@pytest.mark.parametrize("target", ["seed", "eta", "alpha", "price", "budget", "per_round"])
def test_changed_terms_are_found_although_the_chain_was_sealed_anew(
    played: tuple[list[Entry], Snapshot], target: str
) -> None:
    entries, snapshot = played
    body = json.loads(json.dumps(entries[0].body))
    if target in ("eta", "alpha"):
        body["rules"]["sampler"][target] += 0.5  # a floor that no p came near would have changed nothing
    elif target == "price":
        body["providers"] = [[name, owner, price + 1] for name, owner, price in body["providers"]]
    else:
        body[target] += 1
    audit = audit_entries(reseal([entries[0]._replace(body=body), *entries[1:]]), snapshot)
    assert not audit.ok


def test_a_void_turned_into_a_payment_is_found_although_sealed_anew(played: tuple[list[Entry], Snapshot]) -> None:
    entries, snapshot = played
    for at, entry in enumerate(entries):
        if entry.kind not in ("void", "post"):
            continue
        other = entry._replace(kind="post", body={}) if entry.kind == "void" else entry._replace(kind="void")
        assert not audit_entries(reseal([*entries[:at], other, *entries[at + 1 :]]), snapshot).ok


def test_a_changed_settlement_is_found_although_sealed_anew(played: tuple[list[Entry], Snapshot]) -> None:
    entries, snapshot = played
    closing = entries[-1]
    for change in (
        {"spent": closing.body["spent"] + 1},
        {"refunded": closing.body["refunded"] - 1},
        {"status": "nobody-answered"},
        {"status": "open"},
        {"stop": {"kind": "budget", "reason": {"code": "enough"}}},
        {"stop": {"kind": "target-utility", "reason": closing.body["stop"]["reason"]}},
        {"utility": closing.body["utility"] + 1e-9},
        {"model": "0" * 64},
    ):
        forged = reseal([*entries[:-1], closing._replace(body={**closing.body, **change})])
        assert not audit_entries(forged, snapshot).ok


def test_a_run_stopped_early_is_found_although_sealed_anew(played: tuple[list[Entry], Snapshot]) -> None:
    entries, _ = played
    at = rounds_of(entries)[2]
    spent = sum(e.amount or 0 for e in entries[:at] if e.kind == "post")
    body = {**entries[-1].body, "spent": spent, "refunded": entries[0].body["budget"] - spent}
    audit = audit_entries(reseal([*entries[: at + 1], entries[-1]._replace(body=body)]))
    assert audit.first_broken is not None
    assert "stopped although the budget covers another round" in audit.first_broken


def test_a_changed_stored_state_is_found(played: tuple[list[Entry], Snapshot]) -> None:
    entries, snapshot = played
    state = unpack(snapshot.state)
    moved = pack({**state, "sampler": state["sampler"] + 1e-6})
    for bad in (
        replace(snapshot, state=moved),
        replace(snapshot, state=pack({**state, "sampler": state["sampler"][:-1]})),
        replace(snapshot, state=pack({"other": state["sampler"]})),
        replace(snapshot, state=snapshot.state[:-3]),
        replace(snapshot, state=b""),
        replace(snapshot, params=snapshot.params[:-3]),
        replace(snapshot, next_round=snapshot.next_round + 1),
    ):
        assert not audit_entries(entries, bad).ok


def test_the_audit_replays_every_distribution(played: tuple[list[Entry], Snapshot]) -> None:
    entries, snapshot = played
    audit = audit_entries(entries, snapshot)
    assert len(record_of(audit).distributions) == audit.rounds + 1
    for p in record_of(audit).distributions:
        assert p.sum() == pytest.approx(1)
    for p, past in zip(record_of(audit).distributions[:-3], record_of(audit).rounds, strict=False):
        assert (p >= 0.2 / 4).all(), past  # everybody is affordable: nobody is asked less than that
    round_budget = RoundBudget(10**6, np.array([1, 2, 3, 1]))
    expected = OSMD(0.6, 0.2).probabilities(unpack(snapshot.state)["sampler"], round_budget)
    np.testing.assert_allclose(record_of(audit).distributions[-1], expected)


def test_one_spelling_only() -> None:
    assert canonical({"b": 1, "a": "é"}) == '{"a":"é","b":1}'
    with pytest.raises(ValueError, match="JSON"):
        canonical([float("nan")])


def changed(at: int, **fields: Any) -> Callable[[list[Entry]], list[Entry]]:
    return lambda entries: [*entries[:at], entries[at]._replace(**fields), *entries[at:][1:]]


def changed_body(kind: str, count: int, **more: Any) -> Callable[[list[Entry]], list[Entry]]:
    """The body of the nth entry of a kind, with some of it replaced, or removed where None is given."""

    def forge(entries: list[Entry]) -> list[Entry]:
        at = [place for place, entry in enumerate(entries) if entry.kind == kind][count]
        removed = {name for name, value in more.items() if value is None}
        body = {name: value for name, value in {**entries[at].body, **more}.items() if name not in removed}
        return changed(at, body=body)(entries)

    return forge


def without(kind: str) -> Callable[[list[Entry]], list[Entry]]:
    """Without the last entry of a kind in the first round."""

    def forge(entries: list[Entry]) -> list[Entry]:
        at = max(place for place, entry in enumerate(entries) if entry.kind == kind and entry.round == 0)
        return [*entries[:at], *entries[at + 1 :]]

    return forge


def changed_gain(value: Any) -> Callable[[list[Entry]], list[Entry]]:
    """The first gain of a round whose first reply was valid."""

    def forge(entries: list[Entry]) -> list[Entry]:
        at = next(i for i, e in enumerate(entries) if e.kind == "round" and e.body["gains"][0] is not None)
        body = {**entries[at].body, "gains": [value, *entries[at].body["gains"][1:]]}
        return changed(at, body=body)(entries)

    return forge


FORGED: dict[str, tuple[Callable[[list[Entry]], list[Entry]], str]] = {
    "no opening": (lambda entries: entries[1:], "entry 0 (reserve, round 0, draw 0): the first entry must be the op"),
    "two openings": (lambda entries: [entries[0], *entries], "entry 1 (open): a ledger is opened once"),
    "format of the future": (changed_body("open", 0, format=6), "ledger format 6 needs another version of databazaar"),
    "format of the past": (changed_body("open", 0, format=4), "ledger format 4 needs another version of databazaar"),
    "format that is true": (changed_body("open", 0, format=True), "ledger format True needs another version"),
    "no budget": (changed_body("open", 0, budget=None), "entry 0 (open): the terms cannot be read (KeyError('budget'"),
    "prices in words": (changed_body("open", 0, providers=[["p0", "p0", "dear"]]), "prices must be whole numbers"),
    "round of later": (lambda entries: [*entries[:1], *map(later, entries[1:])], "stands in round 0"),
    "round cut short": (without("post"), "does not settle every draw"),
    "no gains": (changed_body("round", 1, gains=None), "cannot be read (KeyError('gains'"),
    "gains in words": (changed_body("round", 1, gains="none"), "does not settle every draw"),
    "price of a half": (changed_body("open", 0, providers=[["p0", "p0", 1.5]]), "prices must be whole numbers"),
    "budget that is a float": (changed_body("open", 0, budget=40.0), "must be whole numbers"),
    "utility that jumps": (changed_body("round", 1, utility=0.123), "begins with another utility or loss than the rou"),
    "loss that jumps": (changed_body("round", 1, loss=0.123), "begins with another utility or loss than the rou"),
    "no utility reached": (changed_body("round", 1, reached=None), "cannot be read (KeyError('reached'"),
    "gain that is true": (changed_gain(True), "a gain is not a number"),
    "message": (
        changed_body("close", 0, message="1000000 credits paid"),
        "has other fields than a close",
    ),
    "last loss": (changed_body("close", 0, loss=0.001), "another utility or loss than the last round ended with"),
    "amount that is a float": (
        lambda entries: [
            e._replace(amount=cast(Any, float(e.amount))) if e.kind == "post" and e.amount else e for e in entries
        ],
        "its amount is not a whole number",
    ),
}


def later(entry: Entry) -> Entry:
    return entry if entry.round is None else entry._replace(round=entry.round + 1)


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_ledger_is_found_and_the_fault_named_although_sealed_anew(
    played: tuple[list[Entry], Snapshot], case: str
) -> None:
    forge, words = FORGED[case]
    audit = audit_entries(reseal(forge(played[0])))
    assert not audit.ok and words in audit.message, audit.message


def test_nobody_goes_on_with_a_broken_chain(played: tuple[list[Entry], Snapshot]) -> None:
    entries, _ = played
    rules = RuleBook.of(Terms.from_body(entries[0].body))
    for broken in ([*entries[:3], *entries[4:]], [entries[0], entries[1]._replace(amount=9), *entries[2:]]):
        store = MemoryStore()
        store.append(broken, None)
        with pytest.raises(LedgerError, match=r"entry \d .*the chain is broken here; `bazaar audit` tells more"):
            Ledger(rules, store)


def test_an_audit_without_the_package_of_a_rule_is_no_fault_of_the_ledger(
    played: tuple[list[Entry], Snapshot],
) -> None:
    rules = played[0][0].body["rules"]
    for came, words in (("acme-rules", "`pip install acme-rules`"), ("module notebook", "defined in module notebook")):
        sampler = {"kind": "acme-rare", "from": came}
        forged = reseal(changed_body("open", 0, rules={**rules, "sampler": sampler})(played[0]))
        with pytest.raises(MissingRuleError, match=f"sampler 'acme-rare' .*{words}") as missing:
            audit_entries(forged)
        assert missing.value.package == came
    with pytest.raises(
        MissingRuleError, match="sampler kind 'acme-rare' is unknown: use one of adaptive, osmd, uniform"
    ):
        audit_entries(reseal(changed_body("open", 0, rules={**rules, "sampler": {"kind": "acme-rare"}})(played[0])))


def test_whoever_is_asked_once_has_one_gain_however_often_it_was_drawn(played: tuple[list[Entry], Snapshot]) -> None:
    entries, _ = played
    for at in rounds_of(entries):
        drawn = [e.provider for e in entries if e.kind == "reserve" and e.round == entries[at].round]
        gains = entries[at].body["gains"]
        twice = [k for k, who in enumerate(drawn) if drawn.index(who) < k and gains[k] is not None]
        if twice:
            forged = [*gains[: twice[0]], gains[twice[0]] + 0.01, *gains[twice[0] + 1 :]]
            body = {**entries[at].body, "gains": forged}
            audit = audit_entries(reseal(changed(at, body=body)(entries)))
            assert "a provider that was asked once has two different gains" in audit.message
            return
    raise AssertionError("nobody was drawn twice in a round")


def test_a_model_that_changes_in_a_silent_round_is_found(make_vector_market: MakeMarket) -> None:
    consumer, providers = make_vector_market((0.0,), budget=30, oracles={0: lambda w: w * np.nan})
    arbiter = Arbiter(consumer, providers, engine="loop", patience=3)
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    forged = [
        e._replace(body={**e.body, "model": "f" * 64}) if "model" in e.body else e for e in ledger.store.entries()
    ]
    assert "the model changed in a round that took no step" in audit_entries(reseal(forged)).message


def test_a_state_of_an_earlier_round_is_right_while_a_run_goes_on_and_wrong_once_it_is_closed(
    played: tuple[list[Entry], Snapshot], make_vector_market: MakeMarket
) -> None:
    """Whoever reads a ledger that is being written reads the state first: the entries may have come further."""
    entries, _ = played
    consumer, providers = make_vector_market(
        budget=40, prices=[1, 2, 3, 1], owners=["ann", "ann", "bob", "eve"], oracles={3: lambda w: w * np.nan}
    )
    arbiter = Arbiter(consumer, providers, OSMD(0.6, 0.2), engine="loop", seed=8)
    states: list[Snapshot] = []
    run = arbiter.begin(Ledger(arbiter.rules), lambda progress: states.append(run.state.snapshot()))
    play(run, arbiter.engine)
    assert audit_entries(entries[:-1], states[2]).ok
    assert not audit_entries(entries, states[2]).ok
    assert not audit_entries(entries[:-1], replace(states[2], state=states[3].state)).ok
