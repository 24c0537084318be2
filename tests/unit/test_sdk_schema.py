"""A tool's signature tells a model what to send, and what it sends becomes what the tool takes."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional
from uuid import UUID

import pytest

from redteam_sdk.errors import UsageError
from redteam_sdk.tool import InvalidArguments, convert_arguments, schema, tool

if TYPE_CHECKING:
    from fractions import Fraction


class Kind(Enum):
    NEW = "new_patient"
    FOLLOW_UP = "follow_up"


@tool
async def book(
    patient_id: int,
    starts_at: datetime,
    kind: Kind,
    *,
    notes: str | None = None,
    tags: list[str] = [],  # noqa: B006 - a default that a schema can show
    urgency: Literal["low", "high"] = "low",
) -> dict[str, Any]:
    """Book a visit.

    It must not overlap another one.

    Args:
        patient_id: whose visit, and
            nobody else's.
        starts_at (datetime): clinic time.
        kind: what for.

    Returns:
        The appointment.
    """
    return {}


def test_schema_is_read_from_hints_defaults_and_docstring() -> None:
    assert schema(book) == {
        "name": "book",
        "description": "Book a visit.\n\nIt must not overlap another one.",
        "input_schema": {
            "type": "object",
            "properties": {
                "patient_id": {"type": "integer", "description": "whose visit, and nobody else's."},
                "starts_at": {"type": "string", "format": "date-time", "description": "clinic time."},
                "kind": {"type": "string", "enum": ["new_patient", "follow_up"], "description": "what for."},
                "notes": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                "tags": {"type": "array", "items": {"type": "string"}, "default": []},
                "urgency": {"type": "string", "enum": ["low", "high"], "default": "low"},
            },
            "required": ["patient_id", "starts_at", "kind"],
            "additionalProperties": False,
        },
    }


def test_function_without_hints_or_docstring_takes_anything() -> None:
    def bare(x, y=1):  # type: ignore[no-untyped-def]
        return x, y

    assert schema(bare) == {
        "name": "bare",
        "description": "",
        "input_schema": {
            "type": "object",
            "properties": {"x": {}, "y": {"default": 1}},
            "required": ["x"],
            "additionalProperties": False,
        },
    }


def test_annotated_text_describes_a_parameter() -> None:
    def find(day: Annotated[date, "clinic's day"]) -> None:
        """Find."""

    assert schema(find)["input_schema"]["properties"] == {
        "day": {"type": "string", "format": "date", "description": "clinic's day"}
    }


@pytest.mark.parametrize("hint", [bytes, set[str], dict[int, str], tuple[int, int], object | bytes], ids=repr)
def test_type_that_json_cannot_carry_is_named(hint: Any) -> None:
    def odd(x: Any) -> None: ...

    odd.__annotations__["x"] = hint
    with pytest.raises(UsageError, match="parameter 'x' of tool 'odd'"):
        schema(odd)


def test_parameters_that_have_no_name_to_call_by_are_refused() -> None:
    def positional(x: int, /) -> None: ...
    def several(*xs: int) -> None: ...

    for fn in (positional, several):
        with pytest.raises(UsageError, match="cannot be given by name"):
            schema(fn)


def test_hint_that_exists_for_type_checkers_only_is_explained() -> None:
    def share(part: Fraction) -> None: ...

    with pytest.raises(UsageError, match="TYPE_CHECKING"):
        schema(share)


@pytest.mark.parametrize(
    ("hint", "given", "expected"),
    [
        (int, 3, 3),
        (int, 3.0, 3),
        (float, 3, 3.0),
        (bool, False, False),
        (str, "3", "3"),
        (Decimal, 1.1, Decimal("1.1")),
        (Decimal, "1.10", Decimal("1.10")),
        (date, "2026-11-30", date(2026, 11, 30)),
        (datetime, "2026-11-30T09:15:00", datetime(2026, 11, 30, 9, 15)),  # noqa: DTZ001 - as given
        (time, "09:15", time(9, 15)),
        (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
        (Kind, "follow_up", Kind.FOLLOW_UP),
        (Literal["a", 1], 1, 1),
        (Optional[date], None, None),  # noqa: UP045 - the older spelling
        (date | None, "2026-11-30", date(2026, 11, 30)),
        (int | str, "x", "x"),
        (list[date], ["2026-11-30"], [date(2026, 11, 30)]),
        (dict[str, Decimal], {"fee": 2}, {"fee": Decimal(2)}),
        (list, [1, "a"], [1, "a"]),
        (Any, {"a": 1}, {"a": 1}),
    ],
    ids=repr,
)
def test_json_becomes_the_hinted_type(hint: Any, given: object, expected: object) -> None:
    def take(x: Any) -> None: ...

    take.__annotations__["x"] = hint
    converted = convert_arguments(take, {"x": given})["x"]
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("hint", "given", "says"),
    [
        (int, "3", "x is '3'; it must be a whole number"),
        (int, 3.5, "a whole number"),
        (int, True, "a whole number"),
        (int, None, "a whole number"),
        (int, float("inf"), "a whole number"),
        (float, "1", "a number"),
        (bool, 1, "true or false"),
        (str, 3, "a text"),
        (Decimal, "ten", "a number"),
        (Decimal, "NaN", "a number"),
        (date, "30.11.2026", "a date like"),
        (datetime, "tomorrow", "a date and time like"),
        (UUID, "1", "a UUID"),
        (Kind, "other", "one of 'new_patient', 'follow_up'"),
        (Literal[1, 2], True, "one of 1, 2"),
        (date | None, "x", "a date like"),
        (int | float, "x", "a whole number; or x is 'x'; it must be a number"),
        (list[int], "1", "a list"),
        (list[int], [1, "b"], r"x\[1\] is 'b'"),
        (dict[str, int], {"a": "b"}, r"x\.a is 'b'"),
        (dict[str, int], [], "x is list; it must be an object"),
    ],
    ids=repr,
)
def test_json_of_another_type_is_refused_in_words_a_model_can_act_on(
    hint: Any, given: object, says: str
) -> None:
    def take(x: Any) -> None: ...

    take.__annotations__["x"] = hint
    with pytest.raises(InvalidArguments, match=says):
        convert_arguments(take, {"x": given})


def test_unknown_and_missing_arguments_are_named() -> None:
    with pytest.raises(InvalidArguments, match="book takes no patient; it takes patient_id, starts_at"):
        convert_arguments(book, {"patient": 1})
    with pytest.raises(InvalidArguments, match="book needs starts_at, kind"):
        convert_arguments(book, {"patient_id": 1})
