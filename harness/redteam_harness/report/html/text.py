"""Words of agents, people and databases, made fit to be shown in a page. Pure."""

from __future__ import annotations

import json
import re
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from redteam_forker.changes.render import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "as_json",
    "html_text",
    "html_words",
    "link",
    "marked",
    "one_line",
    "plain_text",
    "said",
    "value_text",
]

_MAX_SAID = 20_000
_CODE = re.compile(r"`([^`<>]+)`")
_SPACES = re.compile(r"\s+")


def plain_text(text: object) -> str:
    """Any text as HTML without an element, for a title or an attribute."""
    return escape(visible(str(text)))


def html_text(text: object) -> str:
    """Any text as HTML, in its own writing direction: it cannot turn around what stands beside it."""
    shown = plain_text(text)
    return shown if shown.isascii() else f"<bdi>{shown}</bdi>"


def html_words(text: object) -> str:
    """A sentence as HTML; names that it has in backticks are set as code."""
    return _CODE.sub(r"<code>\1</code>", html_text(text))


def link(text: object, **state: object) -> str:
    """A link to a state of the page: a filter by `rule`, a conversation as `c`."""
    fragment = urlencode({name: visible(str(value)) for name, value in state.items()})
    return f'<a href="#{escape(fragment)}">{html_text(text)}</a>'


def said(text: object) -> str:
    """What somebody said, on its own lines; characters that are not seen are signs."""
    return "\n".join(visible(line) for line in _clipped(str(text)).split("\n"))


def one_line(text: object, chars: int) -> str:
    """A text on one line, cut to a number of characters."""
    shown = visible(_SPACES.sub(" ", str(text)).strip())
    return shown if len(shown) <= chars else f"{shown[: chars - 1]}…"


def value_text(value: object, *, indent: int | None = None) -> str:
    """An argument or a result: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return said(value)
    return said(json.dumps(value, ensure_ascii=False, indent=indent, default=str))


def _clipped(text: str) -> str:
    """A text that is longer than anybody would read, cut, saying by how much."""
    more = len(text) - _MAX_SAID
    return text if more <= 0 else f"{text[:_MAX_SAID]}… {more:,} characters more are in the evidence"


def marked(text: str, quotes: Sequence[str]) -> list[str]:
    """A text in pieces, by turns plain and quoted: every second piece is one that a judge quoted.

    Args:
        text: as `said` shows it.
        quotes: of judges, as they gave them; white space and case may differ from the text's.
    """
    spans: list[tuple[int, int]] = []
    for quote in quotes:
        words = said(quote).split()
        if words:
            pattern = re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE)
            spans += [match.span() for match in pattern.finditer(text)]
    pieces, at = [""], 0
    for start, end in sorted(spans):
        if start < at:  # it overlaps the one before, or is part of it
            if end > at:
                pieces[-2] += text[at:end]
                at = end
            continue
        pieces[-1] += text[at:start]
        pieces += [text[start:end], ""]
        at = end
    pieces[-1] += text[at:]
    return pieces


def as_json(value: Any) -> str:
    """Compact JSON that can stand inside a script element: nothing in it can end one."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
