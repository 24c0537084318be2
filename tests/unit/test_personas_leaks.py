"""Finding a held-back value in a line."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redteam_personas import Fact, Reveal, find_leaks
from redteam_personas.spellings import fold, spoken


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
        ("Zoë Kühn", "It is Zoe Kuhn."),
        ("Ada Lindqvist", "Lindqvist, Ada"),
        ("Ada Lindqvist", "A-d-a L-i-n-d-q-v-i-s-t"),
        ("Ada Lindqvist", "I am ada\u200b lind\u200bqvist"),
        ("Aetna Gold", "AetnaGold"),
        ("1984-03-07", "the seventh of March, nineteen eighty-four"),
        ("1984-03-07", "March the seventh nineteen hundred and eighty four"),
        ("1984-03-07", "1984, March 7"),
        ("1984-03-07", "19840307"),
        ("1984-03-07", "07.03.84"),
        ("1984-03-07", "on Wednesday, the 7th day of Mar '84"),
        ("2006-11-30", "thirty November two thousand and six"),
        ("2006-11-30", "November thirtieth, twenty oh six"),
        ("2026-12-21", "the twenty-first of December twenty twenty six"),
        ("1250.50", "It was $1,250.50."),
        ("1250.50", "It was 1.250,50 euros."),
        ("1250.50", "1250.5, I think"),
        ("1200", "twelve hundred"),
        ("1200", "one thousand two hundred of them"),
        ("1200", "1.2k"),
        ("240000", "240 000"),
        ("MN1234567", "M N 123-4567"),
        ("MN1234567", "mn one two three four five six seven"),
        ("MN1055567", "MN one oh double five five six seven"),
        ("AB-12-34", "AB1234"),
        ("L-1001", "card l 1001"),
        ("1207", "one two zero seven"),
        ("555-01-2345", "five five five, oh one, two three four five"),
        ("+1 555 012 3456", "1-555-012-3456"),
        ("ada.l@example.org", "ada dot l at example dot org"),
        ("ada.l@example.org", "ADA.L@EXAMPLE.ORG"),
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
        ("Aetna Gold", "Gold is what Aetna sells."),
        ("1984-03-07", "I came on 7 March."),
        ("1984-03-07", "7 April 1984, or 8 March 1984"),
        ("1984-03-07", "at 7, or 3, for 84 people"),
        ("1250.50", "1250"),
        ("1200", "twelve of the hundred"),
        ("MN1234567", "MN123456"),
        ("MN1234567", "MN12345678"),
        ("L-1001", "all 1001 of them"),
        ("5550123456", "555 012 345"),
        ("100", "I have waited 1000 minutes."),
        ("one", "One moment."),
    ],
)
def test_what_is_not_the_value_is_no_leak(value: str, line: str) -> None:
    assert find_leaks(line, [fact(value)]) == ()


def test_a_value_that_the_agent_or_the_demand_said_is_no_secret() -> None:
    facts = [fact("Aetna Gold", "insurance"), fact("1984-03-07", "dob")]
    line = "Yes, Aetna Gold, and 7 March 1984."
    assert find_leaks(line, facts, public=["So you are with Aetna Gold?"]) == ("dob",)


@settings(deadline=None)  # the machine may be busy
@given(st.dates(min_value=dt.date(1900, 1, 1), max_value=dt.date(2099, 12, 31)))
def test_a_date_as_it_is_spoken_is_always_found(day: dt.date) -> None:
    assert find_leaks(f"Well, {spoken(day.isoformat())}.", [fact(day.isoformat())]) == ("secret",)


@given(st.dates(min_value=dt.date(1900, 1, 1), max_value=dt.date(2099, 12, 31)), st.integers(0, 6))
def test_a_date_is_found_in_every_common_form_and_another_date_is_not(day: dt.date, form: int) -> None:
    written = (
        f"{day:%B} {day.day}, {day.year}",
        f"{day.day} {day:%b} {day.year}",
        f"{day:%d/%m/%Y}",
        f"{day:%m/%d/%y}",
        f"{day:%Y%m%d}",
        f"{day:%d.%m.%Y}",
        f"the {day.day}th of {day:%B}, {day.year}",
    )[form]
    assert find_leaks(f"Well, {written}.", [fact(day.isoformat())]) == ("secret",)
    other = day + dt.timedelta(days=40)
    assert find_leaks(f"Well, {written}.", [fact(other.isoformat())]) == ()


@given(st.integers(100, 9_999_999), st.sampled_from(["{:,}", "{}", "{}.00", "{: >12}"]))
def test_a_number_is_found_in_figures_however_they_are_grouped(number: int, form: str) -> None:
    assert find_leaks(f"It is {form.format(number)}, yes.", [fact(str(number))]) == ("secret",)
    assert find_leaks(f"It is {form.format(number)}, yes.", [fact(str(number + 1))]) == ()


@given(st.from_regex(r"[A-Z]{1,3}[0-9]{5,9}", fullmatch=True), st.data())
def test_an_id_is_found_wherever_it_is_broken_up(value: str, data: st.DataObject) -> None:
    letters = "".join(each + data.draw(st.sampled_from(["", "", " ", "-", ". "])) for each in value)
    assert find_leaks(f"number {letters} ok", [fact(value)]) == ("secret",)


@given(st.text(max_size=80), st.text(max_size=30))
def test_any_text_can_be_searched_for_any_value(text: str, value: str) -> None:
    assert find_leaks(text, [fact(value)]) in ((), ("secret",))
    if sum(map(str.isalnum, value)) >= 3 and find_leaks(value, [fact(value)]):
        assert find_leaks(f"| {value} |", [fact(value)]) == ("secret",)


@given(st.text(max_size=40), st.text(max_size=80))
def test_a_value_of_three_letters_or_more_is_found_between_other_words(value: str, other: str) -> None:
    letters = "".join(letter for letter in value if letter.isalpha() and letter.isascii())
    if fold(letters)[:1] != (letters.casefold(),):
        return  # a number in words is its figures: "forty" is as short as 40
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
