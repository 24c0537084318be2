"""The room's SQL that is more than a line: named blocks in `*.sql` files beside this one.

A block starts with `-- name: some_name`, goes on with a comment line that says what it is for, and ends where
the next begins. Parameters are always `$1`, `$2`, ...; no block takes an identifier.
"""

from __future__ import annotations

import functools
import re
from importlib import resources

from redteam_sdk.errors import InternalError

__all__ = ["query"]

_NAME = re.compile(r"^-- name: ([a-z_]+)\n", re.MULTILINE)


@functools.cache
def _blocks() -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in sorted(resources.files(__name__).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".sql"):
            parts = _NAME.split(entry.read_text(encoding="utf-8"))
            found.update(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))
    return found


def query(name: str) -> str:
    """The SQL text of a named block.

    Raises:
        InternalError: there is none of that name.
    """
    try:
        return _blocks()[name]
    except KeyError:
        raise InternalError(f"no SQL block is named {name!r}") from None
