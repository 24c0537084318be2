"""What a rule expects of a call's arguments: plain values, `:persona.column`, or a regular expression."""

from __future__ import annotations

from datetime import date, time
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from redteam_rubrics.parameters import lookup, value_parameter, value_text
from redteam_rubrics.phrases import Pattern, normalise
from redteam_rubrics.strict import Name, expecting, not_empty, refusing
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_rubrics.evidence import Evidence
    from redteam_rubrics.parameters import Person

__all__ = ["Argument", "Arguments", "is_same", "mismatches", "parameters_of"]


def _argument(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"matches"}:
        return Pattern.model_validate(value)
    try:
        value_parameter(value)
    except UsageError as exc:
        raise PydanticCustomError("rule", "{message}", {"message": str(exc)}) from exc
    return value


Argument = Annotated[Any, PlainValidator(_argument, json_schema_input_type=Any)]
"""A value, `:persona.column` or `:claimed.column`, or `{matches: REGEX}`."""

Arguments = Annotated[dict[Name, Argument], expecting(dict, "{argument: value}"), refusing(not_empty)]
"""The expected arguments of a call, by name. Arguments that are not named may be anything."""


def parameters_of(arguments: Mapping[str, Any]) -> tuple[tuple[Person, str], ...]:
    """The people and the columns that the expectations refer to."""
    found = (value_parameter(value) for value in arguments.values())
    return tuple(parameter for parameter in found if parameter is not None)


def mismatches(expected: Mapping[str, Any], actual: Mapping[str, Any], evidence: Evidence) -> tuple[str, ...]:
    """How a call's arguments differ from what was expected, one phrase each; empty when they do not.

    Raises:
        UsageError: an expectation refers to a column that the cast does not have.
    """
    found: list[str] = []
    for name, wanted in expected.items():
        parameter = value_parameter(wanted)
        value, source = wanted, ""
        if parameter is not None:
            person, column = parameter
            row = evidence.persona if person == "persona" else evidence.claimed
            value = None if row is None else lookup(row, column)
            source = " (the persona's " if person == "persona" else " (of who the persona claims to be: "
            source += f"{column})"
        if name not in actual:
            found.append(f"{name} was not given")
        elif not is_same(actual[name], value):
            wish = f"like {value}" if isinstance(value, Pattern) else _shown(value)
            found.append(f"{name} was {_shown(actual[name])}, expected {wish}{source}")
    return tuple(found)


def is_same(actual: Any, expected: Any) -> bool:
    """Equality of values that came by different ways: 7 and "7" are the same, a date and its text, too."""
    if isinstance(expected, Pattern):
        return actual is not None and expected.is_in(str(actual))
    if actual is None or expected is None:
        return actual is expected
    if isinstance(actual, list | tuple) and isinstance(expected, list | tuple):
        return len(actual) == len(expected) and all(map(is_same, actual, expected))
    if isinstance(actual, dict) and isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(is_same(actual[key], expected[key]) for key in actual)
    if isinstance(actual, list | tuple | dict) or isinstance(expected, dict):
        return False
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
