"""What a check of rules finds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something in a rule that cannot be meant.

    Attributes:
        loc: where it is in rules.yaml, from the rule's name on.
        message: what is wrong, and where it can be said, what would be right.
    """

    loc: tuple[str | int, ...]
    message: str
