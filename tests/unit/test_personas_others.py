"""Lines that tell what only another row of the cast could."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_personas import Others, Persona


def person(key: int, name: str, born: str, insurance: str, number: str | None) -> Persona:
    row = {
        "id": key,
        "name": name,
        "born": dt.date.fromisoformat(born),
        "insurance": insurance,
        "number": number,
    }
    return Persona(key=str(key), row=row)


CAST = [
    person(1, "Ada Lindqvist", "1984-03-07", "Aetna", "MN 100 2001"),
    person(2, "Bo Ek", "1990-12-24", "Aetna", "MN 100 2002"),
    person(3, "Cy Dahl", "1971-06-01", "Humana", None),
    person(4, "Di Ny Berg", "1960-01-31", "Aetna", "7001234567"),
]
OTHERS = Others(CAST, ["name", "born", "insurance", "number"])


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        ("I am Bo Ek.", ("name",)),
        ("It is di ny berg speaking", ("name",)),
        ("Born on the twenty-fourth of December, 1990.", ("born",)),
        ("12/24/90", ("born",)),
        ("My number is mn1002002.", ("number",)),
        ("M N one zero zero two zero zero two", ("number",)),
        ("It is 700-123-4567.", ("number",)),
        ("Bo Ek, 24 December 1990", ("born", "name")),
    ],
)
def test_another_rows_data_is_found_with_its_column(line: str, columns: tuple[str, ...]) -> None:
    assert tuple(sorted(OTHERS.told_in(line, by=CAST[0]))) == columns


@pytest.mark.parametrize(
    "line",
    [
        "",
        "I am Ada Lindqvist, born on 7 March 1984, number MN1002001.",
        "My friend Bo told me.",
        "I am with Humana.",
        "On 24 December I have time.",
        "Number 1002003, please.",
    ],
)
def test_its_own_data_and_what_may_be_anybodys_is_not(line: str) -> None:
    assert OTHERS.told_in(line, by=CAST[0]) == ()


def test_what_was_said_to_it_is_not() -> None:
    assert OTHERS.told_in("No, not Bo Ek.", by=CAST[0], public=["Are you Bo Ek?"]) == ()


def test_a_value_that_is_in_its_own_row_is_not_whatever_the_column() -> None:
    mentions = Persona(key="1", row={**CAST[0].row, "friend": "Bo Ek"})
    assert OTHERS.told_in("I call for Bo Ek.", by=mentions) == ()


def test_a_column_that_many_share_and_one_that_is_no_fact_are_not_looked_at() -> None:
    cast = [person(n, f"Max Muster{n % 5}", "1980-01-01", "Aetna", f"MN{n:06}") for n in range(20)]
    assert Others(cast, ["name"]).told_in("I am Max Muster1.", by=cast[0]) == ()
    assert Others(cast, ["name"]).told_in("It is MN000003.", by=cast[0]) == ()
    assert Others(cast, ["number"]).told_in("It is MN000003.", by=cast[0]) == ("number",)


@given(
    st.lists(st.from_regex(r"[A-Z]{2}[0-9]{6}", fullmatch=True), min_size=2, max_size=6, unique=True),
    st.data(),
)
def test_a_value_of_one_row_alone_is_found_in_every_other_mouth_and_not_in_its_own(
    numbers: list[str], data: st.DataObject
) -> None:
    cast = [Persona(key=str(n), row={"number": number}) for n, number in enumerate(numbers)]
    speaker, owner = data.draw(st.sampled_from(cast)), data.draw(st.sampled_from(cast))
    told = Others(cast, ["number"]).told_in(f"It is {owner.row['number']}.", by=speaker)
    assert told == (() if speaker is owner else ("number",))
