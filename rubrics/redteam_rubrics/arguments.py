"""What a rule expects of a call's arguments: plain values, `:persona.column`, or a regular expression."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from redteam_rubrics.parameters import lookup, value_column, value_text
from redteam_rubrics.phrases import Pattern, normalise
from redteam_rubrics.strict import Name, expecting, not_empty, refusing
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Argument", "Arguments", "mismatches", "persona_columns"]


def _argument(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"matches"}:
        return Pattern.model_validate(value)
    try:
        value_column(value)
    except UsageError as exc:
        raise PydanticCustomError("rule", "{message}", {"message": str(exc)}) from exc
    return value


Argument = Annotated[Any, PlainValidator(_argument, json_schema_input_type=Any)]
"""A value, `:persona.column`, or `{matches: REGEX}`."""

Arguments = Annotated[dict[Name, Argument], expecting(dict, "{argument: value}"), refusing(not_empty)]
"""The expected arguments of a call, by name. Arguments that are not named may be anything."""


def persona_columns(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of the persona that the expectations refer to."""
    columns = (value_column(value) for value in arguments.values())
    return tuple(column for column in columns if column is not None)


def mismatches(
    expected: Mapping[str, Any], actual: Mapping[str, Any], persona: Mapping[str, object]
) -> tuple[str, ...]:
    """How a call's arguments differ from what was expected, one phrase each; empty when they do not.

    Raises:
        UsageError: an expectation refers to a column that the persona does not have.
    """
    found: list[str] = []
    for name, wanted in expected.items():
        column = value_column(wanted)
        value = wanted if column is None else lookup(persona, column)
        if name not in actual:
            found.append(f"{name} was not given")
        elif not _same(actual[name], value):
            wish = f"like {value}" if isinstance(value, Pattern) else _shown(value)
            source = "" if column is None else f" (the persona's {column})"
            found.append(f"{name} was {_shown(actual[name])}, expected {wish}{source}")
    return tuple(found)


def _same(actual: Any, expected: Any) -> bool:
    """Equality of values that came by different ways: 7 and "7" are the same, a date and its text, too."""
    if isinstance(expected, Pattern):
        return actual is not None and expected.is_in(str(actual))
    if actual is None or expected is None:
        return actual is expected
    if isinstance(actual, list | tuple) and isinstance(expected, list | tuple):
        return len(actual) == len(expected) and all(map(_same, actual, expected))
    if isinstance(actual, dict) and isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(_same(actual[key], expected[key]) for key in actual)
    if isinstance(actual, bool) or isinstance(expected, bool):
        return _text(actual) == _text(expected)
    if isinstance(actual, int | float | Decimal) or isinstance(expected, int | float | Decimal):
        try:
            return Decimal(str(actual)) == Decimal(str(expected))
        except InvalidOperation:
            return False
    return _text(actual) == _text(expected)


def _text(value: Any) -> str:
    if isinstance(value, date | time):  # also datetime; traces hold isoformat
        return value.isoformat()
    return normalise(value if isinstance(value, str) else value_text(value) or "")


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else str(value)
    return f'"{text}"' if isinstance(value, str) else text
