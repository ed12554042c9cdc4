"""Verdicts: when a provider is looked at, what flags and clears it, and that chance alone seldom does."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from databazaar.defence import Defence, Findings, Verdict, judge
from databazaar.defence.detector import CLEARED, COLUMNS, LEAK, NO_DATA, OPEN, UNKNOWN, DetectorState
from databazaar.defence.judge import FIRST_LOOK, LOOKS, doubted, leak_limit
from databazaar.roster import Roster

EVERY = Defence(owners=True, alike=0.7, leak=0.01, data=2.5)


def court_of(providers: int = 4, **columns: Any) -> DetectorState:
    new = DetectorState.new(Roster.equal(providers), owners=True)
    return replace(new, **{name: np.array(values) for name, values in columns.items()})


def verdicts_after(answers: int, defence: Defence = EVERY, **figures: Any) -> tuple[Verdict, ...]:
    """What is found of provider 2 with its next answer, after so many."""
    detector = court_of(answers=[0.0, 0.0, float(answers - 1), 0.0])
    lists: dict[str, Any] = {name: [figure] for name, figure in figures.items()}
    return judge(defence, detector, [2], [True], Findings(**lists)).verdicts


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_leak_is_looked_for_after_two_four_eight_answers(sign: float) -> None:
    limit = leak_limit(0.01, 4)
    found = [n for n in range(1, 70) if verdicts_after(n, leak=sign * (limit + 0.01))]
    assert found == [2, 4, 8, 16, 32, 64]
    assert verdicts_after(8, leak=sign * (limit - 0.01)) == ()
    assert verdicts_after(8, leak=sign * 9.0) == (Verdict(2, "leak", sign * 9.0, limit),)
    assert verdicts_after(8, replace(EVERY, leak=None), leak=9.0) == ()


def leaks(apart: list[float], answers: list[float], asked: list[int], standing: list[float]) -> list[int]:
    """Who is flagged when those asked answer once more as they did."""
    detector = court_of(len(apart), apart=apart, answers=answers, standing=standing)
    findings = Findings(leak=[apart[i] for i in asked])
    return [one.provider for one in judge(EVERY, detector, asked, [True] * len(asked), findings).verdicts]


def test_the_farthest_apart_is_flagged_first_and_then_only_who_gains_on_the_same_part() -> None:
    honest = [-5.0, -6.0, 9.0, 0.2]
    assert leaks(honest, [3.0] * 4, [0, 1, 2, 3], [OPEN] * 4) == [2]
    assert leaks(honest, [3.0] * 4, [0, 1], [OPEN] * 4) == [2]  # it is seen at others' looks
    assert leaks(honest, [3.0, 3.0, 4.0, 3.0], [2], [OPEN] * 4) == []  # but at no other time
    assert leaks(honest, [3.0] * 4, [0, 1], [OPEN, OPEN, LEAK, OPEN]) == []
    assert leaks([5.0, -6.0, 9.0, 7.0], [3.0] * 4, [0, 1, 2, 3], [OPEN] * 4) == [2, 3, 0]


def test_who_falls_silent_shields_nobody() -> None:
    """A provider that is far apart with its third answer, which is no look, and then never answers again."""
    assert leaks([20.0, -30.0, 0.0, 0.0], [3.0, 3.0, 0.0, 0.0], [0], [OPEN] * 4) == [1]
    assert leaks([20.0, 30.0, 0.0, 0.0], [3.0, 3.0, 0.0, 0.0], [0], [OPEN] * 4) == [1, 0]


@pytest.mark.parametrize("providers", [2, 20, 1000])
def test_the_chance_of_a_false_alarm_is_that_of_the_whole_market(providers: int) -> None:
    beyond = 2 * (1 - NormalDist().cdf(leak_limit(0.01, providers)))
    assert beyond * providers * LOOKS == pytest.approx(0.01, rel=1e-6)


def test_honest_providers_are_seldom_taken_for_leakers() -> None:
    """Gains that differ by chance alone, added up over answers: in 300 markets of 20 providers, 1 % may be wrong."""
    rng, flagged = np.random.default_rng(0), 0
    for _ in range(300):
        sums = np.cumsum(rng.normal(size=(20, 64)), axis=1)
        looks = 2 ** np.arange(1, 7)
        figures = sums[:, looks - 1] / np.sqrt(looks)
        flagged += bool((np.abs(figures) > leak_limit(0.01, 20)).any())
    assert flagged <= 9


def test_what_must_have_had_time_to_show_is_judged_from_eight_answers_on() -> None:
    clear: dict[str, Any] = {"signal": 1.0, "error": 0.3}
    assert [n for n in range(1, 40) if verdicts_after(n, **clear)] == [8, 16, 32]
    assert verdicts_after(8, **clear) == (Verdict(2, "cleared", 1.0 / 0.3, 2.5),)
    assert verdicts_after(8, signal=0.7, error=0.3) == ()
    assert verdicts_after(8, signal=0.03, error=0.03) == (Verdict(2, "no-data", 0.09, 0.1),)
    assert verdicts_after(8, signal=0.03, error=0.04) == ()
    assert verdicts_after(8, signal=1.0, error=0.0) == ()  # nothing is that sure
    assert verdicts_after(8, signal=1.0) == verdicts_after(8, error=1.0) == ()
    assert verdicts_after(8, replace(EVERY, data=None), **clear) == ()


def test_a_standing_rises_once_and_falls_for_good() -> None:
    eighth, sixteenth = ([0.0, 0.0, n - 1.0, 0.0] for n in (8, 16))
    clear, leak = Findings(signal=[1.0], error=[0.1]), Findings(leak=[9.0], signal=[1.0], error=[0.1])
    cleared = judge(EVERY, court_of(answers=eighth), [2], [True], clear).detector
    assert cleared.standing.tolist() == [0, 0, CLEARED, 0] and cleared.shown[2] == pytest.approx(10)
    again = judge(EVERY, replace(cleared, answers=np.array(sixteenth)), [2], [True], clear)
    assert again.verdicts == () and again.detector.standing[2] == CLEARED
    flagged = judge(EVERY, replace(cleared, answers=np.array(sixteenth)), [2], [True], leak)
    assert [one.what for one in flagged.verdicts] == ["leak"] and flagged.detector.standing[2] == LEAK
    later = judge(EVERY, replace(flagged.detector, answers=np.array([0.0, 0.0, 31.0, 0.0])), [2], [True], clear)
    assert (
        later.verdicts == () and later.detector.standing[2] == LEAK and later.detector.flagged.tolist() == [0, 0, 1, 0]
    )


def test_a_void_answer_is_no_answer_and_the_court_of_before_stays_as_it_was() -> None:
    before = court_of(answers=[1.0, 1.0, 1.0, 1.0])
    findings = Findings(leak=[99.0, 99.0])
    judged = judge(EVERY, before, [0, 3], [False, True], findings)
    assert [one.provider for one in judged.verdicts] == [3]
    assert judged.detector.answers.tolist() == [1, 1, 1, 2]
    assert before.answers.tolist() == [1, 1, 1, 1] and not before.flagged.any()


def test_those_who_are_alike_share_the_first_ones_arm_and_its_cost() -> None:
    detector = court_of(5, asked=[1.0, 2.0, 4.0, 8.0, 16.0])
    findings = Findings(alike=[(2, 4, 0.9), (0, 1, 0.69), (3, 4, 0.7), (2, 3, 0.99)])
    judged = judge(EVERY, detector, [], [], findings)
    assert judged.detector.arm.tolist() == [0, 1, 2, 2, 2]
    assert judged.detector.asked.tolist() == [1, 2, 28, 0, 0]
    assert judged.verdicts == (Verdict(4, "alike", 0.9, 0.7, 2), Verdict(4, "alike", 0.7, 0.7, 3))
    assert judged.detector.arms.tolist() == [0, 1, 2] and judged.detector.sharing.tolist() == [1, 1, 3, 3, 3]
    chain = judge(EVERY, judged.detector, [], [], Findings(alike=[(1, 4, 0.8)])).detector
    assert chain.arm.tolist() == [0, 1, 1, 1, 1] and chain.asked.tolist() == [1, 30, 0, 0, 0]
    assert judge(replace(EVERY, alike=None), detector, [], [], findings).verdicts == ()


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12))
def test_arms_are_the_connected_parts_whatever_the_order(pairs: list[tuple[int, int]]) -> None:
    wanted = [tuple(sorted(pair)) for pair in pairs if pair[0] != pair[1]]
    findings = Findings(alike=[(one, other, 1.0) for one, other in wanted])
    detector = judge(EVERY, court_of(8, asked=np.arange(8.0)), [], [], findings).detector
    parts = [{i} for i in range(8)]
    for one, other in wanted:
        joined = next(part for part in parts if one in part) | next(part for part in parts if other in part)
        parts = [part for part in parts if not part & joined] + [joined]
    assert detector.arm.tolist() == [min(next(part for part in parts if i in part)) for i in range(8)]
    assert detector.asked.sum() == 28
    assert all(detector.asked[min(part)] == sum(part) for part in parts)


@pytest.mark.parametrize(
    ("standing", "answers", "shown", "in_standard", "in_strict"),
    [
        (LEAK, 99, 9.0, True, True),
        (NO_DATA, 99, 0.0, True, True),
        (CLEARED, 99, 0.5, False, False),
        (OPEN, FIRST_LOOK - 1, UNKNOWN, False, True),
        (OPEN, 99, UNKNOWN, False, False),
        (OPEN, FIRST_LOOK, 0.9, True, True),
        (OPEN, FIRST_LOOK, 1.9, True, True),
        (OPEN, FIRST_LOOK, 2.1, False, False),
        (OPEN, FIRST_LOOK, 500.0, False, False),
    ],
)
def test_who_is_doubted_in_the_end(
    standing: float, answers: int, shown: float, in_standard: bool, in_strict: bool
) -> None:
    detector = court_of(1, standing=[standing], answers=[float(answers)], shown=[shown])
    assert doubted(EVERY, detector).tolist() == [in_standard]
    assert doubted(replace(EVERY, doubt=False), detector).tolist() == [in_strict]


@given(st.lists(st.floats(-1e6, 1e6), min_size=3 * COLUMNS, max_size=3 * COLUMNS))
def test_a_court_is_its_vector(numbers: list[float]) -> None:
    vector = np.array(numbers)
    vector[3:6], vector[6:9] = [0, 1, 2], [0, 1, 1]
    np.testing.assert_array_equal(DetectorState.of(vector).vector(), vector)
    assert not DetectorState.of(vector).plain


def test_owners_share_an_arm_from_the_start_where_that_is_a_rule() -> None:
    roster = Roster.of([("x", "ann", 1), ("y", "bob", 1), ("z", "ann", 1)])
    assert (
        DetectorState.new(roster, owners=True).arm.tolist()
        == DetectorState.new(roster, owners=True).owner.tolist()
        == [0, 1, 0]
    )
    assert DetectorState.new(roster, owners=False).plain and not DetectorState.new(roster, owners=True).plain


def judged_in_turn(
    detector: DetectorState, asked: list[int], **figures: float
) -> tuple[DetectorState, list[tuple[int, Verdict]]]:
    """The detector state after one answer of each of these, a round apiece, all with the same figures; and the
    verdicts, with the number of the answer."""
    found: list[tuple[int, Verdict]] = []
    for count, i in enumerate(asked, 1):
        lists: dict[str, Any] = {name: [figure] for name, figure in figures.items()}
        detector, verdicts, _ = judge(EVERY, detector, [i], [True], Findings(**lists))
        found += [(count, verdict) for verdict in verdicts]
    return detector, found


def court_of_two_owners() -> DetectorState:
    """Three providers of one owner, and one of another."""
    return DetectorState.new(
        Roster.of([("x", "ann", 1), ("y", "ann", 1), ("z", "ann", 1), ("w", "bob", 1)]), owners=True
    )


def test_answers_are_counted_by_owner_and_a_verdict_is_about_all_its_providers() -> None:
    clear: dict[str, float] = {"signal": 1.0, "error": 0.3}
    detector, found = judged_in_turn(court_of_two_owners(), [0, 1, 2, 0, 1, 2, 0, 1], **clear)
    assert [(count, one.provider, one.what) for count, one in found] == [(8, i, "cleared") for i in range(3)]
    assert detector.standing.tolist() == [CLEARED, CLEARED, CLEARED, OPEN] and detector.answers.tolist() == [3, 3, 2, 0]
    assert detector.shown.tolist() == [1.0 / 0.3] * 3 + [UNKNOWN]
    _, flagged = judged_in_turn(court_of_two_owners(), [0, 1, 2, 0, 1, 2, 0, 1], signal=0.0, error=0.01)
    assert [(count, one.provider, one.what) for count, one in flagged] == [(8, i, "no-data") for i in range(3)]
    detector, leaks = judged_in_turn(court_of_two_owners(), [2, 0], leak=9.0)
    assert [(count, one.provider, one.limit) for count, one in leaks] == [(2, i, leak_limit(0.01, 2)) for i in range(3)]
    assert detector.apart.tolist() == [9.0, 9.0, 9.0, 0.0] and detector.flagged.tolist() == [1, 1, 1, 0]


def test_a_new_id_of_a_doubted_owner_has_no_benefit_of_the_doubt() -> None:
    """One answer of each of eight ids: alone, each would have too few to be judged by."""
    detector = DetectorState.new(Roster.of([(f"p{i}", "ann", 1) for i in range(8)] + [("w", "bob", 1)]), owners=True)
    before, _ = judged_in_turn(detector, list(range(7)), signal=0.3, error=0.2)
    assert not doubted(EVERY, before).any()
    after, _ = judged_in_turn(detector, list(range(8)), signal=0.3, error=0.2)
    assert doubted(EVERY, after).tolist() == [True] * 8 + [False]


def test_those_merged_for_being_alike_share_no_evidence() -> None:
    """Else a copy of somebody's data could have the original flagged."""
    detector = court_of(3, answers=[7.0, 1.0, 7.0])
    detector = judge(EVERY, detector, [], [], Findings(alike=[(0, 2, 0.9)])).detector
    nothing = Findings(signal=[0.0], error=[0.01])
    after = judge(EVERY, detector, [2], [True], nothing).detector
    assert after.arm.tolist() == [0, 1, 0] and after.standing.tolist() == [OPEN, OPEN, NO_DATA]


def test_in_a_merger_the_owner_that_has_answered_most_keeps_what_was_held_back() -> None:
    """All of its providers do, and none of the other owner's."""
    alike = Findings(alike=[(0, 3, 0.9)])
    detector = replace(court_of_two_owners(), answers=np.array([2.0, 2.0, 2.0, 5.0]))
    assert judge(EVERY, detector, [], [], alike).shared == (3,)
    detector = replace(detector, answers=np.array([2.0, 2.0, 0.0, 5.0]))
    assert judge(EVERY, detector, [], [], alike).shared == (0, 1, 2)
