"""Whether two values of a column differ by more than its policy lets pass. Pure; values are texts."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

__all__ = ["alike_in_any_order", "within"]


def within(old: str | None, new: str | None, tolerance: Decimal) -> bool:
    """Whether two numbers are at most `tolerance` apart, exactly computed.

    An empty value is near no number, nor is `NaN` or `Infinity`, nor what is no number at all.
    """
    if old is None or new is None:
        return False
    try:
        return abs(Fraction(old) - Fraction(new)) <= Fraction(tolerance)
    except (ValueError, ZeroDivisionError):
        return False


def alike_in_any_order(old: str | None, new: str | None) -> bool:
    """Whether two arrays, or two JSON documents, are equal but for the order of what lists in them hold.

    At every depth; how often an element occurs does count. Numbers in JSON are compared by value, elements of
    arrays by their text. What is neither an array nor JSON is never alike.
    """
    if old is None or new is None:
        return False
    for read in (_json, _array):
        try:
            return _sorted(read(old)) == _sorted(read(new))
        except (ValueError, RecursionError):
            continue
    return False


def _json(text: str) -> object:
    # Objects as tuples of pairs: a key that comes twice, which type json keeps, is not lost.
    return json.loads(text, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=tuple)


def _sorted(value: object) -> str:
    """A text that two values share only if they are equal but for the order of lists."""
    match value:
        case list():
            return "[" + ",".join(sorted(_sorted(item) for item in value)) + "]"
        case tuple():
            members = sorted(f"{json.dumps(name)}:{_sorted(item)}" for name, item in value)
            return "{" + ",".join(members) + "}"
        case Decimal():
            return _number(value)
        case _:
            return json.dumps(value)


def _number(value: Decimal) -> str:
    """The same text for 1, 1.0 and 1.00. Not by `normalize`, which rounds to the context's precision."""
    sign, digits, exponent = value.as_tuple()
    significant = "".join(map(str, digits)).rstrip("0")
    if not significant.strip("0"):
        return "0"
    assert isinstance(exponent, int)  # json.loads gives floats for NaN and infinity, which JSON lacks
    places = exponent + len(digits) - len(significant)
    return f"{'-' if sign else ''}{significant.lstrip('0')}e{places}"


def _array(text: str) -> list[object]:
    """Read Postgres' text of an array: nested lists of texts and None.

    Raises:
        ValueError: it is none.
    """
    start = text.index("{")  # bounds may stand before it: [0:1]={a,b}
    if start and not (text.startswith("[") and text[start - 1] == "="):
        raise ValueError("no array")
    value, end = _list(text, start + 1)
    if end != len(text):
        raise ValueError("something follows the array")
    return value


def _list(text: str, place: int) -> tuple[list[object], int]:
    """The elements from `place`, which is behind the opening brace, and where the closing one has ended."""
    items: list[object] = []
    if text[place : place + 1] == "}":
        return items, place + 1
    while place < len(text):
        item: object
        if text[place] == "{":
            item, place = _list(text, place + 1)
        elif text[place] == '"':
            item, place = _quoted(text, place + 1)
        else:
            end = place
            while end < len(text) and text[end] not in ",}":
                end += 2 if text[end] == "\\" else 1
            bare = text[place:end]
            item, place = (None if bare == "NULL" else bare), end
        items.append(item)
        closing = text[place : place + 1]
        place += 1
        if closing == "}":
            return items, place
        if closing != ",":
            break
    raise ValueError("the array does not end")


def _quoted(text: str, place: int) -> tuple[str, int]:
    parts: list[str] = []
    while place < len(text):
        if text[place] == '"':
            return "".join(parts), place + 1
        if text[place] == "\\":
            place += 1
        parts.append(text[place : place + 1])
        place += 1
    raise ValueError("a quote is not closed")
