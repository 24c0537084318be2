"""Reveal rules, facts, and values as text."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pytest
from pydantic import TypeAdapter, ValidationError

import redteam_personas
from redteam_personas import FactSpec, Reveal
from redteam_personas.persona import default_asked_by, value_text

FACTS = TypeAdapter(dict[str, FactSpec])


@pytest.mark.parametrize(
    ("text", "rule", "turn", "asks"),
    [
        ("at once", Reveal(kind="at once"), 1, None),
        ("at turn 3", Reveal(kind="at turn", number=3), 3, None),
        ("when asked", Reveal(kind="when asked"), None, 1),
        ("when pressed", Reveal(kind="when pressed", number=1), None, 2),
        ("when pressed twice", Reveal(kind="when pressed", number=2), None, 3),
        ("When  Pressed 4 times", Reveal(kind="when pressed", number=4), None, 5),
        ("never", Reveal(kind="never"), None, None),
    ],
)
def test_a_reveal_rule_means_a_turn_or_a_number_of_questions(
    text: str, rule: Reveal, turn: int | None, asks: int | None
) -> None:
    parsed = Reveal.parse(text)
    assert (parsed, parsed.turn, parsed.asks) == (rule, turn, asks)
    assert Reveal.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text", ["", "always", "at turn 0", "at turn", "when pressed 0 times", "when asked twice"]
)
def test_an_unknown_reveal_rule_lists_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="at once \\| at turn N"):
        Reveal.parse(text)


def test_a_fact_is_written_short_or_as_a_mapping() -> None:
    facts = FACTS.validate_python(
        {"full_name": "at once", "dob": {"reveal": "when asked", "asked_by": ["birth", "dob"]}}
    )
    assert facts == {
        "full_name": FactSpec(reveal=Reveal(kind="at once")),
        "dob": FactSpec(reveal=Reveal(kind="when asked"), asked_by=("birth", "dob")),
    }


@pytest.mark.parametrize(
    ("data", "loc"),
    [
        ({"dob": "whenever"}, ("dob", "reveal")),
        ({"dob": {"reveal": 3}}, ("dob", "reveal")),
        ({"dob": {"reveal": "never", "asked_bye": []}}, ("dob", "asked_bye")),
        ({"dob": {"reveal": "never", "asked_by": ["a", ""]}}, ("dob", "asked_by", 1)),
    ],
)
def test_a_wrong_fact_is_refused_at_its_key(data: object, loc: tuple[object, ...]) -> None:
    with pytest.raises(ValidationError) as refusal:
        FACTS.validate_python(data)
    assert [error["loc"] for error in refusal.value.errors()] == [loc]


def test_a_fact_is_asked_for_by_its_name_and_by_what_people_say() -> None:
    assert default_asked_by("member_number") == ("member number",)
    assert {"date of birth", "dob"} <= set(default_asked_by("date_of_birth"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("  ", None),
        ([], None),
        (" Ada ", "Ada"),
        (dt.date(1984, 3, 7), "1984-03-07"),
        (dt.datetime(2026, 12, 8, 9, 0), "2026-12-08 09:00"),  # noqa: DTZ001 - a timestamp without time zone
        (dt.datetime(2026, 12, 8, 9, 0, 30, tzinfo=dt.UTC), "2026-12-08 09:00:30+00:00"),
        (dt.time(9, 5), "09:05"),
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (Decimal("10.50"), "10.50"),
        (["a", None, 2], "a, 2"),
        ({"b": 1, "a": "é"}, '{"a": "é", "b": 1}'),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x01\xff", "01ff"),
    ],
)
def test_a_value_becomes_text_for_people(value: object, text: str | None) -> None:
    assert value_text(value) == text


def test_the_room_exports_what_it_lists_in_order() -> None:
    assert redteam_personas.__all__ == sorted(redteam_personas.__all__)
    assert [name for name in redteam_personas.__all__ if not hasattr(redteam_personas, name)] == []
