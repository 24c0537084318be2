"""Replaces personal data in a recording, as a mapping says: whole words, however they are written. Pure.

A name is found with its words in either order and in any case, a date in any common form, a number in figures
or words, an id with blanks or dashes in it: as `redteam_personas.spellings` reads them.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import yaml

from redteam_harness.exchange.recording import Degraded
from redteam_personas.spellings import as_date, as_number, fold, read
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redteam_harness.evidence.trace import Event
    from redteam_harness.exchange.recording import Recorded

__all__ = ["Replacements", "read_replacements"]

_TOKEN = re.compile(r"[^\W_]+")
_MORE_TOKENS = 8  # a date in words, an id that is spelled out
_MIN_INSIDE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    old: str
    new: str
    words: tuple[tuple[str, ...], ...]
    joined: str
    day: dt.date | None
    number: Decimal | None
    size: int


class Replacements:
    """What is put in place of what. Neither is ever shown or stored: an entry is named by its line.

    Attributes:
        counts: how often each entry was put in place, in the mapping's order.
    """

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._entries = [_entry(old, new) for old, new in pairs.items()]
        self.counts = [0] * len(self._entries)
        self._inside = [0] * len(self._entries)

    @property
    def unused(self) -> list[int]:
        """The numbers, from 1, of entries that stood nowhere."""
        return [number for number, count in enumerate(self.counts, start=1) if not count]

    @property
    def inside(self) -> list[int]:
        """The numbers of entries that still stand within longer words, which are not replaced."""
        return [number for number, count in enumerate(self._inside, start=1) if count]

    def recording(self, recording: Recorded) -> Recorded:
        """The recording with everything put in place: in lines, arguments, results and errors.

        Raises:
            Degraded: two keys of one object would become the same.
        """
        try:
            events = tuple(self._event(event) for event in recording.events)
        except Degraded as error:
            raise Degraded(error.missing, conversation=recording.name) from None
        return replace(recording, events=events)

    def _event(self, event: Event) -> Event:
        kept = ("kind", "at", "turn", "xid", "call", "name")
        return {name: value if name in kept else self.value(value) for name, value in event.items()}

    def value(self, value: Any) -> Any:
        """A value with everything put in place, in its texts, numbers and keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            found = {self.text(name): self.value(item) for name, item in value.items()}
            if len(found) < len(value):
                raise Degraded("the replacements would make two keys of one object the same")
            return found
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        return self._number(value)

    def _number(self, value: int | float) -> Any:
        """A number is replaced as a whole: 10 is no part of 10.99."""
        for number, entry in enumerate(self._entries):
            if entry.number is not None and entry.number == abs(Decimal(str(value))):
                self.counts[number] += 1
                return _as_number(entry.new, type(value))
        return value

    def text(self, text: str) -> str:
        """A text with everything put in place."""
        said = [number for number, one in enumerate(self._entries) if _may_say(text, one)]
        if not said:
            return text
        tokens = [match.span() for match in _TOKEN.finditer(text)]
        parts: list[str] = []
        done, at = 0, 0
        while at < len(tokens):
            number, end = self._found(text, tokens, at, said)
            if number is None:
                at += 1
                continue
            parts += [text[done : tokens[at][0]], self._entries[number].new]
            done, at = tokens[end - 1][1], end
            self.counts[number] += 1
        whole = "".join([*parts, text[done:]])
        for number in said:
            self._inside[number] += _stands_inside(whole, self._entries[number])
        return whole

    def _found(
        self, text: str, tokens: Sequence[tuple[int, int]], start: int, said: Sequence[int]
    ) -> tuple[int | None, int]:
        """The entry that begins at a token, the longest of several, and the token after it."""
        best: tuple[int | None, int] = (None, start)
        for number in said:
            entry = self._entries[number]
            for end in range(start + 1, min(start + entry.size + _MORE_TOKENS, len(tokens)) + 1):
                if _is(_part(text, tokens, start, end), entry):
                    if end > best[1] and not _goes_on(text, tokens, start, end):
                        best = (number, end)
                    break
        return best


