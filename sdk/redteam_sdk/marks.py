"""Which functions of this process `@tool` and `@external` marked, and where: told to the harness that asks.

Marks are noted where code is imported. In production that is one entry of a dictionary for each.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["marked", "note"]

# By kind, name and place: code that marks one function again and again is noted once.
_marks: dict[tuple[str, str, str, int], dict[str, Any]] = {}


def note(kind: str, fn: Callable[..., Any], **facts: object) -> None:
    """Note that a function was marked.

    Args:
        kind: `tools` or `externals`.
        fn: the function.
        facts: what else is to be told of it; JSON-like.
    """
    code = getattr(inspect.unwrap(fn), "__code__", None)  # what is not written in Python has none
    file, line = (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)
    _marks[kind, fn.__name__, file, line] = {"name": fn.__name__, "file": file, "line": line, **facts}


def marked() -> dict[str, list[dict[str, Any]]]:
    """All that is marked so far: `tools` and `externals`, each with name, file, line (from 1) and facts.

    What is not written in Python has no file and line 0.
    """
    found: dict[str, list[dict[str, Any]]] = {"tools": [], "externals": []}
    for (kind, *_), facts in sorted(_marks.items()):
        found[kind].append(dict(facts))
    return found
