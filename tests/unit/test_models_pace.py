"""Pace and breaker of a model: pure, on a clock that the tests move."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_harness.models.breaker import Breaker
from redteam_harness.models.chat import ModelFault
from redteam_harness.models.pace import Pace
from redteam_harness.models.waits import backoff_s

LONG = 1000.0


def _full(pace: Pace, now: float) -> int:
    """Start as many as may."""
    started = 0
    while pace.may_start(now):
        pace.started()
        started += 1
    return started


def test_it_rises_by_about_one_for_a_round_of_answers_up_to_the_ceiling() -> None:
    pace, seen = Pace(ceiling=8), []
    for now in range(60):
        seen.append(_full(pace, now))
        while pace.out:
            pace.answered(now)
    assert all(later - earlier in (0, 1) for earlier, later in pairwise(seen))
    assert (seen[0], seen[-1]) == (4, 8)


def test_it_does_not_rise_where_no_call_waits_for_it() -> None:
    pace = Pace(ceiling=50)
    for now in range(1000):
        pace.started()
        pace.answered(now)
    assert pace.limit == 4


def test_limits_met_by_calls_that_were_out_together_halve_it_once() -> None:
    pace = Pace(ceiling=16, limit=16.0)
    assert _full(pace, 0) == 16
    for _ in range(16):
        pace.limited(1, since=0, retry_after_s=None)
    assert pace.limit == 8
    pace.started()
    pace.limited(3, since=2, retry_after_s=None)
    assert pace.limit == 4


def test_an_api_that_asks_to_wait_is_left_alone_for_so_long() -> None:
    pace = Pace(ceiling=4)
    pace.started()
    pace.limited(10, since=9, retry_after_s=12)
    assert (pace.may_start(21.9), pace.held_s(20), pace.may_start(22)) == (False, 2, True)


def test_errors_of_the_server_only_stop_the_rise_for_a_while() -> None:
    pace = Pace(ceiling=9)
    pace.started()
    pace.failed(0)
    _full(pace, 1)
    while pace.out:
        pace.answered(1)
    assert pace.limit == 4
    _full(pace, LONG)
    pace.answered(LONG)
    assert pace.limit > 4


@given(st.lists(st.sampled_from(["start", "answer", "limit", "fail", "drop"]), max_size=200))
def test_whatever_happens_at_least_one_and_at_most_the_ceiling_may_be_out(steps: list[str]) -> None:
    pace, now = Pace(ceiling=6), 0.0
    for step in steps:
        now += 1
        if step == "start" and pace.may_start(now):
            pace.started()
        elif step != "start" and pace.out:
            match step:
                case "answer":
                    pace.answered(now)
                case "limit":
                    pace.limited(now, since=now - 1, retry_after_s=None)
                case "fail":
                    pace.failed(now)
                case "drop":
                    pace.dropped()
        assert 0 <= pace.out <= 6
        assert 1 <= pace.limit <= 6


def _open(faults: int = 5) -> Breaker:
    breaker = Breaker()
    for _ in range(faults):
        breaker.failed(0, probe=breaker.started())
    return breaker


def test_a_breaker_opens_after_faults_in_a_row_and_an_answer_between_starts_the_count_anew() -> None:
    breaker = _open(4)
    breaker.answered()
    breaker.failed(0, probe=False)
    assert breaker.may_start(0)
    assert not _open(5).may_start(0)


def test_an_open_breaker_lets_one_probe_through_at_a_time() -> None:
    breaker = _open()
    assert breaker.may_start(2)
    assert breaker.started()
    assert not breaker.may_start(LONG)
    breaker.answered()
    assert (breaker.may_start(2), breaker.opened_at, breaker.started()) == (True, None, False)


def test_a_probe_that_fails_doubles_the_pause_and_one_that_is_given_up_does_not() -> None:
    breaker = _open()
    breaker.failed(10, probe=breaker.started())
    assert breaker.held_s(10) == 4
    breaker.dropped(probe=breaker.started())
    assert breaker.may_start(14)
    assert breaker.opened_at == 0


def test_calls_that_went_out_before_it_opened_do_not_prolong_the_pause() -> None:
    breaker = _open()
    breaker.failed(1, probe=False)
    assert breaker.held_s(1) == 1


@pytest.mark.parametrize("tries", [1, 2, 5, 30])
def test_a_wait_grows_to_half_a_minute_and_what_the_api_asks_for_comes_first(tries: int) -> None:
    fault = ModelFault("x", kind="server")
    longest = min(30.0, 0.5 * 2 ** (tries - 1))
    assert longest / 2 <= backoff_s(fault, tries, Random(tries)) <= longest
    asked = ModelFault("x", kind="rate_limited", retry_after_s=12)
    assert 12 <= backoff_s(asked, tries, Random(tries)) <= 13.2
