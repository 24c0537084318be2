"""Whether a quote is in a text, and where; white space and the shape of letters do not matter. Pure."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from redteam_rubrics.judge.fencing import sign

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find_quote"]

_SHORTEST = 8

_PLAIN = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'", "\u00b4": "'", "`": "'",
        "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u00ab": '"', "\u00bb": '"',
        "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-", "\u2212": "-",
        "\u2026": "...", "⏎": " ",
    }
)  # fmt: skip
_WHITE_ESCAPES = frozenset("nrt")
_PLAIN_ESCAPES = frozenset('"\\/')


def find_quote(text: str, quote: str) -> str | None:
    """The words of `text` that a quote stands for, as they are there, or None.

    A quote must be at least eight characters long, or be all of the text: a single word is found anywhere.
    """
    wanted = "".join(folded for folded, _ in _folded(quote, as_seen=True)).strip()
    folded = list(_folded(text, as_seen=False))
    whole = "".join(part for part, _ in folded)
    if not wanted or (len(wanted) < _SHORTEST and wanted != whole.strip()):
        return None
    at = whole.find(wanted)
    if at < 0:
        return None
    places = [place for part, place in folded for _ in part]
    return text[places[at] : places[at + len(wanted) - 1] + 1]


def _folded(text: str, *, as_seen: bool) -> Iterator[tuple[str, int]]:
    """The text as it is compared, in pieces, each with the place in the text that it comes from.

    The judge can quote only what it sees, signs included (`as_seen`). What JSON has as an escape, a reader
    quotes as what it means.
    """
    was_blank = False
    place = 0
    while place < len(text):
        character, here = text[place], place
        follower = text[place + 1 : place + 2]
        place += 1
        if character == "\\" and follower in _WHITE_ESCAPES and follower:
            piece, place = " ", place + 1
        elif character == "\\" and follower in _PLAIN_ESCAPES and follower:
            piece, place = follower, place + 1
        else:
            piece = character if as_seen and unicodedata.category(character)[0] != "C" else sign(character)
        piece = unicodedata.normalize("NFKD", piece.translate(_PLAIN)).casefold()
        if piece.isspace() or not piece:
            if not was_blank:
                yield " ", here
            was_blank = True
        else:
            yield piece, here
            was_blank = False
