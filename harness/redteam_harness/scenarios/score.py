"""Scorers: whether a reply is what a scenario expects. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SCORERS"]

SCORERS: Mapping[str, Callable[[str, str], bool]] = {
    "exact": lambda output, expected: output.strip() == expected.strip(),
    "contains": lambda output, expected: (
        " ".join(expected.split()).casefold() in " ".join(output.split()).casefold()
    ),
}
"""By name. `exact`: the same text, but for blanks around it. `contains`: anywhere in it, in any case."""
