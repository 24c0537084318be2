"""Personal data goes out of an import in every spelling, and the row that it belongs to is found."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from redteam_harness.exchange.personal import Replacements, read_replacements
from redteam_harness.exchange.recording import Degraded, recorded
from redteam_harness.exchange.rows import find_row
from redteam_personas import Cast, Persona
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MAPPING = {"Anna Kowalski": "Maria Lopez", "1984-03-07": "1971-01-02", "MN123456": "MN000001", "4471": "1001"}


def replaced(text: str, mapping: dict[str, str] | None = None) -> str:
    return Replacements(mapping or MAPPING).text(text)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("This is Anna Kowalski.", "This is Maria Lopez."),
        ("KOWALSKI, Anna (mother)", "Maria Lopez (mother)"),
        ("anna  kowalski's card", "Maria Lopez's card"),
        ("Born on the seventh of March, nineteen eighty-four!", "Born on the 1971-01-02!"),
        ("born 3/7/84, I think", "born 1971-01-02, I think"),
        ("It is M N one two three 456.", "It is MN000001."),
        ("mn-123-456", "MN000001"),
        ("customer 4471 called", "customer 1001 called"),
        ("four thousand four hundred and seventy-one", "1001"),
        ("Joanna Kowalskis and 44710 stay", "Joanna Kowalskis and 44710 stay"),
        ("nothing of that", "nothing of that"),
    ],
)
def test_a_value_is_replaced_however_it_is_written(text: str, becomes: str) -> None:
    assert replaced(text) == becomes


def test_a_part_of_a_number_in_words_is_another_number() -> None:
    assert replaced("twenty-one and twenty", {"20": "33"}) == "twenty-one and 33"


def test_the_longest_entry_wins_where_several_begin() -> None:
    assert replaced("Anna Kowalski and Anna", {"Anna": "Bea", "Anna Kowalski": "Maria Lopez"}) == (
        "Maria Lopez and Bea"
    )


def test_lines_arguments_results_errors_and_keys_are_replaced_and_counted() -> None:
    events: list[dict[str, Any]] = [
        {"kind": "user", "text": "I am Anna Kowalski."},
        {"kind": "tool_call", "call": "a", "name": "find", "arguments": {"who": ["anna kowalski", 4471]}},
        {
            "kind": "tool_result",
            "call": "a",
            "value": {"Anna Kowalski": {"born": "1984-03-07", "id": 4471.5}},
        },
        {"kind": "tool_call", "call": "b", "name": "find", "arguments": {}},
        {"kind": "tool_error", "call": "b", "type": "Gone", "message": "no Kowalski, Anna"},
        {"kind": "external", "name": "sms", "arguments": {"to": "Anna Kowalski"}, "result": True},
        {"kind": "agent", "text": "Thank you, Anna Kowalski."},
    ]
    replacements = Replacements({**MAPPING, "Zoe Zed": "Yan Yu"})
    found = replacements.recording(recorded("c", events))
    assert found.events[1]["arguments"] == {"who": ["Maria Lopez", 1001]}
    assert found.events[2]["value"] == {"Maria Lopez": {"born": "1971-01-02", "id": 4471.5}}
    assert found.events[4]["message"] == "no Maria Lopez"
    assert found.events[5]["result"] is True
    assert "kowalski" not in str(found.events).casefold()
    assert replacements.counts == [6, 1, 0, 1, 0]
    assert replacements.unused == [3, 5]


def test_what_stands_within_longer_words_is_told_and_stays() -> None:
    replacements = Replacements({"Kowalski": "Lopez"})
    assert replacements.text("annakowalski84") == "annakowalski84"
    assert (replacements.unused, replacements.inside) == ([1], [1])
    assert replacements.text("Kowalski of annakowalski84") == "Lopez of annakowalski84"
    assert (replacements.unused, replacements.inside) == ([], [1])


def test_two_keys_that_become_one_are_refused() -> None:
    with pytest.raises(Degraded, match="same"):
        Replacements({"Anna": "Maria"}).value({"Anna": 1, "Maria": 2})


def test_a_mapping_is_read_as_it_is_written(tmp_path: Path) -> None:
    yaml, csv = tmp_path / "map.yaml", tmp_path / "map.csv"
    yaml.write_text("0171: '0999'\n1984-03-07: 1971-01-02\nNo: Nora\n", encoding="utf-8")
    csv.write_text('from,to\n0171,0999\n1984-03-07,1971-01-02\n"No","Nora"\n', encoding="utf-8")
    for path in (yaml, csv):
        assert read_replacements(path).text("0171, 7 March 1984, No") == "0999, 1971-01-02, Nora"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.yaml", "- Secret Name\n"),
        ("m.yaml", "Secret Name: {a: b}\n"),
        ("m.yaml", "Secret Name: ''\n"),
        ("m.yaml", "'!!': x\n"),
        ("m.yaml", "Secret Name: [\n"),
        ("m.yaml", "Secret Name: a\nSecret Name: b\n"),
        ("m.csv", "Secret Name\n"),
        ("m.csv", "from,to\n"),
    ],
)
def test_a_mapping_that_is_none_is_refused_without_its_contents(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_replacements(path)
    assert "Secret" not in str(caught.value)


# Rows ----------------------------------------------------------------------------------------------------

BORN = dt.date(1984, 3, 7)
ROWS = [
    {"id": 1207, "full_name": "Anna Kowalski", "born": BORN, "plan": "Aetna", "next_name": "Bo Lund"},
    {"id": 1208, "full_name": "Bo Lund", "born": dt.date(1990, 5, 5), "plan": "Aetna", "next_name": None},
    {"id": 1209, "full_name": "Anna Kowalski", "born": dt.date(1999, 9, 9), "plan": None, "next_name": None},
]
CAST = Cast(
    columns=tuple(ROWS[0]),
    personas=tuple(Persona(key=str(row["id"]), row=row) for row in ROWS),
    members={},
)


def row_of(text: str, **arguments: Any) -> tuple[str | None, list[str], list[str]]:
    events: list[dict[str, Any]] = [{"kind": "user", "text": text}]
    if arguments:
        events += [
            {"kind": "tool_call", "call": "a", "name": "find", "arguments": arguments},
            {"kind": "tool_result", "call": "a", "value": {"all": [row["full_name"] for row in ROWS]}},
        ]
    found = find_row(recorded("c", [*events, {"kind": "agent", "text": "Hello, Bo Lund!"}]), CAST)
    by = list(found.one.told) if found.one else []
    return (found.one.persona.key if found.one else None), by, [one.persona.key for one in found.candidates]


def test_a_row_is_found_by_what_singles_it_out() -> None:
    assert row_of("Anna Kowalski, born the 7th of March 1984")[:2] == ("1207", ["full_name", "born"])
    assert row_of("My number is 1208.")[:2] == ("1208", ["id"])
    assert row_of("Hello", patient=1209)[:2] == ("1209", ["id"])


def test_a_row_is_never_guessed() -> None:
    assert row_of("This is Anna Kowalski.") == (None, [], ["1207", "1209"])
    assert row_of("I am with Aetna.") == (None, [], ["1207", "1208"])
    assert row_of("Hello.") == (None, [], [])
    # What is another row's neighbour is not enough to tell them apart.
    assert row_of("This is Bo Lund.")[0] is None
    assert row_of("Bo Lund, 5 May 1990")[0] == "1208"


def test_a_year_that_is_said_is_nobodys_number_and_what_many_have_names_nobody() -> None:
    rows = [
        {"id": number, "name": f"Person {number}x", "wish": "an appointment"} for number in range(1900, 2030)
    ]
    cast = Cast(
        columns=("id", "name", "wish"),
        personas=tuple(Persona(key=str(row["id"]), row=row) for row in rows),
        members={},
    )
    events: list[dict[str, Any]] = [
        {"kind": "user", "text": "Person 1907x here. I want an appointment on 8 December 2026."},
        {"kind": "tool_call", "call": "a", "name": "find", "arguments": {"on": "2026-12-08", "who": 1907}},
        {"kind": "tool_result", "call": "a", "value": None},
        {"kind": "agent", "text": "Yes."},
    ]
    found = find_row(recorded("c", events), cast)
    assert found.one is not None
    assert (found.one.persona.key, dict(found.one.told)) == ("1907", {"id": "1907", "name": "Person 1907x"})
    assert len(found.candidates) == 1


def test_what_a_tool_answers_names_nobody() -> None:
    assert row_of("Hello", query="all") == (None, [], [])
