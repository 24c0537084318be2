"""Evidence as data in a prompt: nothing of it can end its fence, begin a line, or be there unseen. Pure.

A fence is two lines that no evidence can contain, for two reasons that do not depend on each other: their
brackets are shown as signs wherever the evidence has them, and they hold a nonce that is derived from the
evidence itself, so that nobody who writes evidence can know it. The same evidence always has the same nonce:
a request that is sent again is the same request.
"""

from __future__ import annotations

import hashlib
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LEFT_OUT", "fenced", "shorten", "sign", "visible"]

_OURS = frozenset("⟦⟧⟨⟩⏎")
_JOINERS = frozenset("\u200c\u200d")  # emoji, Persian and Indic words need them, and they hide nothing
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_BREAKS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
# Variation selectors, all but the one that emoji have; and the plane of tags, which nothing shows.
_SELECTORS = (range(0xFE00, 0xFE0F), range(0xE0000, 0xE1000))

LEFT_OUT = "⟨{count} characters left out⟩"
"""Stands where a passage was shortened."""

_NONCE = 20


@cache
def sign(character: str) -> str:
    """A character as the judge sees it: itself, or a sign for what could not be seen or could deceive."""
    if character in _BREAKS:
        return "⏎"
    code = ord(character)
    if character in _JOINERS or character == "\t":
        return " " if character == "\t" else character
    if character in _OURS or unicodedata.category(character) in _UNSEEN:
        return f"⟨U+{code:04X}⟩"
    if any(code in selectors for selectors in _SELECTORS):
        return f"⟨U+{code:04X}⟩"
    return character


def visible(text: str) -> str:
    """A text on one line, in which everything can be seen."""
    return "".join(map(sign, text))


def shorten(text: str, limit: int) -> tuple[str, int]:
    """A visible text of at most `limit` characters, and how many were left out of its middle.

    The sign that stands for them is not counted; nothing in a visible text looks like it.
    """
    if len(text) <= limit:
        return text, 0
    begin = limit * 3 // 4
    end = limit - begin
    left_out = len(text) - limit
    return f"{text[:begin]} {LEFT_OUT.format(count=f'{left_out:,}')} {text[len(text) - end :]}", left_out


def fenced(parts: Mapping[str, Sequence[str]]) -> str:
    """Each part's lines, visible already, between two lines that nothing in them can be."""
    bodies = {name: "\n".join(lines) for name, lines in parts.items()}
    nonce = _nonce("\n".join(bodies.values()))
    return "\n\n".join(
        f"⟦evidence {nonce}: {name}⟧\n{body}\n⟦end of evidence {nonce}⟧" for name, body in bodies.items()
    )


def _nonce(text: str) -> str:
    number = 0
    while True:
        given = f"redteam judge {number}\n{text}".encode("utf-8", "surrogatepass")
        nonce = hashlib.sha256(given).hexdigest()[:_NONCE]
        if nonce not in text:
            return nonce
        number += 1
