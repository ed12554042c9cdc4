"""What viewers of a job are sent: each gets all rounds after those that it has, however they came in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.service.http.resources import live as broadcaster
from databazaar.service.http.resources.live import Feed
from event_streams import parsed


def told(number: int) -> dict[str, Any]:
    return {"round": number, "utility": number / 2, "loss": float("inf") if number % 3 == 0 else 0.5}


def plainly(numbers: range, since: int) -> list[dict[str, Any]]:
    """The rounds that a viewer misses, as they are written down; browsers read no infinity."""
    missing = [told(number) for number in numbers if number > since]
    return [{**one, "loss": None if one["loss"] == float("inf") else one["loss"]} for one in missing]


def sent(feed: Feed, since: int) -> tuple[int, list[dict[str, Any]]]:
    """All that one viewer is sent now, and what it has then."""
    found: list[dict[str, Any]] = []
    while True:
        since, event = feed.after(since)
        if not event:
            return since, found
        lines = event.decode().splitlines()
        assert lines[0] == f"id: {since}" and event.endswith(b"\n\n")
        ((name, data),) = parsed([*lines, ""])
        rounds = json.loads(data)["rounds"]
        assert name == "rounds" and 0 < len(rounds) <= broadcaster.BATCH
        found += rounds


@given(st.lists(st.integers(0, 7), max_size=8), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 60)), max_size=8))
def test_every_viewer_gets_each_round_once(come: list[int], viewers: list[tuple[int, int]]) -> None:
    """`come` is how many rounds are read each time; a viewer comes at a time, and has so many rounds already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broadcaster, "BATCH", 4)
        feed, known = Feed("job"), 0
        got: dict[int, tuple[int, list[dict[str, Any]]]] = {}
        for moment, more in enumerate([*come, 0]):
            repeated = max(0, known - 1)  # what was read before is no news
            feed.take([told(number) for number in range(repeated + 1, known + more + 1)], None)
            known += more
            for place, (comes, has) in enumerate(viewers):
                if comes <= moment:
                    since, before = got.get(place, (has, []))
                    since, new = sent(feed, since)
                    got[place] = since, before + new
        for place, (since, rounds) in got.items():
            has = viewers[place][1]
            assert rounds == plainly(range(1, known + 1), has) and since == max(has, known)


def test_all_who_have_the_same_rounds_get_the_same_bytes() -> None:
    feed = Feed("job")
    feed.take([told(1), told(2)], {"state": "running"})
    assert feed.after(1)[1] is feed.after(1)[1]
    assert json.loads(feed.told.decode().splitlines()[1].removeprefix("data: ")) == {"state": "running"}
    before = feed.after(1)
    feed.take([told(3)], {"state": "running"})
    assert feed.after(1) != before and feed.after(1)[0] == 3
