"""`:persona.column` and `:claimed.column` in the SQL and in the values of rules.

In SQL a parameter becomes a quoted constant without a type, as psql's `:'name'` does: Postgres gives it the
type that its place asks for. A bound `$1` would need a Python value of the type that Postgres infers, so
`'%' || :persona.id || '%'` could not be written with a number, nor a stored conversation (whose dates are
text) be judged again. Where nothing asks for a type, a cast does: `:persona.date_of_birth::date + 1`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from pglast.parser import ParseError, scan

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Parameter",
    "Person",
    "bind",
    "find_parameters",
    "literal",
    "lookup",
    "placeholders",
    "value_parameter",
    "value_text",
]

Person = Literal["persona", "claimed"]
"""Whose row: the one that the conversation is played from, or the one that an impersonator claims to be."""

_NAME = re.compile(r"\A(?:[^\W\d][\w$]*|\"(?:[^\"]|\"\")+\")\Z")
_VALUE = re.compile(r"\A:(?P<person>persona|claimed)\.(?P<column>[^\W\d][\w$]*|\"(?:[^\"]|\"\")+\")\Z")
_PEOPLE: Mapping[str, Person] = {"persona": "persona", "claimed": "claimed"}
_PREFIXES = (":persona", ":claimed")
_HINT = "write :persona.column, a column of the cast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One `:persona.column` in a text: from character `start` up to, not including, `end`."""

    start: int
    end: int
    column: str
    person: Person = "persona"


def find_parameters(sql: str) -> tuple[Parameter, ...]:
    """Find the parameters of an SQL text; strings, comments, quoted names, `::` and `:=` hold none.

    Raises:
        UsageError: the text cannot be read as SQL tokens, has a parameter of another name than persona and
            claimed, or has a `$1`, which nothing would fill.
    """
    try:
        tokens = scan(sql)
    except ParseError as exc:
        raise UsageError(f"this is no SQL: {exc.args[0]}") from exc
    found: list[Parameter] = []
    depth = 0  # inside [ ] a colon is an array slice
    for index, token in enumerate(tokens):
        text = sql[token.start : token.end + 1]
        depth += (text == "[") - (text == "]")
        if token.name == "PARAM":
            raise UsageError(f"{text} has no value here; write :persona.column")
        follower = tokens[index + 1] if text == ":" and index + 1 < len(tokens) else None
        if follower is None or follower.start != token.end + 1:
            continue
        end = follower.end + 1
        name = sql[follower.start : end]
        tail = tokens[index + 2 : index + 4]
        columns = [sql[part.start : part.end + 1] for part in tail]
        is_joined = len(tail) == 2 and tail[0].start == end and tail[1].start == tail[0].end + 1
        person = _PEOPLE.get(name)
        if person is not None and is_joined and columns[0] == "." and _NAME.match(columns[1]):
            found.append(
                Parameter(start=token.start, end=tail[1].end + 1, column=_fold(columns[1]), person=person)
            )
        elif depth == 0 and _NAME.match(name):
            raise UsageError(f":{name} is not a parameter; {_HINT}")
    return tuple(found)


def placeholders(sql: str) -> str:
    """The text with every parameter replaced by ` $1` and blanks: a parser finds the rest where it was.

    Raises:
        UsageError: as `find_parameters`.
    """
    return _replace(sql, {found: " $1".ljust(found.end - found.start) for found in find_parameters(sql)})


def bind(sql: str, persona: Mapping[str, object], claimed: Mapping[str, object] | None = None) -> str:
    """The text with every parameter replaced by the person's value as a quoted constant.

    Args:
        sql: the text.
        persona: the persona's row.
        claimed: the row that the persona claims to be; None, if it claims to be nobody: each value is NULL.

    Raises:
        UsageError: as `find_parameters`; the row has no such column (names those it has); or the column
            holds a value that has no SQL constant.
    """
    return _replace(
        sql, {found: f" ({literal(_value(found, persona, claimed))})" for found in find_parameters(sql)}
    )


def lookup(row: Mapping[str, object], column: str) -> object:
    """The value of a column of the cast.

    Raises:
        UsageError: there is no such column; names those there are.
    """
    if column not in row:
        known = ", ".join(row) or "none"
        raise UsageError(f"the persona has no column {column!r}; the cast's SELECT gives: {known}")
    return row[column]


def value_parameter(value: object) -> tuple[Person, str] | None:
    """The person and the column that a value of a rule refers to, or None when it is a plain value.

    Raises:
        UsageError: it begins like a parameter and is none.
    """
    if not isinstance(value, str) or not value.startswith(_PREFIXES):
        return None
    match = _VALUE.match(value)
    if match is None:
        raise UsageError(f"{value!r} is not a parameter; write :persona.column and nothing else")
    return _PEOPLE[match["person"]], _fold(match["column"])


def literal(value: object) -> str:
    """A value as an SQL constant without a type.

    Raises:
        UsageError: no constant can hold it.
    """
    text = value_text(value)
    if text is None:
        return "NULL"
    if "\0" in text:
        raise UsageError("a value with a NUL character cannot be used in SQL")
    escaped = text.replace("'", "''")
    if "\\" in escaped:  # E'' means the same whatever standard_conforming_strings says
        return "E'" + escaped.replace("\\", "\\\\") + "'"
    return f"'{escaped}'"


def value_text(value: object) -> str | None:
    """A persona's value as the text that Postgres reads, or None for NULL.

    Raises:
        UsageError: the value is of a type without such a text.
    """
    match value:
        case None:
            return None
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case (
            int()
            | float()
            | Decimal()
            | UUID()
            | IPv4Address()
            | IPv6Address()
            | IPv4Network()
            | IPv6Network()
        ):
            return str(value)
        case bytes():
            return "\\x" + value.hex()
        case datetime():
            return value.isoformat(sep=" ")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
        case list() | tuple():
            return "{" + ",".join(_element(item) for item in value) + "}"
        case _:
            raise UsageError(
                f"a persona's value of type {type(value).__name__} cannot be used in a rule; "
                "cast it to text in the cast's SELECT"
            )


def _value(found: Parameter, persona: Mapping[str, object], claimed: Mapping[str, object] | None) -> object:
    if found.person == "persona":
        return lookup(persona, found.column)
    return None if claimed is None else lookup(claimed, found.column)


def _element(value: object) -> str:
    """An element of an array constant, quoted."""
    if isinstance(value, list | tuple):
        return value_text(value) or ""
    text = value_text(value)
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _fold(name: str) -> str:
    """A name as Postgres stores it: unquoted ones in lower case."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def _replace(sql: str, replacements: Mapping[Parameter, str]) -> str:
    parts: list[str] = []
    position = 0
    for found, text in replacements.items():
        parts += sql[position : found.start], text
        position = found.end
    return "".join((*parts, sql[position:]))
