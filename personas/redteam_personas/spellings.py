"""Reads a text for the words, dates, numbers and ids in it, however they are written. Pure; English.

"Born on the seventh of March, nineteen eighty-four", "3/7/84" and "1984-03-07" all read as the same date, and
"M N one two three" and "mn-123" as the same id. Case, accents, invisible characters and punctuation do not
matter.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

__all__ = ["Reading", "as_date", "as_number", "fold", "read", "spoken"]

# Not from the locale: the same text on every machine.
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTH = {name[:3]: n for n, name in enumerate(_MONTHS, 1)} | {name: n for n, name in enumerate(_MONTHS, 1)}
_MONTH["sept"] = 9
_FILLERS = frozenset({"the", "of", "in", "on", "day", "year", "month", *map(str.casefold, _DAYS)})

_CARDINALS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    *("eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth"),
    *("eighteenth", "nineteenth"),
)
_ROUND = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_UNITS = {word: n for n, word in enumerate(_CARDINALS)} | {word: n for n, word in enumerate(_ORDINALS, 1)}
_TENS = {word: 10 * n for n, word in enumerate(_ROUND, 2)} | {"twentieth": 20, "thirtieth": 30}
_SCALES = {"thousand": 10**3, "million": 10**6}
_TIMES = {"double": 2, "triple": 3}
_CENTURIES = ("19", "20")

_WORD = re.compile(r"[^\W_]+")
_ORDINAL = re.compile(r"\A(\d{1,2})(?:st|nd|rd|th)\Z")
_FIGURE = re.compile(
    r"(?<![\w.])\d[\d.,'\u2019]*(?:[ \u00a0\u202f]\d{3}(?!\d))*(?:[.,]\d+)?(\s?k\b)?", re.IGNORECASE
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_DAY = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T]\d{2}:\d{2}.*)?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What stands in a text.

    Attributes:
        words: its words and numbers, folded: number words are figures, `07` and `7th` are `7`.
        pieces: the same, with every figure as it was written, so that they can be joined to an id.
        dates: every date that it could be read as holding, day and month in either order.
        numbers: every number, without its sign.
    """

    words: tuple[str, ...]
    pieces: tuple[str, ...]
    dates: frozenset[dt.date]
    numbers: frozenset[Decimal]


@lru_cache(maxsize=4096)
def read(text: str) -> Reading:
    """Read a text."""
    plain = _plain(text)
    pieces = _figures(_WORD.findall(plain))
    words = tuple(map(_bare, pieces))
    spelled = frozenset(Decimal(piece) for piece in pieces if piece.isdecimal())
    return Reading(words=words, pieces=pieces, dates=_dates(words), numbers=_numbers(plain) | spelled)


def fold(text: str) -> tuple[str, ...]:
    """The words of a text as `Reading.words` has them; cheaper than a whole reading."""
    return tuple(map(_bare, _figures(_WORD.findall(_plain(text)))))


def as_date(value: str) -> dt.date | None:
    """The date of an ISO date or timestamp; None for any other text."""
    match = _DAY.match(value)
    if match is None:
        return None
    try:
        return dt.date.fromisoformat(match[1])
    except ValueError:
        return None


def as_number(value: str) -> Decimal | None:
    """A value that is a number in figures, without its sign; None for any other text."""
    return abs(Decimal(value)) if value.isascii() and _NUMBER.fullmatch(value) else None


def spoken(value: str) -> str:
    """A value as people say it: ISO dates and times become `Tuesday 8 December 2026, 09:00`; others stay."""
    day = as_date(value)
    if day is None:
        return value
    said = f"{day.day} {_MONTHS[day.month - 1].capitalize()} {day.year}"
    time = value[11:16]
    return f"{_DAYS[day.weekday()]} {said}, {time}" if time else said


def _plain(text: str) -> str:
    """Case, accents and invisible characters gone."""
    if text.isascii():
        return text.casefold()
    letters = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize(
        "NFKC", "".join(one for one in letters if unicodedata.category(one) not in ("Mn", "Cf"))
    ).casefold()


def _bare(piece: str) -> str:
    """`07` and `7th` are both `7`; a figure of three or more characters is an id, whose zeros count."""
    if ordinal := _ORDINAL.match(piece):
        piece = ordinal[1]
    return (piece.lstrip("0") or "0") if piece.isdecimal() and len(piece) <= 2 else piece


