from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_harness.launch.plan import plan, repeated
from redteam_personas import Persona
from redteam_sdk.errors import UsageError

CAST = {
    "first-visit": tuple(Persona(key=str(key), row={"id": key}) for key in range(5)),
    "cancel": tuple(Persona(key=str(key), row={"id": key}) for key in range(100, 103)),
}
WEIGHTS = {case: {"cooperative": 2, "confused": 1, "evasive": 1} for case in [*CAST, "empty"]}


@given(small=st.integers(1, 40), more=st.integers(0, 40), draw=st.integers())
def test_a_larger_count_begins_with_the_conversations_of_a_smaller_one(
    small: int, more: int, draw: int
) -> None:
    larger = plan(CAST, WEIGHTS, count=small + more, draw=draw)
    assert plan(CAST, WEIGHTS, count=small, draw=draw) == larger[:small]


def test_cases_and_dispositions_are_covered_as_their_weights_say() -> None:
    planned = plan(CAST, WEIGHTS, count=40, draw=1)
    assert Counter(one.case for one in planned) == {"first-visit": 20, "cancel": 20}
    assert Counter(one.disposition for one in planned) == {"cooperative": 20, "confused": 10, "evasive": 10}


def test_nobody_plays_twice_before_everybody_of_the_case_played_once() -> None:
    planned = [one for one in plan(CAST, WEIGHTS, count=10, draw=7) if one.case == "first-visit"]
    assert sorted(one.persona.key for one in planned) == ["0", "1", "2", "3", "4"]


def test_another_draw_deals_other_people() -> None:
    first, second = ([one.persona.key for one in plan(CAST, WEIGHTS, count=10, draw=draw)] for draw in (1, 2))
    assert first != second


def test_ids_and_seeds_are_distinct() -> None:
    planned = plan(CAST, WEIGHTS, count=1200, draw=1)
    assert len({one.id for one in planned}) == len({one.seed for one in planned}) == 1200


def test_a_case_that_nobody_fits_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="case 'empty': no row of the cast fits its `who`"):
        plan({**CAST, "empty": ()}, WEIGHTS, count=3, draw=1)


def test_a_disposition_without_weight_never_plays() -> None:
    planned = plan(CAST, {case: {"cooperative": 1, "angry": 0} for case in CAST}, count=30, draw=1)
    assert {one.disposition for one in planned} == {"cooperative"}


@given(repeat=st.integers(1, 4), more=st.integers(0, 3))
def test_repetitions_have_the_same_person_and_an_id_and_a_seed_of_their_own(repeat: int, more: int) -> None:
    once = plan(CAST, WEIGHTS, count=12, draw=1)
    held = repeated(once, repeat + more)
    assert held[: 12 * repeat] == repeated(once, repeat)
    assert held[:12] == once
    assert len({one.id for one in held}) == len({one.seed for one in held}) == len(held)
    for number, one in enumerate(held):
        first = once[number % 12]
        assert one.repetition == number // 12 + 1
        assert (one.case, one.persona, one.disposition) == (first.case, first.persona, first.disposition)


def test_everything_is_planned_once_before_anything_is_planned_again() -> None:
    held = repeated(plan(CAST, WEIGHTS, count=2, draw=1), 3)
    assert [one.id for one in held] == ["c001", "c002", "c001.2", "c002.2", "c001.3", "c002.3"]
