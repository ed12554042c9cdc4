"""The notary, who is given a ledger as it is written, says what the audit says of the whole, and says it in time."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databazaar import OSMD, Adaptive, Arbiter, LedgerError
from databazaar.ledger import Audit, Entry, Ledger, Notary, audit_entries
from databazaar.market.loop import play
from databazaar.registry import MissingRuleError
from forging import reseal
from mutations import twisted
from small_markets import vector_market


def ledger_of(seed: int, *, limits: bool = False) -> list[Entry]:
    consumer, providers = vector_market(
        budget=30, prices=[1, 2, 3, 1], owners=["ann", "ann", "bob", "eve"], oracles={3: lambda w: w * np.nan}
    )
    if limits:
        providers = [replace(one, most_accesses=4) for one in providers]
    arbiter = Arbiter(consumer, providers, Adaptive() if seed % 2 else OSMD(0.6, 0.2), engine="loop", seed=seed)
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    return list(ledger.store.entries())


LEDGERS = [ledger_of(8), ledger_of(5, limits=True)]


def found(audit: Audit) -> dict[str, Any]:
    said = asdict(audit)
    return {**said, "state": None if audit.state is None else audit.state.tolist(), "record": None}


@pytest.mark.parametrize("entries", LEDGERS)
def test_entry_by_entry_it_is_where_an_audit_of_as_many_entries_is(entries: list[Entry]) -> None:
    notary = Notary()
    for at, entry in enumerate(entries):
        notary.take(entry)
        if entry.kind in ("open", "round", "close"):
            assert found(notary.audit) == found(audit_entries(entries[: at + 1], record=False))
    assert notary.audit.closed and notary.due.asked == () and notary.due.stop is None
    with pytest.raises(LedgerError, match="closed and takes nothing more"):
        notary.take(entries[1]._replace(seq=len(entries)).sealed(notary.audit.head))


@pytest.mark.parametrize("entries", LEDGERS)
def test_it_says_whom_the_next_round_must_ask_and_when_the_run_must_end(entries: list[Entry]) -> None:
    notary, rounds = Notary(), [entry for entry in entries if entry.kind == "round"]
    for entry in entries:
        notary.take(entry)
        if entry.kind not in ("open", "round"):
            continue
        due = notary.due
        reserved = [e.provider for e in entries if e.kind == "reserve" and e.round == due.round]
        assert list(due.asked) == list(dict.fromkeys(reserved)) and not due.reserved
        assert due.round == notary.audit.rounds and (due.stop is None) == (due.round < len(rounds))
        ahead = notary.after(e for e in entries if e.kind == "reserve" and e.round == due.round)
        assert ahead.due.reserved == bool(reserved)


def test_what_a_copy_takes_is_not_taken_by_the_original_and_it_can_be_built_anew() -> None:
    entries = LEDGERS[0]
    notary = Notary()
    for entry in entries:
        before = copy.deepcopy(found(notary.audit))
        ahead = notary.after([entry])
        assert found(notary.audit) == before
        with pytest.raises(LedgerError):
            notary.after([entry, entry])
        assert found(notary.audit) == before and ahead.audit.head == entry.hash
        notary = ahead
    assert found(Notary(entries).audit) == found(notary.audit)
    with pytest.raises(LedgerError, match="no entries"):
        _ = Notary().due


def test_who_has_refused_an_entry_takes_no_other() -> None:
    entries, notary = LEDGERS[0], Notary(LEDGERS[0][:3])
    for wrong in (entries[5], entries[3]):
        with pytest.raises(LedgerError, match="entry 5"):
            notary.take(wrong)
    assert notary.audit.entries == 3 and not notary.audit.ok


def test_a_rule_that_is_not_installed_is_no_fault_of_the_entry() -> None:
    first = LEDGERS[0][0]
    rules = {**first.body["rules"], "sampler": {"kind": "elsewhere", "from": "a-package 1.0"}}
    notary = Notary()
    with pytest.raises(MissingRuleError):
        notary.take(first._replace(body={**first.body, "rules": rules}).sealed("0" * 64))
    assert notary.audit.ok


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(LEDGERS), st.integers(min_value=0), st.integers(0, 2**32))
def test_what_an_audit_refuses_is_refused_at_the_same_entry_while_it_comes(
    entries: list[Entry], at: int, seed: int
) -> None:
    """One entry is changed, and everything after it sealed anew: as by somebody who plays falsely from there on."""
    at %= len(entries)
    fields = twisted(list(entries[at].fields[1:]), random.Random(seed))
    if not isinstance(fields, list) or len(fields) != 6:
        return
    try:
        forged = reseal([*entries[:at], Entry(at, *fields), *entries[at + 1 :]])
    except (ValueError, TypeError):  # nothing that JSON can say
        return
    try:
        audit = audit_entries(forged, record=False)
    except MissingRuleError:
        return
    notary = Notary()
    try:
        for entry in forged:
            notary.take(entry)
    except LedgerError as refused:
        assert not audit.ok and str(refused) == audit.first_broken
        assert notary.audit.entries == audit.entries >= min(at, audit.entries)
        assert notary.audit.book is None or notary.audit.book.spent <= 30
    else:
        assert audit.ok or "held-back" in str(audit.first_broken)


def test_a_store_that_cannot_be_read_to_its_end_is_said() -> None:
    def torn() -> Iterator[Entry]:
        yield from LEDGERS[0][:3]
        raise RuntimeError("a bad disk")

    audit = audit_entries(torn())
    assert audit.entries == 3 and "a bad disk" in str(audit.first_broken)
