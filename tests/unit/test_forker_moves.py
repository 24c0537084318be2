"""How far a world moves."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_forker.seeds.moves import weeks_between


@pytest.mark.parametrize(
    ("anchor", "today", "weeks"),
    [
        pytest.param(date(2026, 11, 30), date(2026, 11, 30), 0, id="same-day"),
        pytest.param(date(2026, 11, 30), date(2026, 12, 6), 0, id="sunday-of-the-same-iso-week"),
        pytest.param(date(2026, 11, 29), date(2026, 11, 30), 1, id="a-monday-begins-the-next-week"),
        pytest.param(date(2026, 12, 31), date(2027, 1, 3), 0, id="an-iso-week-over-new-year"),
        pytest.param(date(2026, 11, 30), date(2025, 11, 30), -53, id="backwards"),
    ],
)
def test_the_anchor_week_becomes_todays_week(anchor: date, today: date, weeks: int) -> None:
    assert weeks_between(anchor, today) == weeks


@given(st.dates(date(1990, 1, 1), date(2100, 1, 1)), st.dates(date(1990, 1, 1), date(2100, 1, 1)))
def test_the_moved_anchor_lies_in_todays_iso_week_on_its_own_weekday(anchor: date, today: date) -> None:
    moved = anchor + timedelta(weeks=weeks_between(anchor, today))
    assert moved.isocalendar()[:2] == today.isocalendar()[:2]
    assert moved.weekday() == anchor.weekday()