def read_replacements(path: Path) -> Replacements:
    """Read a mapping: YAML (`from: to`), or CSV with two columns, from and to.

    Raises:
        UsageError: it cannot be read, or is no mapping of texts; the message holds nothing of it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(f"replacements {path} cannot be read: {reason}") from None
    pairs = _csv(path, text) if path.suffix.casefold() == ".csv" else _yaml(path, text)
    for number, (old, new) in enumerate(pairs, start=1):
        if not fold(old):
            raise UsageError(f"{path}: entry {number} has nothing to look for")
        if not new.strip():
            raise UsageError(f"{path}: entry {number} has nothing to put in its place")
    if len({old for old, _ in pairs}) < len(pairs):
        raise UsageError(f"{path} has two entries for the same text")
    if not pairs:
        raise UsageError(f"{path} has no entry; write `from: to` lines, or two columns of CSV")
    return Replacements(dict(pairs))


def _csv(path: Path, text: str) -> list[tuple[str, str]]:
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if rows and [cell.strip().casefold() for cell in rows[0]] == ["from", "to"]:
        rows = rows[1:]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2:
            raise UsageError(f"{path}: row {number} has {len(row)} columns, and not two: from, to")
    return [(old.strip(), new.strip()) for old, new in rows]


def _yaml(path: Path, text: str) -> list[tuple[str, str]]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        raise UsageError(f"{path} is no YAML of `from: to` lines") from None
    pairs = root.value if isinstance(root, yaml.MappingNode) else None
    if pairs is None or not all(isinstance(one, yaml.ScalarNode) for pair in pairs for one in pair):
        raise UsageError(f"{path} is no YAML of `from: to` lines")
    # As they are written: 0171 is a telephone number, and 1984-03-07 a text.
    return [(old.value.strip(), new.value.strip()) for old, new in pairs]


def _entry(old: str, new: str) -> _Entry:
    words, reading = fold(old), read(old)
    orders = [words]
    if 2 <= len(words) <= 3 and all(word.isalpha() for word in words):
        orders.append((words[-1], *words[:-1]))
    return _Entry(
        old=old,
        new=new,
        words=tuple(orders),
        joined="".join(reading.pieces),
        day=as_date(old),
        number=as_number(old),
        size=max(len(_TOKEN.findall(old)), len("".join(reading.pieces)) if len(words) == 1 else 0),
    )


def _may_say(text: str, entry: _Entry) -> bool:
    """Whether it is worth looking closer: nothing that `_is` finds is missed."""
    reading = read(text)
    if entry.day is not None and entry.day in reading.dates:
        return True
    return set(entry.words[0]) <= set(reading.words) or entry.joined in "".join(reading.pieces)


def _is(part: str, entry: _Entry) -> bool:
    reading = read(part)
    if reading.words in entry.words or "".join(reading.pieces) == entry.joined:
        return True
    if entry.day is None or entry.day not in reading.dates:
        return False
    first = _TOKEN.search(part)  # a date begins with itself, and not with an `on`
    return first is not None and entry.day not in read(part[first.end() :]).dates


def _goes_on(text: str, tokens: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    """Whether the next word belongs to the same number: `twenty` of `twenty-one` is no 20."""
    if end == len(tokens):
        return False
    here, longer = fold(_part(text, tokens, start, end)), fold(_part(text, tokens, start, end + 1))
    return len(here) == len(longer) and here != longer


def _part(text: str, tokens: Sequence[tuple[int, int]], start: int, end: int) -> str:
    return text[tokens[start][0] : tokens[end - 1][1]]


def _stands_inside(text: str, entry: _Entry) -> int:
    plain, new = text.casefold(), entry.new.casefold()
    old = entry.old.casefold()
    return len(old) >= _MIN_INSIDE and old not in new and old in plain


def _as_number(text: str, kind: type[int] | type[float]) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text
