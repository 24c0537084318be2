"""Which row of the cast a recorded conversation belongs to, by the values that are told in it. Pure."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from redteam_personas.leaks import says_value
from redteam_personas.persona import value_text
from redteam_personas.spellings import as_number, fold, read

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_harness.exchange.recording import Recorded
    from redteam_personas import Cast, Persona

__all__ = ["Candidate", "Found", "find_row"]

# A value that more rows have than these names nobody: a count, and one part in so many.
_FEW, _SHARE = 2, 50
_MIN_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A row that the conversation may belong to.

    Attributes:
        persona: the row.
        told: its columns that the conversation tells, with the values.
    """

    persona: Persona
    told: Mapping[str, str]

    @property
    def values(self) -> frozenset[str]:
        """The values that are told; that of another row's column may be the same."""
        return frozenset(self.told.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the conversation says of rows.

    Attributes:
        one: the row that it names alone, or None.
        candidates: every row that it names in part, the likeliest first.
    """

    one: Candidate | None
    candidates: tuple[Candidate, ...]


def find_row(recording: Recorded, cast: Cast) -> Found:
    """Look for the rows whose values the user said, or tools were called with.

    A row is found where it is named by all that any other row is named by, and by more: two people of one
    name stay two until a date of birth is said. What many rows have, such as an insurer, names nobody. What
    tools answered does not count: it may tell of anybody.
    """
    told = _Told(recording)
    values = [
        {name: text for name, value in persona.row.items() if (text := value_text(value))}
        for persona in cast.personas
    ]
    rows = Counter(value for row in values for value in set(row.values()))
    most = max(_FEW, len(values) // _SHARE)
    said = {value for value, count in rows.items() if count <= most and told.has(value)}
    named = [
        Candidate(persona=persona, told=kept)
        for persona, row in zip(cast.personas, values, strict=True)
        if (kept := {name: value for name, value in row.items() if value in said})
    ]
    named.sort(key=lambda one: -len(one.values))
    first = named[0] if named else None
    alone = first is not None and all(one.values < first.values for one in named[1:])
    return Found(one=first if alone else None, candidates=tuple(named))


class _Told:
    """What the user said and tools were called with."""

    def __init__(self, recording: Recorded) -> None:
        lines = [str(event["text"]) for event in recording.events if event["kind"] == "user"]
        leaves = [
            leaf
            for event in recording.events
            if event["kind"] in ("tool_call", "external")
            for leaf in _leaves(event["arguments"])
        ]
        # One by one: the end of a line and the beginning of the next make no date.
        self._texts = tuple(dict.fromkeys((*lines, *leaves)))
        self._words = frozenset(word for text in self._texts for word in fold(text))
        numbers = {number for leaf in leaves if (number := as_number(leaf)) is not None}
        for line in lines:
            reading = read(line)
            # The year of a date that was said is nobody's number.
            numbers |= reading.numbers - {Decimal(day.year) for day in reading.dates}
        self._numbers = frozenset(numbers)

    def has(self, value: str) -> bool:
        """Whether a row's value is told. A number is one of its own, and no part of a date or of an id."""
        if (number := as_number(value)) is not None:
            return len(value) >= _MIN_DIGITS and number in self._numbers
        # Most values of a large cast share no word with a conversation, which is soon seen.
        may = any(letter.isdecimal() for letter in value) or not self._words.isdisjoint(fold(value))
        return may and any(says_value(text, value) for text in self._texts)


def _leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value if isinstance(value, str) else json.dumps(value)]
