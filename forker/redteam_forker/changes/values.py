"""When two cells hold the same value: by type, over the text that Postgres prints.

Text alone would call 1.0 and 1.00 a change, and two spellings of one JSON document too (P61). No operator
of the type itself is asked: json, xml and point have no equality (P60), others have one that hides what
everybody sees (1 month and 30 days, 0 and -0, boxes of one size), and an operator may be the agent's own.
"""

from __future__ import annotations

import functools
import json
import re
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ArrayOf", "Canonical", "Kind", "MultirangeOf", "RangeOf", "RecordOf", "canonical", "parse_record"]

Canonical = Hashable

_FIELD = re.compile(r'"((?:[^"]|"")*+)"|([^,)]*+)')
_BOUND = r'(?:"((?:[^"\\]|""|\\\\)*+)"|([^"\\()\[\],]*+))'
_RANGE = re.compile(rf"([\[(]){_BOUND},{_BOUND}([\])])")
_DIMENSIONS = re.compile(r"((?:\[-?\d+:-?\d+\])*)=?")
_PAIR = re.compile(r'""|\\\\')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """Arrays: equal with equal bounds and elements; a NULL element equals a NULL."""

    element: Kind
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class RangeOf:
    """Ranges: equal with equal bounds, both in or both out."""

    bound: Kind


@dataclass(frozen=True, slots=True)
class MultirangeOf:
    """Multiranges: equal with equal ranges."""

    bound: Kind


@dataclass(frozen=True, slots=True)
class RecordOf:
    """Composite types: equal with equal fields; a NULL field equals a NULL."""

    fields: tuple[Kind, ...]


Kind = Literal["number", "json", "text"] | ArrayOf | RangeOf | MultirangeOf | RecordOf


def canonical(kind: Kind, text: str | None) -> Canonical:
    """A hashable stand-in that is equal for equal values. NULL equals NULL and nothing else (P75).

    Args:
        kind: `number` for integers and numeric, `json` for json and jsonb, a type of this module for what
            holds others, `text` for all the rest, which differ if they print differently.
        text: as Postgres prints it with pinned settings. What does not read as the kind says stands for
            itself.
    """
    if text is None or kind == "text":
        return text
    if kind == "number":
        return text.rstrip("0").rstrip(".") if "." in text else text
    try:
        if kind == "json":
            return _json(text)
        return _compound(kind, text)
    except (ValueError, ArithmeticError, RecursionError):
        return text


def _json(text: str) -> Canonical:
    # Numbers as decimals: floats would merge large integers that differ.
    return _frozen(
        json.loads(
            text, parse_float=Decimal, parse_int=Decimal, parse_constant=str, object_pairs_hook=_Members
        )
    )


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object, in their order."""


def _frozen(value: Any) -> Canonical:
    """Tagged, because Python holds True equal to 1."""
    match value:
        case _Members():
            # The type json keeps a key that comes twice; whoever reads it sees both.
            named: dict[str, list[Canonical]] = defaultdict(list)
            for name, item in value:
                named[name].append(_frozen(item))
            return ("object", frozenset((name, tuple(items)) for name, items in named.items()))
        case list():
            return ("array", tuple(_frozen(item) for item in value))
        case _:
            return (type(value).__name__, value)


def _compound(kind: ArrayOf | RangeOf | MultirangeOf | RecordOf, text: str) -> Canonical:
    match kind:
        case ArrayOf():
            return ("array", *_elements(kind, text))
        case RangeOf():
            match = _RANGE.fullmatch(text)
            return ("range", _range(kind.bound, match) if match else text)
        case MultirangeOf():
            return ("ranges", tuple(_ranges(kind.bound, text)))
        case RecordOf():
            # One NULL prints as no field does, so a record of none has a NULL in its text.
            cells = parse_record(text)[: len(kind.fields)]
            pairs = zip(kind.fields, cells, strict=True)
            return ("record", tuple(canonical(field, cell) for field, cell in pairs))


def _elements(kind: ArrayOf, text: str) -> Iterator[Canonical]:
    """The bounds, then braces and elements as they come; an array of any dimensions is flat so."""
    match = _DIMENSIONS.match(text)
    assert match is not None  # both parts may be empty
    yield match[1]
    at, tokens = match.end(), _array_tokens(kind.delimiter)
    while at < len(text):
        token = tokens.match(text, at)
        if token is None:
            raise ValueError(text)
        at = token.end()
        quoted, plain = token.groups()
        if quoted is not None:
            yield (canonical(kind.element, _ESCAPE.sub(r"\1", quoted)),)
        elif plain is not None:
            yield (None if plain == "NULL" else canonical(kind.element, plain),)
        elif token[0] != kind.delimiter:
            yield token[0]


@functools.cache
def _array_tokens(delimiter: str) -> re.Pattern[str]:
    apart = re.escape(delimiter)
    return re.compile(rf'"((?:[^"\\]|\\.)*+)"|([^"{{}}\\{apart}]++)|[{{}}{apart}]', re.DOTALL)


def _ranges(bound: Kind, text: str) -> Iterator[Canonical]:
    at, last = 1, len(text) - 1
    if text[:1] != "{" or text[last:] != "}":
        raise ValueError(text)
    while at < last:
        match = _RANGE.match(text, at)
        if match is None:
            raise ValueError(text)
        yield _range(bound, match)
        at = match.end() + (text[match.end() : match.end() + 1] == ",")


def _range(bound: Kind, match: re.Match[str]) -> Canonical:
    opening, low_quoted, low, high_quoted, high, closing = match.groups()
    return (opening, _limit(bound, low_quoted, low), _limit(bound, high_quoted, high), closing)


def _limit(bound: Kind, quoted: str | None, plain: str) -> Canonical:
    """None where the range has no end."""
    if quoted is not None:
        return (canonical(bound, _PAIR.sub(lambda pair: pair[0][0], quoted)),)
    return (canonical(bound, plain),) if plain else None


def parse_record(text: str) -> list[str | None]:
    """The fields of a row that Postgres printed as one value, `(1,"a, b",,"")`; an empty one is NULL.

    A row of no columns prints as a row of one NULL does: the caller knows how many there are.

    One text per row costs the server far less than a text per cell, and types print by their output
    functions, where a cast to text may be somebody's own function, or drop blanks.

    Raises:
        ValueError: it is no such text.
    """
    fields: list[str | None] = []
    end = 0  # of the opening parenthesis, then of each separator
    while text[end : end + 1] != ")":
        match = _FIELD.match(text, end + 1)
        if match is None or match.end() >= len(text):
            raise ValueError("this is no printed row")
        quoted, plain = match.groups()
        fields.append(plain or None if quoted is None else quoted.replace('""', '"').replace("\\\\", "\\"))
        end = match.end()
    if end + 1 != len(text):
        raise ValueError("this is more than one printed row")
    return fields
