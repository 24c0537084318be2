"""Cells as people read them: what Postgres printed, made shorter, safer and clearer. Pure.

The exact text stays in the change set. Here nothing that a cell holds can move the cursor, turn the writing
direction or hide: such characters are shown as signs (`⟨ESC⟩`, `⟨U+202E⟩`). NULL is told apart from texts.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Literal

__all__ = ["Readable", "readable", "readable_pair", "visible"]

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d)(:\d\d)(\.\d+)?(\+00)?")
_BYTES_SHOWN = 8
_HASH_DIGITS = 12
_SHORT = 20
"""Up to so many characters a changed value is marked whole: half a number tells nobody anything."""
_WORD = 20
"""How far a mark is moved outwards to the border of a word."""

_UNPRINTED = re.compile(r"[^\x20-\x7e]")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
# Letters and marks that have no picture, whatever their category says.
_HIDDEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_JOINERS = "\u200c\u200d"  # belong between letters of many scripts, and between the parts of an emoji
_SELECTORS = "\ufe0e\ufe0f"  # text or emoji, of the character before
_LINE_SIGNS = {"\n": "↵", "\t": "⇥", "\x7f": "⟨DEL⟩"}
# fmt: off
_CONTROLS = (
    "NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "HT", "LF", "VT", "FF", "CR", "SO", "SI",
    "DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "FS", "GS", "RS", "US",
)
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """A value to be shown: `before`, `marked` and `after` one after the other.

    Attributes:
        before: what comes before the part that differs.
        marked: what differs from the value on the other side; all of it, where little is alike.
        after: what comes after it.
        kind: `null` is SQL's NULL, `value` all the rest; a text that reads `null` or is empty has quotes.
        cut: whether something was left out.
    """

    before: str = ""
    marked: str = ""
    after: str = ""
    kind: Literal["null", "value"] = "value"
    cut: bool = False

    @property
    def text(self) -> str:
        """All of it."""
        return self.before + self.marked + self.after


NULL = Readable(marked="null", kind="null")


def visible(text: str) -> str:
    """The text on one line, with a sign for every character that is not seen or does something.

    A line's end is `↵`, a tab `⇥`; control characters, direction overrides, other format characters, odd
    blanks and half surrogates are named: `⟨ESC⟩`, `⟨U+202E⟩`.
    """
    return _UNPRINTED.sub(_sign_of, text)


def _sign_of(match: re.Match[str]) -> str:
    character = match.group()
    if character in _JOINERS or character in _SELECTORS:
        text, at = match.string, match.start()
        before = text[at - 1] if at else " "
        follows = character in _SELECTORS or not text[at + 1 : at + 2].isascii()
        if not before.isascii() and not _is_hidden(before) and follows:
            return character
    return _sign(character)


@lru_cache(maxsize=4096)
def _sign(character: str) -> str:
    if character in _LINE_SIGNS:
        return _LINE_SIGNS[character]
    if character < " ":
        return f"⟨{_CONTROLS[ord(character)]}⟩"
    if _is_hidden(character):
        return f"⟨U+{ord(character):04X}⟩"
    return character


def _is_hidden(character: str) -> bool:
    return (
        unicodedata.category(character) in _HIDDEN_CATEGORIES
        or character in _HIDDEN
        or "\ufe00" <= character <= "\ufe0f"
        or "\U000e0100" <= character <= "\U000e01ef"
    )


def readable(value: str | None, type_: str, *, chars: int | None = None) -> Readable:
    """One cell that has no other side.

    Args:
        value: as Postgres printed it; None is NULL.
        type_: the column's type, as the change set names it.
        chars: what is longer is cut and ends with `…`; None: nothing is cut.
    """
    if value is None:
        return NULL
    text = _formatted(value, type_)
    if chars is not None and len(text) > chars:
        return Readable(after=visible(text[: max(chars - 1, 1)]) + "…", cut=True)
    return Readable(after=_quoted(text))


def readable_pair(
    old: str | None, new: str | None, type_: str, *, chars: int | None = None
) -> tuple[Readable, Readable]:
    """Both sides of a cell that changed; a long one is shown around the place that differs.

    Args:
        old: as Postgres printed it; None is NULL.
        new: the same on the other side.
        type_: the column's type.
        chars: the most characters of each that are shown; None: all.
    """
    if old is None or new is None:
        return _whole(old, type_, chars), _whole(new, type_, chars)
    was, now = _formatted(old, type_), _formatted(new, type_)
    if was == now:  # the readable form hides the difference, so the exact one is shown
        was, now = old, new
    head, tail = _alike(was, now)
    return _around(was, head, tail, chars), _around(now, head, tail, chars)


def _whole(value: str | None, type_: str, chars: int | None) -> Readable:
    shown = readable(value, type_, chars=chars)
    return Readable(marked=shown.text, kind=shown.kind, cut=shown.cut)


def _formatted(value: str, type_: str) -> str:
    if type_ == "boolean":
        return {"t": "true", "f": "false"}.get(value, value)
    if type_.startswith("timestamp"):
        return _moment(value)
    if type_ == "bytea":
        return _bytes(value)
    if value == "null" and type_ in ("json", "jsonb"):
        return "null (JSON)"
    return value


def _moment(value: str) -> str:
    """With its weekday, to the second, and without seconds that are none."""
    match = _TIMESTAMP.fullmatch(value)
    if match is None:  # infinity, before our era, after the year 9999
        return value
    day, minute, second, fraction, utc = match.groups()
    try:
        weekday = _WEEKDAYS[date.fromisoformat(day).weekday()]
    except ValueError:
        return value
    whole = "" if second == ":00" and not fraction else second
    return f"{weekday} {day} {minute}{whole}{' UTC' if utc else ''}"


def _bytes(value: str) -> str:
    try:
        data = bytes.fromhex(value.removeprefix("\\x"))
    except ValueError:
        return value
    size = f"{len(data):,} byte{'' if len(data) == 1 else 's'}"
    if len(data) <= _BYTES_SHOWN:
        return f"{value} ({size})" if data else size
    return f"{size}, sha256 {hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]}"


def _quoted(text: str) -> str:
    """Quotes where a bare text would be taken for nothing, for NULL, or for one without blanks around it."""
    return f'"{visible(text)}"' if _is_mistakable(text) else visible(text)


def _is_mistakable(text: str) -> bool:
    inside = text.strip('"') if text.startswith('"') else text
    return not inside or inside.lower() == "null" or inside.strip(" ") != inside


def _alike(one: str, other: str) -> tuple[int, int]:
    """How many characters both begin with, and how many of the rest both end with, at borders of words."""
    head = _common(one, other)
    tail = _common(one[head:][::-1], other[head:][::-1])
    shorter, longer = sorted((len(one), len(other)))
    if longer <= _SHORT or (head < _SHORT and (head + tail) * 3 < shorter):
        return 0, 0
    for _ in range(_WORD):
        if head and one[head - 1].isalnum():
            head -= 1
    for _ in range(_WORD):
        if tail and one[-tail].isalnum():
            tail -= 1
    return head, tail


def _common(one: str, other: str) -> int:
    """The length of the common beginning, found by halves: a cell may have megabytes."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _around(text: str, head: int, tail: int, chars: int | None) -> Readable:
    end = len(text) - tail
    if chars is None or len(text) <= chars:
        if not head and not tail:
            return Readable(marked=_quoted(text))
        edge = '"' if _is_mistakable(text) else ""
        return Readable(
            before=edge + visible(text[:head]),
            marked=visible(text[head:end]),
            after=visible(text[end:]) + edge,
        )
    # The part that differs comes first, what is left of the room is shared by what stands around it.
    middle = text[head:end]
    if len(middle) > chars:
        kept = chars * 3 // 4 if head else chars - 1
        return Readable(
            before=_left(text[:head], chars - kept), marked=visible(middle[:kept]) + "…", cut=True
        )
    room = chars - len(middle)
    before = min(head, max(room // 2, room - tail))
    return Readable(
        before=_left(text[:head], before),
        marked=visible(middle),
        after=_right(text[end:], room - before),
        cut=True,
    )


def _left(text: str, room: int) -> str:
    if len(text) <= room:
        return visible(text)
    return "…" + visible(text[len(text) - max(room - 1, 0) :])


def _right(text: str, room: int) -> str:
    if len(text) <= room:
        return visible(text)
    return visible(text[: max(room - 1, 0)]) + "…"
