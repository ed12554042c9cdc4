"""The rules of the journal's entries, without a database: what may be posted, and what may follow what."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from databazaar.canonical import GENESIS, canonical, chained
from databazaar.client.journal import Hidden, JournalLine, JournalReplay, checked, fault_of, line_of, read_journal
from databazaar.errors import LedgerError, UncheckableError

FINE: list[tuple[str, str | None, dict[str, int]]] = [
    ("deposit:1", None, {"outside": -5, "cash:a": 5}),
    ("fund:j", "j", {"cash:a": -5, "escrow:j": 5}),
    ("close:j", "j", {"escrow:j": -5, "cash:a": 5}),
    ("close:j", "j", {"escrow:j": -5, "earned:b": 2, "earned:c": 1, "fees": 1, "cash:a": 1}),
    ("close:j", "j", {"escrow:j": -5, "fees": 5}),
    ("payout:1", None, {"earned:a": -1, "outside": 1}),
    ("withdraw:1", None, {"cash:a": -1, "outside": 1}),
]


@pytest.mark.parametrize(("key", "job", "moved"), FINE)
def test_what_may_be_posted(key: str, job: str | None, moved: dict[str, int]) -> None:
    kind = key.partition(":")[0]
    assert fault_of(kind, key, job, moved) is None
    assert fault_of(kind, key, job, dict(reversed(moved.items()))) is None


@pytest.mark.parametrize(
    ("kind", "key", "job", "moved", "fault"),
    [
        ("gift", "gift:1", None, {}, "there are no entries of the kind 'gift'"),
        ("deposit", "deposit", None, {}, "its key 'deposit' is not one of a deposit"),
        ("deposit", "deposits:1", None, {}, "its key 'deposits:1' is not one of a deposit"),
        ("deposit", "deposit:j", "j", {}, "its key 'deposit:j' is not one of a deposit"),
        ("fund", "fund:j", None, {}, "its key 'fund:j' is not one of a fund"),
        ("close", "close:j", None, {}, "its key 'close:j' is not one of a close"),
        ("fund", "fund:jj", "j", {}, "its key 'fund:jj' is not that of job j"),
        ("fund", "fund:j", "j", {"cash:a": -5, "escrow:k": 5}, "a fund of job j does not touch escrow:k"),
        ("deposit", "deposit:1", None, {"outside": -5, "escrow:j": 5}, "a deposit of job None does not touch escrow:j"),
        ("deposit", "deposit:1", None, {"outside": -5, "earned:a": 5}, "a deposit brings nothing to earned:a"),
        ("deposit", "deposit:1", None, {"outside": -5, "fees": 5}, "a deposit brings nothing to fees"),
        ("fund", "fund:j", "j", {"escrow:j": -5, "cash:a": 5}, "a fund takes nothing from escrow:j"),
        ("fund", "fund:j", "j", {"earned:a": -5, "escrow:j": 5}, "a fund takes nothing from earned:a"),
        ("close", "close:j", "j", {"escrow:j": -5, "outside": 5}, "a close brings nothing to outside"),
        ("close", "close:j", "j", {"escrow:j": -5, "cash:a": 5, "fees": 0}, "nothing is moved to fees"),
        ("close", "close:j", "j", {"escrow:j": -5, "cash:a": 6, "fees": -1}, "a close takes nothing from fees"),
        ("payout", "payout:1", None, {"cash:a": -1, "outside": 1}, "a payout takes nothing from cash:a"),
        ("withdraw", "withdraw:1", None, {"earned:a": -1, "outside": 1}, "a withdraw takes nothing from earned:a"),
        ("payout", "payout:", None, {"earned:a": -1, "cash:a": 1}, "a payout brings nothing to cash:a"),
        ("withdraw", "withdraw:1", None, {"cash:a": -2, "outside": 1}, "its postings sum to -1, and not to zero"),
        ("withdraw", "withdraw:1", None, {"cash:a": -1, "outside": 2}, "its postings sum to 1, and not to zero"),
        ("close", "close:j", "j", {}, "a close is between two accounts"),
        ("deposit", "deposit:1", None, {}, "a deposit is between two accounts"),
        ("payout", "payout:", None, {"earned:a": -1, "earned:b": -1, "outside": 2}, "a payout is between two accounts"),
        ("deposit", "deposit:1", None, {"outside": -2, "cash:a": 1, "cash:b": 1}, "a deposit is between two accounts"),
    ],
)  # fmt: skip
def test_what_may_not(kind: str, key: str, job: str | None, moved: dict[str, int], fault: str) -> None:
    assert fault_of(kind, key, job, moved) == fault


def chain(*drafts: tuple[str, str | None, dict[str, int]]) -> list[JournalLine]:
    head, entries = GENESIS, list[JournalLine]()
    for seq, (key, job, moved) in enumerate(drafts):
        draft = JournalLine(seq, key.partition(":")[0], key, job, "2026-01-01", moved, {}, "salt")
        head = chained(head, draft.content)
        entries.append(draft._replace(hash=head))
    return entries


STORY = chain(
    ("deposit:1", None, {"outside": -9, "cash:a": 9}),
    ("fund:j", "j", {"cash:a": -9, "escrow:j": 9}),
    ("close:j", "j", {"escrow:j": -9, "earned:b": 4, "fees": 2, "cash:a": 3}),
    ("payout:1", None, {"earned:b": -4, "outside": 4}),
    ("withdraw:1", None, {"cash:a": -3, "outside": 3}),
)


def test_a_replay_adds_up_what_it_takes() -> None:
    replay = JournalReplay()
    assert (replay.seq, replay.head, replay.postings, replay.balances) == (-1, GENESIS, 0, {})
    assert [replay.take(entry) for entry in STORY] == [None] * 5
    assert (replay.seq, replay.head, replay.postings) == (4, STORY[-1].hash, 12)
    assert replay.balances == {"outside": -2, "cash:a": 0, "escrow:j": 0, "earned:b": 0, "fees": 2}
    hidden = JournalReplay()
    assert [hidden.take(Hidden(one.seq, one.content, one.hash)) for one in STORY] == [None] * 5
    assert (hidden.seq, hidden.head, hidden.postings, hidden.balances) == (4, STORY[-1].hash, 0, {})
    assert list(checked(STORY)) == STORY


def fault_at_the_end(*drafts: tuple[str, str | None, dict[str, int]]) -> str:
    entries = chain(*drafts)
    with pytest.raises(LedgerError) as refused:
        list(checked(entries))
    begin = f"entry {len(entries) - 1} ({entries[-1].key}) should not be there: "
    assert str(refused.value).startswith(begin)
    return str(refused.value).removeprefix(begin)


IN = ("deposit:1", None, {"outside": -9, "cash:a": 9})
FUND = ("fund:j", "j", {"cash:a": -9, "escrow:j": 9})


def test_what_may_not_follow() -> None:
    assert fault_at_the_end(IN, IN) == "its key was used before"
    assert fault_at_the_end(IN, ("withdraw:1", None, {"cash:a": -10, "outside": 10})) == "cash:a would be at -1"
    assert fault_at_the_end(("fund:j", "j", {"cash:a": -9, "escrow:j": 9})) == "cash:a would be at -9"
    assert fault_at_the_end(IN, FUND, ("close:j", "j", {"escrow:j": -8, "fees": 8})) == "it leaves 1 in the escrow"
    other = ("close:j", "j", {"escrow:j": -9, "cash:b": 9})
    assert fault_at_the_end(IN, FUND, other) == "it refunds cash:b, and cash:a has funded the job"
    assert fault_at_the_end(IN, ("payout:1", None, {"earned:a": -1, "outside": 1})) == "earned:a would be at -1"
    wrong = ("fund:j", "j", {"cash:a": -9, "escrow:j": 8})
    assert fault_at_the_end(IN, wrong) == "its postings sum to -1, and not to zero"
    never = JournalReplay(balances={"escrow:j": 5})
    (close,) = chain(("close:j", "j", {"escrow:j": -5, "fees": 5}))
    assert never.take(close) == "entry 0 (close:j) should not be there: job j was never funded"


def test_entries_follow_each_other() -> None:
    for at in range(1, len(STORY)):
        replay = JournalReplay()
        taken = [replay.take(entry) for entry in (*STORY[: at - 1], STORY[at])]
        assert taken[-1] == f"{STORY[at]} comes where entry {at - 1} is due: entries were removed or moved"
        assert (replay.seq, replay.head) == (at - 2, STORY[at - 2].hash if at > 1 else GENESIS)
    for changed in ({"salt": "x"}, {"at": "x"}, {"body": {"x": 1}}, {"hash": "x"}, {"key": "deposit:2"}, {"job": "j"}):
        forged = STORY[0]._replace(**changed)
        fault = JournalReplay().take(forged)
        assert fault == f"{forged} does not follow from the entries before it: it was changed"


def test_a_line_holds_an_entry_and_the_content_is_what_the_format_says(tmp_path: Path) -> None:
    whole = JournalLine(3, "fund", "fund:é", "j", "now", {"b": -1, "a": 1}, {"z": 1.5, "a": None}, "salt", "hash")
    text = '[3,"fund","fund:é","j","now",{"a":1,"b":-1},{"a":null,"z":1.5},"salt"]'
    assert whole.content == hashlib.sha256(text.encode()).hexdigest()
    plain = whole._replace(job=None, body={})
    text = '[3,"fund","fund:é",null,"now",{"a":1,"b":-1},{},"salt"]'
    assert plain.content == hashlib.sha256(text.encode()).hexdigest()
    assert chained("ab", "cd") == hashlib.sha256(b"ab\ncd").hexdigest()
    assert (str(whole), str(Hidden(3, "", "")), plain._replace(hash="").hash) == ("entry 3 (fund:é)", "entry 3", "")
    lines: list[JournalLine | Hidden] = [whole, plain, Hidden(4, "content", "hash")]
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(line_of(one) + "\n" for one in lines), encoding="utf-8")
    assert list(read_journal(path)) == lines


@pytest.mark.parametrize("name", ["seq", "kind", "key", "job", "at", "postings", "body", "salt", "hash"])
def test_a_line_without_something_is_named(tmp_path: Path, name: str) -> None:
    given: dict[str, Any] = STORY[1]._asdict()
    del given[name]
    path = tmp_path / "journal.jsonl"
    path.write_text(line_of(STORY[0]) + "\n" + canonical(given) + "\n", encoding="utf-8")
    with pytest.raises(UncheckableError) as refused:
        list(read_journal(path))
    assert f"{path}, line 2 is no entry of a journal" in str(refused.value)
