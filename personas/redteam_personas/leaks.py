"""Finding a held-back value in a line, however it is written. Pure.

A value is found as its words in a row, as a date in any common form, as a number in figures or words, and as
an id with blanks, dashes or spelled digits in it (`spellings`). A family name may come first.

A value with fewer than three letters and digits (a number word counts as its figures), or that is a bare yes,
no or the like, cannot be told from chance and is never a leak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_personas.spellings import as_date, as_number, read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redteam_personas.persona import Fact

__all__ = ["find_leaks", "says_value"]

_TOO_COMMON = frozenset({"yes", "no", "true", "false", "none", "unknown", "other"})
_MIN_CHARACTERS = 3
_MIN_DIGITS_AS_RUN = 6
_MIN_JOINED = 5
_MIN_JOINED_WITH_DIGITS = 4
_SPOKEN_MARKS = frozenset({"at", "dot", "underscore", "dash", "hyphen"})


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
    """Whether `value` stands in `text`: as words, a date, a number, or an id."""
    wanted, said = read(value), read(text)
    if sum(map(len, wanted.words)) < _MIN_CHARACTERS:
        return False
    if len(wanted.words) == 1 and wanted.words[0] in _TOO_COMMON:
        return False
    if any(_contains(said.words, way) for way in _orders(wanted.words)):
        return True
    if (day := as_date(value)) is not None:
        return day in said.dates
    if (number := as_number(value)) is not None and number in said.numbers:
        return True
    return _joined(said.pieces, wanted.pieces, address="@" in value)


def _orders(words: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The words in a row; a name of two or three also with the last one first."""
    if 2 <= len(words) <= 3 and all(word.isalpha() for word in words):
        return words, (words[-1], *words[:-1])
    return (words,)


def _contains(said: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    size = len(wanted)
    return any(said[start : start + size] == wanted for start in range(len(said) - size + 1))


def _joined(said: tuple[str, ...], wanted: tuple[str, ...], *, address: bool) -> bool:
    """Whether pieces in a row, put together, are the value; or hold it, where it is all digits."""
    whole = "".join(wanted)
    if address:
        said = tuple(piece for piece in said if piece not in _SPOKEN_MARKS)
    digits = any(letter.isdecimal() for letter in whole)
    if len(whole) < (_MIN_JOINED_WITH_DIGITS if digits else _MIN_JOINED):
        return False
    for start in range(len(said)):
        run = ""
        for piece in said[start:]:
            run += piece
            if run == whole:
                return True
            if not whole.startswith(run):
                break
    if not whole.isdecimal() or len(whole) < _MIN_DIGITS_AS_RUN:
        return False
    return any(whole in run for run in _digit_runs(said))


def _digit_runs(said: tuple[str, ...]) -> list[str]:
    runs = [""]
    for piece in said:
        if piece.isdecimal():
            runs[-1] += piece
        else:
            runs.append("")
    return runs