def _figures(words: list[str]) -> tuple[str, ...]:
    """Number words as figures: `nineteen eighty four` is `19 84`, `double five` is `5 5`."""
    pieces: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if (times := _TIMES.get(word)) and at + 1 < len(words) and _digit(words[at + 1]):
            pieces += [_digit(words[at + 1])] * times
            at += 2
            continue
        number, after = _cardinal(words, at)
        if number is not None:
            pieces.append(str(number))
            at = after
            continue
        # "oh" is a zero among figures, and a sigh elsewhere.
        after_it = words[at + 1] if at + 1 < len(words) else ""
        between = bool(pieces) and pieces[-1].isdecimal() and (_digit(after_it) or after_it in _TIMES)
        pieces.append("0" if word in ("oh", "o") and between else word)
        at += 1
    return tuple(pieces)


def _digit(word: str) -> str:
    if word.isdecimal():
        return word
    return str(_UNITS.get(word, _TENS.get(word, "")))


def _cardinal(words: list[str], start: int) -> tuple[int | None, int]:
    """The number in words that begins here, and where it ends; None where none begins."""
    total, current, at, open_ = 0, -1, start, True
    while at < len(words):
        word = words[at]
        if open_ and word in _TENS:
            current = max(current, 0) + _TENS[word]
            at, open_ = at + 1, False
            if at < len(words) and 1 <= _UNITS.get(words[at], 0) <= 9:
                current, at = current + _UNITS[words[at]], at + 1
        elif open_ and word in _UNITS:
            current, at, open_ = max(current, 0) + _UNITS[word], at + 1, False
        elif word == "hundred" and 0 < current < 100:
            current, at, open_ = current * 100, at + 1, True
        elif word in _SCALES and current > 0:
            total, current, at, open_ = total + current * _SCALES[word], 0, at + 1, True
        elif (
            word == "and"
            and at > start
            and open_
            and at + 1 < len(words)
            and (words[at + 1] in _UNITS or words[at + 1] in _TENS)
        ):
            at += 1
        else:
            break
    return (None, start) if current < 0 else (total + current, at)


def _numbers(plain: str) -> frozenset[Decimal]:
    found: set[Decimal] = set()
    for match in _FIGURE.finditer(plain):
        thousands = 1000 if match[1] else 1
        figure = re.sub(r"[^\d.,]|k", "", match[0]).strip(".,")
        readings = {figure.replace(",", "")}
        if re.search(r",\d{1,2}\Z", figure):  # as written where the comma is the decimal mark
            readings.add(figure.replace(".", "").replace(",", "."))
        if re.fullmatch(r"\d{1,3}(?:\.\d{3})+", figure):
            readings.add(figure.replace(".", ""))
        found |= {Decimal(one) * thousands for one in readings if _NUMBER.fullmatch(one)}
    return frozenset(found)


def _dates(words: tuple[str, ...]) -> frozenset[dt.date]:
    found: set[dt.date] = set()
    said = [word for word in words if word not in _FILLERS]
    for at, word in enumerate(said):
        if len(word) == 8 and word.isdecimal():
            found |= _days([int(word[:4])], word[4:6], word[6:])
            found |= _days([int(word[4:])], word[:2], word[2:4]) | _days([int(word[4:])], word[2:4], word[:2])
        if at + 2 >= len(said):
            continue
        second = said[at + 1]
        years = _years(said, at + 2)
        found |= _days(years, second, word) | _days(years, word, second)
        if len(word) == 4 and word.isdecimal():
            found |= _days([int(word)], second, said[at + 2]) | _days([int(word)], said[at + 2], second)
    return frozenset(found)


def _years(said: list[str], at: int) -> list[int]:
    """The years that a date could end with here: `1984`, `84`, or `19 84` as it is spoken."""
    word = said[at]
    if not word.isdecimal():
        return []
    if len(word) == 4:
        return [int(word)]
    years: list[int] = []
    if len(word) <= 2:
        years += [1900 + int(word), 2000 + int(word)]
    if word in _CENTURIES and at + 1 < len(said) and said[at + 1].isdecimal() and len(said[at + 1]) <= 2:
        rest = said[at + 1]
        if rest == "0" and at + 2 < len(said) and said[at + 2].isdecimal() and len(said[at + 2]) == 1:
            rest = said[at + 2]
        years.append(int(word) * 100 + int(rest))
    return years


def _days(years: list[int], month: str, day: str) -> set[dt.date]:
    number = int(month) if month.isdecimal() and len(month) <= 2 else _MONTH.get(month, 0)
    if not (1 <= number <= 12 and day.isdecimal() and len(day) <= 2):
        return set()
    found = set()
    for year in years:
        try:
            found.add(dt.date(year, number, int(day)))
        except ValueError:  # 31 June, 30 February, day 0
            continue
    return found
