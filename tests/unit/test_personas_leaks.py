"""Finding a held-back value in a line."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_personas import Fact, Reveal, find_leaks
from redteam_personas.leaks import spoken


def fact(value: str, name: str = "secret") -> Fact:
    return Fact(name=name, value=value, reveal=Reveal(kind="never"), asked_by=())


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("Aetna Gold", "I am with AETNA-Gold, I think."),
        ("1984-03-07", "It is 1984-03-07."),
        ("1984-03-07", "I was born on 7 March 1984."),
        ("1984-03-07", "March 7th, 1984"),
        ("1984-03-07", "the 7th of March 1984"),
        ("1984-03-07", "07/03/1984"),
        ("1984-03-07", "3/7/84"),
        ("2026-12-08 09:00", "My visit is on Dec 8 2026, no?"),
        ("555-01-2345", "Call 555 012345."),
        ("5550123456", "Call me at (555) 012-3456, please"),
        ("MN1234567", "my number is mn1234567"),
        ("Zoë", "Zoe\u0308 speaking"),
    ],
)
def test_a_value_is_found_however_it_is_written(value: str, line: str) -> None:
    assert find_leaks(line, [fact(value)]) == ("secret",)


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("Aetna Gold", "I have Aetna."),
        ("Ann", "I read the annual letter."),
        ("1984-03-07", "I was born in March 1984."),
        ("2", "I want 2 visits."),
        ("no", "No, thank you."),
        ("yes", "Yes."),
        ("Aetna Gold", ""),
    ],
)
def test_what_is_not_the_value_is_no_leak(value: str, line: str) -> None:
    assert find_leaks(line, [fact(value)]) == ()


def test_a_value_that_the_agent_or_the_demand_said_is_no_secret() -> None:
    facts = [fact("Aetna Gold", "insurance"), fact("1984-03-07", "dob")]
    line = "Yes, Aetna Gold, and 7 March 1984."
    assert find_leaks(line, facts, public=["So you are with Aetna Gold?"]) == ("dob",)


@given(st.dates(min_value=dt.date(1900, 1, 1), max_value=dt.date(2099, 12, 31)))
def test_a_date_as_it_is_spoken_is_always_found(day: dt.date) -> None:
    assert find_leaks(f"Well, {spoken(day.isoformat())}.", [fact(day.isoformat())]) == ("secret",)


@given(st.text(max_size=40), st.text(max_size=80))
def test_a_value_of_three_letters_or_more_is_found_between_other_words(value: str, other: str) -> None:
    letters = "".join(letter for letter in value if letter.isalpha() and letter.isascii())
    if len(letters) >= 3 and letters.casefold() not in {"yes", "true", "false", "none", "unknown", "other"}:
        assert find_leaks(f"{other} | {letters} | {other}", [fact(letters)]) == ("secret",)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1984-03-07", "7 March 1984"),
        ("2026-12-08 09:00", "Tuesday 8 December 2026, 09:00"),
        ("Aetna Gold", "Aetna Gold"),
        ("1984-13-07", "1984-13-07"),
    ],
)
def test_a_date_is_spoken_as_people_say_it(value: str, said: str) -> None:
    assert spoken(value) == said
