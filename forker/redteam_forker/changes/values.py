"""When two cells hold the same value: by type, over the text that Postgres prints.

Text alone would call 1.0 and 1.00 a change, and two spellings of one JSON document too (P61). No operator of
the type itself is asked: json, xml and point have no equality (P60).
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from decimal import Decimal
from typing import Any, Literal

__all__ = ["Canonical", "Kind", "canonical", "parse_record"]

Kind = Literal["number", "json", "text"]
Canonical = Hashable

_FIELD = re.compile(r'"((?:[^"]|"")*+)"|([^,)]*+)')


def canonical(kind: Kind, text: str | None) -> Canonical:
    """A hashable stand-in that is equal for equal values. NULL equals NULL and nothing else (P75).

    Args:
        kind: `number` for integers and numeric, `json` for json and jsonb, `text` for all other types.
        text: as Postgres prints it with pinned settings.
    """
    if text is None:
        return None
    if kind == "number":
        return text.rstrip("0").rstrip(".") if "." in text else text
    if kind == "json":
        try:
            # Numbers as decimals: floats would merge large integers that differ.
            return _frozen(json.loads(text, parse_float=Decimal, parse_int=Decimal, parse_constant=str))
        except (ValueError, ArithmeticError, RecursionError):
            return text
    return text


def _frozen(value: Any) -> Canonical:
    """Tagged, because Python holds True equal to 1."""
    match value:
        case dict():
            return ("object", frozenset((name, _frozen(item)) for name, item in value.items()))
        case list():
            return ("array", tuple(_frozen(item) for item in value))
        case _:
            return (type(value).__name__, value)


def parse_record(text: str) -> list[str | None]:
    """The fields of a row that Postgres printed as one value, `(1,"a, b",,"")`; an empty one is NULL.

    A row of no columns prints as a row of one NULL does: the caller knows how many there are.

    One text per row costs the server far less than a text per cell, and types print by their output
    functions, where a cast to text may be somebody's own function, or drop blanks.
    """
    fields: list[str | None] = []
    end = 0  # of the opening parenthesis, then of each separator
    while text[end] != ")":
        match = _FIELD.match(text, end + 1)
        assert match is not None  # the second alternative takes the empty text
        quoted, plain = match.groups()
        fields.append(plain or None if quoted is None else quoted.replace('""', '"').replace("\\\\", "\\"))
        end = match.end()
    return fields
