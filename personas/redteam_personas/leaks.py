"""Finding a held-back value in a line, however it is written. Pure.

Comparison is by whole words and numbers: case, spaces and punctuation do not matter. Dates are also looked
for as people write them ("7 March 1984", "March 7th, 1984", "07/03/1984"), and long numbers as one run of
digits, so that "555 01-23" is 5550123.

A value with fewer than three letters and digits, or that is a bare yes, no or the like, cannot be told from
chance and is never a leak.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

from redteam_personas.questions import tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redteam_personas.persona import Fact

__all__ = ["find_leaks", "says_value", "spoken"]

# Not from the locale: the same text on every machine.
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ORDINAL = re.compile(r"\A(\d{1,2})(?:st|nd|rd|th)\Z")
_TOO_COMMON = frozenset({"yes", "no", "true", "false", "none", "unknown", "other"})
_MIN_CHARACTERS = 3
_MIN_DIGITS_AS_RUN = 6


def find_leaks(text: str, held: Iterable[Fact], *, public: Iterable[str] = ()) -> tuple[str, ...]:
    """Names of the held-back facts whose value `text` gives away, in the order of `held`.

    Args:
        text: a line of the actor.
        held: the facts that were not revealed when it was spoken.
        public: texts that the actor was given (its demand, revealed values, what the agent said); a value
            that stands in one of them is no secret.
    """
    given = tuple(public)
    return tuple(
        fact.name
        for fact in held
        if says_value(text, fact.value) and not any(says_value(other, fact.value) for other in given)
    )


def says_value(text: str, value: str) -> bool:
    """Whether `value` stands in `text` as whole words, a date, or a run of digits."""
    wanted = _folded(value)
    if sum(map(len, wanted)) < _MIN_CHARACTERS or (len(wanted) == 1 and wanted[0] in _TOO_COMMON):
        return False
    said = _folded(text)
    if any(_contains(said, way) for way in (wanted, *_written_dates(value))):
        return True
    digits = "".join(tokens(value))
    if not digits.isdecimal() or len(digits) < _MIN_DIGITS_AS_RUN or _as_date(value):
        return False
    return any(digits in run for run in _digit_runs(tokens(text)))


def spoken(value: str) -> str:
    """A value as people say it: ISO dates and times become `Tuesday 8 December 2026, 09:00`; others stay."""
    day = _as_date(value)
    if day is None:
        return value
    said = f"{day.day} {_MONTHS[day.month - 1].capitalize()} {day.year}"
    time = value[11:16]
    return f"{_DAYS[day.weekday()]} {said}, {time}" if time else said


def _folded(text: str) -> tuple[str, ...]:
    """Words with leading zeros and ordinal endings gone: `07` and `7th` are both `7`."""
    return tuple(_plain_number(word) for word in tokens(text))


def _plain_number(word: str) -> str:
    if ordinal := _ORDINAL.match(word):
        word = ordinal[1]
    return (word.lstrip("0") or "0") if word.isdecimal() and len(word) <= 2 else word


def _contains(said: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    size = len(wanted)
    return any(said[start : start + size] == wanted for start in range(len(said) - size + 1))


def _digit_runs(said: tuple[str, ...]) -> list[str]:
    runs = [""]
    for word in said:
        if word.isdecimal():
            runs[-1] += word
        else:
            runs.append("")
    return runs


def _as_date(value: str) -> dt.date | None:
    match = re.match(r"(\d{4}-\d{2}-\d{2})(?:[ T]\d{2}:\d{2}.*)?\Z", value)
    if match is None:
        return None
    try:
        return dt.date.fromisoformat(match[1])
    except ValueError:
        return None


def _written_dates(value: str) -> list[tuple[str, ...]]:
    day = _as_date(value)
    if day is None:
        return []
    year, number, month = str(day.year), str(day.day), str(day.month)
    name = _MONTHS[day.month - 1]
    ways: list[tuple[str, ...]] = [(year, month, number), (number, month, year), (month, number, year)]
    ways += [(number, month, year[2:].lstrip("0") or "0"), (month, number, year[2:].lstrip("0") or "0")]
    for written in (name, name[:3], "sept" if month == "9" else name):
        ways += [(number, written, year), (number, "of", written, year), (written, number, year)]
        ways += [(written, "the", number, year)]
    return list(dict.fromkeys(ways))
