"""Codes and their sentences: ledgers hold codes alone, and wording is free to change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar import Arbiter, NoProgress, Provider, TargetUtility, Uniform, codes
from databazaar.codes import SENTENCES, Code
from databazaar.ledger import Entry, Ledger, audit_entries
from databazaar.market.loop import play
from databazaar.runs.close import close_run
from databazaar.runs.folder import RunFolder
from defended_markets import play as scripted_play
from defended_markets import scripted, scripted_rules
from forging import reseal
from records import record_of
from small_markets import vector_market

SOURCES = sorted(Path(codes.__file__).parent.rglob("*.py"))
FREE = {"text", "market", "consumer", "environment", "providers"}
"""What holds words of other people, or names."""


def moody(w: np.ndarray) -> Any:
    """Answers well, badly and not at all, by the parameters alone."""
    choice = int(abs(float(np.abs(w).sum()) * 1e6)) % 4
    if choice == 0:
        raise ValueError("no rows today")
    return w[:-1] if choice == 1 else w * np.nan if choice == 2 else -w


def market(**more: Any) -> Arbiter:
    consumer, providers = vector_market(budget=90, per_round=3)
    odd = [Provider("moody", oracle=moody), Provider("list", oracle=lambda w: w.tolist())]
    return Arbiter(consumer, [*providers, *odd], Uniform(), engine="loop", seed=5, **more)


def entries_of(arbiter: Arbiter) -> list[Entry]:
    ledger = Ledger(arbiter.rules)
    play(arbiter.begin(ledger), arbiter.engine)
    return list(ledger.store.entries())


def nobody_answers() -> Arbiter:
    consumer, _ = vector_market(budget=90, per_round=3)
    return Arbiter(consumer, [Provider("mute", oracle=lambda w: w[:0])], engine="loop", patience=4)


def capped() -> Arbiter:
    consumer, providers = vector_market(budget=90)
    return Arbiter(consumer, [replace(one, most_accesses=3) for one in providers], engine="loop")


def defended() -> list[Entry]:
    rules = scripted_rules()
    ledger = Ledger(rules)
    scripted_play(rules, scripted, ledger)
    return list(ledger.store.entries())


LEDGERS: dict[str, Callable[[], list[Entry]]] = {
    "budget": lambda: entries_of(market()),
    "target": lambda: entries_of(market(stops=[TargetUtility(0.1)])),
    "no progress": lambda: entries_of(market(stops=[NoProgress(rounds=6)])),
    "limits": lambda: entries_of(capped()),
    "defence": defended,
    "nobody": lambda: entries_of(nobody_answers()),
}


@pytest.fixture(params=sorted(LEDGERS))
def entries(request: pytest.FixtureRequest) -> list[Entry]:
    return LEDGERS[request.param]()


def reworded(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in enumerate(SENTENCES):
        monkeypatch.setitem(SENTENCES, name, f"quite other words, number {place}")


def test_any_sentence_may_change_and_a_ledger_is_what_it_was(
    entries: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = audit_entries(entries)
    assert before.ok and before.closed, before.message
    reworded(monkeypatch)
    after = audit_entries(entries)
    assert after.ok and after.head == before.head == entries[-1].hash
    assert record_of(after).rounds == record_of(before).rounds and after.closing == before.closing


def test_played_again_with_other_words_it_is_the_same_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {name: make()[-1].hash for name, make in LEDGERS.items()}
    reworded(monkeypatch)
    assert {name: make()[-1].hash for name, make in LEDGERS.items()} == first


def test_a_folder_is_audited_as_before_whatever_the_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(progress: Any) -> None:
        if progress.round == 2:
            raise KeyboardInterrupt

    market().run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        market().run(tmp_path / "closed", tell=stop)
    close_run(tmp_path / "closed")
    heads = {name: RunFolder(tmp_path / name).audit().head for name in ("whole", "closed")}
    reworded(monkeypatch)
    for name, head in heads.items():
        found = RunFolder(tmp_path / name).audit(head)
        assert found.ok and "other words" in RunFolder(tmp_path / name).report().message, found.message


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in FREE:
                yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def test_no_hashed_body_holds_a_sentence(entries: list[Entry]) -> None:
    found = {text for entry in entries for text in texts(entry.body)}
    assert found and not [text for text in found if " " in text]


def test_reasons_of_all_kinds_are_there() -> None:
    """Else the tests above would say little."""
    all_entries = [entry for make in LEDGERS.values() for entry in make()]
    voids = {entry.reason.name for entry in all_entries if entry.reason is not None}
    stops = {entry.body["stop"]["reason"]["code"] for entry in all_entries if entry.kind == "close"}
    assert {"oracle-raised", "update-shape", "update-type", "not-finite", "quarantined"} <= voids
    assert stops == {"budget-spent", "target-reached", "no-progress", "nobody-can-be-asked", "no-valid-reply"}


@pytest.mark.parametrize("reason", ["the reply failed", None, {}, {"code": "No Answer"}, {"code": "x", "y": [1]}])
def test_a_void_without_a_code_is_refused(reason: Any) -> None:
    entries = LEDGERS["budget"]()
    at = next(place for place, entry in enumerate(entries) if entry.kind == "void")
    forged = reseal([*entries[:at], entries[at]._replace(body={"reason": reason}), *entries[at + 1 :]])
    assert "a void needs a code for its reason" in audit_entries(forged).message
    paid = next(place for place, entry in enumerate(entries) if entry.kind == "post")
    forged = reseal([*entries[:paid], entries[paid]._replace(body=entries[at].body), *entries[paid + 1 :]])
    assert "a void needs a code for its reason" in audit_entries(forged).message


VALUES = st.text(max_size=5) | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.none()
NAMES = st.from_regex(r"[a-z]{1,5}(-[a-z0-9]{1,3})?", fullmatch=True)


@given(NAMES, st.dictionaries(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), VALUES, max_size=3))
def test_a_code_comes_back_and_always_has_a_sentence(name: str, params: dict[str, Any]) -> None:
    params.pop("code", None)
    code = Code.of(name, **params)
    assert Code.read(code.body()) == code and hash(Code.read(code.body())) == hash(code)
    assert str(code).strip()


@pytest.mark.parametrize("name", sorted(SENTENCES))
def test_a_known_code_with_somebody_elses_parameters_has_a_sentence(name: str) -> None:
    strange: list[dict[str, Any]] = [{}, {"figure": "x"}, {"why": "No Code"}, {"providers": None, "used_up": "many"}]
    assert all(str(Code.of(name, **params)) for params in strange)


def test_every_code_of_ours_is_in_the_catalogue() -> None:
    used = {name for path in SOURCES for name in re.findall(r'\bCode(?:\.of)?\(\s*"([^"]+)"', path.read_text())}
    used -= {"storm"}  # of the doctest: nobody knows it
    assert used and used <= SENTENCES.keys()
